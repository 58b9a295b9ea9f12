//! `[node]` configures defaults of `gantry node`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct NodeConfig {
    /// File with the node's token, readable only by its owner.
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself. Prefer a file, because configuration files get copied.
    pub(crate) token: Option<String>,
    /// Maximum calls that run at once; more are queued.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) max_calls: usize,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig { token_file: None, token: None, max_calls: gantry_node::DEFAULT_MAX_CALLS }
    }
}
