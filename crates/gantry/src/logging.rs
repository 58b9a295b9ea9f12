//! The log of a gateway or a node: text on standard error, JSON lines in files of the data directory.
//!
//! Library crates emit `tracing` events. This module installs the one subscriber that receives them: a
//! layer for standard error and a layer for the file, each with its own level. Events of crates that are
//! not Gantry's are dropped before they are formatted. The message of an event is its name, such as
//! `node_connected`. Known secrets are masked in every field.

use std::fmt::Debug;
use std::sync::Arc;

use anyhow::{Context, Result};
use gantry_gateway::LocalLog;
use gantry_node::{Level, NodeLog, bounded};
use gantry_protocol::LogsResult;
use gantry_tool::Masker;
use gantry_toolsets::LOCAL_NODE;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt};
use tracing_subscriber::registry::Registry;

use crate::config::{Config, LogLevel};
use crate::environment::Environment;
use crate::output::{self, RunningNotes};

/// The target of events that go to the file only, because the command prints them in its own format.
pub(crate) const FILE_ONLY: &str = "gantry::file_only";

/// The target of a gate's events. On a node the gate also records its calls in the log file, so there
/// the file leaves these events out.
const GATE: &str = "gantry_tool::gate";

/// Which gate events are written to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateEvents {
    Written,
    LeftOut,
}

/// Opens the gateway's log and installs the subscriber. Call it once the gateway's lock is held.
pub(crate) fn start_gateway(
    environment: &Environment,
    config: &Config,
    masker: Masker,
    notes: RunningNotes,
) -> Result<NodeLog> {
    let file = NodeLog::with_limit(&environment.data.gateway_log(), LOCAL_NODE, config.log.max_file_bytes())
        .context("cannot open the gateway's log")?;
    start(&file, config, masker, notes, GateEvents::Written);
    Ok(file)
}

/// Installs the subscriber for this process. A second call in one process changes nothing.
pub(crate) fn start(file: &NodeLog, config: &Config, masker: Masker, notes: RunningNotes, gate: GateEvents) {
    let writes_gate = gate == GateEvents::Written;
    let file_layer = FileLayer { file: file.clone(), masker: masker.clone() };
    let file_layer = file_layer.with_filter(at(config.log.file_level(), move |event| {
        writes_gate || !event.target().starts_with(GATE)
    }));
    let stderr_layer = notes.log_level(config.log.level()).map(|level| {
        let layer = StderrLayer { masker, color: notes.color() };
        layer.with_filter(at(level, |event| event.target() != FILE_ONLY))
    });
    let subscriber = Registry::default().with(file_layer).with(stderr_layer);
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        log_panics();
    }
}

/// Passes Gantry's own events of this level and above for which `also` holds. The answer is cached for
/// each place in the code, so a disabled event costs one comparison.
fn at<F>(level: LogLevel, also: F) -> FilterFn<impl Fn(&Metadata<'_>) -> bool>
where
    F: Fn(&Metadata<'_>) -> bool,
{
    let level = level.filter();
    FilterFn::new(move |event: &Metadata<'_>| {
        event.target().starts_with("gantry") && *event.level() <= level && also(event)
    })
    .with_max_level_hint(level)
}

/// Logs each panic with its place. The standard library's hook still prints it.
fn log_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(target: FILE_ONLY, place, error = panic.payload_as_str(), "panic");
        print(panic);
    }));
}

/// Returns a reader of the log's last lines, for `gsv__LogsGet`.
pub(crate) fn reader(log: &NodeLog) -> LocalLog {
    let log = log.clone();
    Arc::new(move |lines| {
        let tail = log.tail(lines)?;
        Ok(LogsResult { lines: tail.lines, truncated: tail.truncated })
    })
}

struct FileLayer {
    file: NodeLog,
    masker: Masker,
}

impl<S: Subscriber> Layer<S> for FileLayer {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let Fields { name, fields } = Fields::of(event, &self.masker);
        self.file.event(level_of(event), &name, fields);
    }
}

struct StderrLayer {
    masker: Masker,
    color: bool,
}

impl<S: Subscriber> Layer<S> for StderrLayer {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let Fields { name, mut fields } = Fields::of(event, &self.masker);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let head = [("ts", now), ("level", level_of(event).name().to_owned()), ("event", name)];
        fields.extend(head.map(|(name, text)| (name.to_owned(), json!(text))));
        output::say_line(&text_line(&fields, |text, style| output::styled(text, style, self.color)));
    }
}

fn level_of(event: &Event<'_>) -> Level {
    match *event.metadata().level() {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warning,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG | tracing::Level::TRACE => Level::Debug,
    }
}

/// The name and the fields of an event.
#[derive(Default)]
struct Fields {
    name: String,
    fields: Map<String, Value>,
}

impl Fields {
    fn of(event: &Event<'_>, masker: &Masker) -> Fields {
        let mut found = Fields::default();
        event.record(&mut found);
        for value in found.fields.values_mut() {
            masker.mask_texts(value);
        }
        found
    }

    fn add(&mut self, field: &Field, value: Value) {
        match value {
            Value::String(text) if field.name() == "message" => self.name = text,
            value => drop(self.fields.insert(field.name().to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!((value * 1e3).round() / 1e3));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, json!(format!("{value:?}")));
    }
}

/// Renders one line of a log as text: time, level, event, then the other fields. `style` applies the
/// code of a colour.
pub(crate) fn text_line(fields: &Map<String, Value>, style: impl Fn(&str, &str) -> String) -> String {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let time = text("ts").split(['.', 'Z']).next().unwrap_or_default().replace('T', " ");
    let level = match text("level") {
        "warning" => style("warning", "33"),
        "error" => style("error", "1;31"),
        other => style(other, "2"),
    };
    let rest = fields.iter().filter(|(name, _)| !["ts", "level", "event", "nodeId"].contains(&name.as_str()));
    let rest = rest.filter(|(_, value)| !value.is_null()).map(|(name, value)| match value {
        Value::String(text) if text.chars().all(|c| !c.is_whitespace() && !c.is_control()) => {
            format!("{name}={}", bounded(text))
        }
        Value::String(text) => format!("{name}={}", json!(bounded(text))),
        value => format!("{name}={value}"),
    });
    let rest = rest.collect::<Vec<_>>().join(" ");
    format!("{}  {level}  {}  {rest}", style(&time, "2"), style(text("event"), "1")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_line_quotes_what_could_break_the_line() {
        let fields = json!({
            "ts": "2026-01-31T12:00:00.123Z", "level": "warning", "event": "lost", "nodeId": "n",
            "reason": "a\nb\u{1b}[31m", "in": 3, "none": null, "plain": "x",
        });
        assert_eq!(
            text_line(fields.as_object().unwrap(), |text, _| text.to_owned()),
            r#"2026-01-31 12:00:00  warning  lost  reason="a\nb\u001b[31m" in=3 plain=x"#
        );
    }
}
