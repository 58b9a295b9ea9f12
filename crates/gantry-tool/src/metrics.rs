//! The two metrics of every call. Recorded by the gate and nowhere else.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Success,
    Failure,
    Denied,
    Invalid,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Failure => "failure",
            Status::Denied => "denied",
            Status::Invalid => "invalid",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    tool: String,
    status: &'static str,
}

const BUCKETS_MS: [f64; 14] = [
    0.1,
    0.5,
    1.0,
    5.0,
    10.0,
    50.0,
    100.0,
    500.0,
    1_000.0,
    5_000.0,
    10_000.0,
    60_000.0,
    300_000.0,
    1_800_000.0,
];

/// `tool_execution_total{tool,status}` and `function_call_duration_ms`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    executions: Family<Labels, Counter>,
    durations: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let executions = Family::<Labels, Counter>::default();
        let durations = Histogram::new(BUCKETS_MS);
        // The encoder appends `_total` to counters.
        registry.register("tool_execution", "Tool calls by tool and status", executions.clone());
        registry.register(
            "function_call_duration_ms",
            "Duration of tool calls in milliseconds",
            durations.clone(),
        );
        Metrics { registry, executions, durations }
    }
}

impl Metrics {
    /// Counts a call that did not run.
    pub(crate) fn count(&self, tool: &str, status: Status) {
        self.executions.get_or_create(&Labels { tool: tool.to_owned(), status: status.name() }).inc();
    }

    /// Counts a call that ran, with its duration.
    pub(crate) fn record(&self, tool: &str, status: Status, took: Duration) {
        self.count(tool, status);
        self.durations.observe(took.as_secs_f64() * 1_000.0);
    }

    /// All metrics as Prometheus text.
    pub fn render(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }
}
