//! `[log]` configures the log level and the size of log files.

use clap::ValueEnum;
use gantry_node::MAX_FILE_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

/// `LogConfig` is the log level and the size of log files of gateway and node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct LogConfig {
    /// The lowest level that is logged; `info` when left out.
    level: Option<LogLevel>,
    /// A log file of this size is closed and a new one started; five are kept.
    #[schemars(range(min = 1, max = 1024))]
    max_file_megabytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { level: None, max_file_megabytes: MAX_FILE_BYTES >> 20 }
    }
}

impl LogConfig {
    /// Returns the configured level, if any.
    pub(crate) fn level(&self) -> Option<LogLevel> {
        self.level
    }

    pub(crate) fn file_level(&self) -> LogLevel {
        self.level.unwrap_or(LogLevel::Info)
    }

    pub(crate) fn max_file_bytes(&self) -> u64 {
        self.max_file_megabytes.saturating_mul(1 << 20)
    }
}

impl LogLevel {
    /// Returns the level's name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    pub(crate) fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        }
    }
}
