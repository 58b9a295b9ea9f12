//! `[audit]` configures the size and retention of audit log files.

use std::time::Duration;

use gantry_store::AuditLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `AuditConfig` is the size and retention of audit log files.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct AuditConfig {
    /// An audit file of this size is closed and a new one started.
    #[schemars(range(min = 1, max = 1_048_576))]
    max_file_megabytes: u64,
    /// A closed file is removed when its last line is older than this many days; 0 keeps all files.
    #[schemars(range(max = 36_500))]
    keep_days: u64,
}

impl Default for AuditConfig {
    fn default() -> Self {
        AuditConfig { max_file_megabytes: 64, keep_days: 90 }
    }
}

impl AuditConfig {
    pub(crate) fn limits(&self) -> AuditLimits {
        let keep = Duration::from_secs(self.keep_days.saturating_mul(24 * 3600));
        AuditLimits {
            max_file_bytes: self.max_file_megabytes.saturating_mul(1 << 20),
            keep: (!keep.is_zero()).then_some(keep),
        }
    }
}
