//! Metrics of background work, for `/metrics`.

use gantry_protocol::{RunEvent, RunKind};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::domain::Flow;

const LATENESS_MS: [f64; 10] =
    [10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 60_000.0, 600_000.0, 3_600_000.0, 86_400_000.0];
const DURATION_MS: [f64; 9] =
    [10.0, 100.0, 1_000.0, 5_000.0, 30_000.0, 60_000.0, 300_000.0, 1_800_000.0, 7_200_000.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    kind: &'static str,
    status: String,
}

/// Counters and histograms of schedules, tasks and pipelines.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    occurrences: Family<Outcome, Counter>,
    lateness: Histogram,
    oldest_due: Gauge,
    runs: Family<Ended, Counter>,
    steps: Family<Ended, Counter>,
    durations: Histogram,
    waits: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics {
            occurrences: Family::default(),
            lateness: Histogram::new(LATENESS_MS),
            oldest_due: Gauge::default(),
            runs: Family::default(),
            steps: Family::default(),
            durations: Histogram::new(DURATION_MS),
            waits: Counter::default(),
            registry: Registry::default(),
        };
        // The encoder appends `_total` to counters.
        registry.register(
            "gantry_cron_occurrences",
            "Scheduled occurrences by outcome: admitted, skipped or missed",
            metrics.occurrences.clone(),
        );
        registry.register(
            "gantry_cron_lateness_ms",
            "Time from the due time of an occurrence to its admission in milliseconds",
            metrics.lateness.clone(),
        );
        registry.register(
            "gantry_cron_oldest_due_age_ms",
            "Age of the oldest occurrence that is due and not admitted in milliseconds",
            metrics.oldest_due.clone(),
        );
        registry.register("gantry_runs", "Ended runs by kind and status", metrics.runs.clone());
        registry.register(
            "gantry_run_duration_ms",
            "Duration of ended runs in milliseconds",
            metrics.durations.clone(),
        );
        registry.register("gantry_pipeline_steps", "Ended steps by status", metrics.steps.clone());
        registry.register(
            "gantry_run_waits",
            "Runs and steps that waited for a person",
            metrics.waits.clone(),
        );
        Metrics { registry, ..metrics }
    }
}

impl Metrics {
    /// Counts an occurrence. `late_ms` is the time since it was due.
    pub(crate) fn occurrence(&self, outcome: &'static str, late_ms: i64) {
        self.occurrences.get_or_create(&Outcome { outcome }).inc();
        if outcome == "admitted" {
            self.lateness.observe(late_ms.max(0) as f64);
        }
    }

    pub(crate) fn count(&self, kind: RunKind, event: &RunEvent) {
        let kind = kind.name();
        match event {
            RunEvent::Ended { status, duration_ms, .. } => {
                self.runs.get_or_create(&Ended { kind, status: status.clone() }).inc();
                self.durations.observe((*duration_ms).max(0) as f64);
            }
            RunEvent::StepEnded { status, .. } => {
                let status = crate::pipelines::state::step_word(*status).to_owned();
                self.steps.get_or_create(&Ended { kind, status }).inc();
            }
            RunEvent::Waiting { .. } => drop(self.waits.inc()),
            _ => {}
        }
    }
}

impl Flow {
    /// Returns the metrics as OpenMetrics text.
    pub(crate) async fn metrics_text(&self) -> String {
        let due = self.parts.database.next_cron_due().await.ok().flatten();
        let age = due.map_or(0, |due| self.parts.clock.now().saturating_sub(due).max(0));
        self.metrics.oldest_due.set(age);
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut page, &self.metrics.registry);
        page
    }
}
