//! `[node]`: what `gantry node` takes from the configuration when the command line does not say.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct NodeConfig {
    /// The file with the node's token; only its owner may be able to read it.
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself. A file is better: configuration is copied around.
    pub(crate) token: Option<String>,
    /// Calls that run at once; more wait for their turn.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) max_calls: usize,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig { token_file: None, token: None, max_calls: gantry_node::DEFAULT_MAX_CALLS }
    }
}
