//! `[workers]`: the processes that run `bash`, `read_file` and `write_file` of a gateway.

use gantry_domain::ConfigSection;
use gantry_process::workers::WorkersOptions;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// More workers than this would only take memory.
const MAX_COUNT: usize = 64;

/// The smallest limit with which every call fits.
const MIN_MEMORY_MB: u64 = 32;

/// Worker processes of a gateway, which run `bash`, `read_file` and `write_file`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct WorkersConfig {
    /// How many calls run at once; others wait (default 4). 0 runs them in the gateway's own process.
    count: usize,
    /// The memory of each worker in megabytes (default 256). Commands that it starts are not bound by it.
    memory_mb: u64,
}

impl Default for WorkersConfig {
    fn default() -> Self {
        WorkersConfig { count: 4, memory_mb: 256 }
    }
}

impl WorkersConfig {
    /// Applies the settings. Returns `None` if workers are turned off.
    pub(crate) fn apply(&self, options: WorkersOptions) -> Option<WorkersOptions> {
        let memory_bytes = self.memory_mb << 20;
        (self.count > 0).then_some(WorkersOptions { count: self.count, memory_bytes, ..options })
    }
}

impl ConfigSection for WorkersConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let count = (self.count > MAX_COUNT).then(|| Violation {
            path: format!("{at}.count"),
            message: format!("must be at most {MAX_COUNT}"),
        });
        let memory = (!(MIN_MEMORY_MB..=1 << 20).contains(&self.memory_mb)).then(|| Violation {
            path: format!("{at}.memoryMb"),
            message: format!("must be between {MIN_MEMORY_MB} and {}", 1 << 20),
        });
        count.into_iter().chain(memory).collect()
    }
}
