//! Turns recorded calls into a process: it finds parameters and dependencies without a model, so that the same calls always
//! make the same process.

use std::collections::BTreeSet;

use gantry_agent::{RecordedCall, RecordedCalls};
use gantry_protocol::{ParameterSource, PipelineParameter, ProcessStep};
use gantry_tool::Masker;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::pipelines::template;

/// The most calls of one process.
pub(super) const MAX_CALLS: usize = 200;
/// What the masker writes in place of a secret.
const MASK: &str = "[masked]";
/// Shorter values of a user's message are too common to be parameters.
const SHORTEST_VALUE: usize = 3;
/// Shorter results are too common to be dependencies.
const SHORTEST_RESULT: usize = 8;
/// A date further away is fixed.
const MAX_DAYS: i32 = 366;
const DATE_CHARS: usize = 10;
/// How deep results are searched.
const MAX_DEPTH: usize = 4;
const DESCRIPTION_CHARS: usize = 80;

/// Tools that do not belong to the work itself.
const LEFT_OUT: [&str; 6] =
    ["ask_user", "plan_task", "run_pipeline", "capture_process", "promote_process", "tool_search"];
const MEMORY: &str = "memory_";

/// The stored part of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Recording {
    pub(super) steps: Vec<ProcessStep>,
    pub(super) parameters: Vec<PipelineParameter>,
}

/// Makes a process of recorded calls.
pub(super) fn capture(recorded: RecordedCalls, masker: &Masker, now: i64, zone: &TimeZone) -> Recording {
    let is_work = |call: &RecordedCall| {
        !call.failed && !LEFT_OUT.contains(&call.tool.as_str()) && !call.tool.starts_with(MEMORY)
    };
    let mut calls: Vec<RecordedCall> = recorded.calls.into_iter().filter(is_work).collect();
    for call in &mut calls {
        masker.mask_names_and_values(&mut call.input);
        masker.mask_text(&mut call.result);
    }
    let today = Timestamp::from_millisecond(now).map(|now| now.to_zoned(zone.clone()).date());
    let mut finder = Finder {
        messages: recorded.messages,
        today: today.ok(),
        results: Vec::new(),
        parameters: Vec::new(),
        used: BTreeSet::new(),
    };
    let mut steps = Vec::with_capacity(calls.len());
    for (index, call) in calls.iter().enumerate() {
        finder.used = order_before(index, &calls);
        let input = finder.input(&call.input, "");
        let depends_on = finder.used.iter().map(|before| before + 1).collect();
        let description = describe(&call.tool, &call.input);
        steps.push(ProcessStep { order: index + 1, tool: call.tool.clone(), input, description, depends_on });
        finder.results.push(parts(&call.result));
    }
    Recording { steps, parameters: finder.parameters.into_iter().map(|known| known.parameter).collect() }
}

/// The calls that have to come before this one: a call that changes something keeps its place, and others read after it.
fn order_before(index: usize, calls: &[RecordedCall]) -> BTreeSet<usize> {
    let last_change = calls[..index].iter().rposition(|call| !call.read_only);
    match (calls[index].read_only, last_change) {
        (true, change) => change.into_iter().collect(),
        (false, change) => (change.unwrap_or(0)..index).collect(),
    }
}

/// Texts of a result that a later input may contain, with their names in a template. The longest is first.
fn parts(result: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if result.chars().count() >= SHORTEST_RESULT {
        found.push((result.to_owned(), "result".to_owned()));
    }
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str::<Value>(result) {
        inner_parts(&value, "result", 0, &mut found);
    }
    found.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
    found
}

fn inner_parts(value: &Value, name: &str, depth: usize, found: &mut Vec<(String, String)>) {
    let fits =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    match value {
        Value::String(text) if text.chars().count() >= SHORTEST_RESULT => {
            found.push((text.clone(), name.to_owned()));
        }
        Value::Object(fields) if depth < MAX_DEPTH => {
            for (field, value) in fields.iter().filter(|(field, _)| fits(field)) {
                inner_parts(value, &format!("{name}.{field}"), depth + 1, found);
            }
        }
        Value::Array(items) if depth < MAX_DEPTH => {
            for (index, value) in items.iter().enumerate() {
                inner_parts(value, &format!("{name}.{index}"), depth + 1, found);
            }
        }
        _ => {}
    }
}

/// Finds parameters and dependencies in the inputs of calls.
struct Finder {
    messages: Vec<String>,
    today: Option<Date>,
    /// The texts of the results so far, by call.
    results: Vec<Vec<(String, String)>>,
    parameters: Vec<Known>,
    /// The calls that the present call depends on.
    used: BTreeSet<usize>,
}

/// A parameter and the value that it stands for.
struct Known {
    parameter: PipelineParameter,
    /// `None` for a secret, which is not known.
    value: Option<String>,
}

impl Finder {
    fn input(&mut self, value: &Value, field: &str) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text, field)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.input(item, field)).collect()),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), self.input(value, name)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    fn text(&mut self, text: &str, field: &str) -> String {
        if text.contains(MASK) {
            return self.parameter(field, None, "string", ParameterSource::UserInput, None);
        }
        if let Some(replaced) = self.earlier_result(text) {
            return replaced;
        }
        let is_users = |message: &String| message.contains(text);
        if text.chars().count() >= SHORTEST_VALUE
            && parse_date(text).is_none()
            && self.messages.iter().any(is_users)
        {
            let default = Some(json!(text));
            return self.parameter(field, Some(text), "string", ParameterSource::UserInput, default);
        }
        self.dates(text)
    }

    /// Replaces an earlier result in a text. The latest call wins, then its longest text.
    fn earlier_result(&mut self, text: &str) -> Option<String> {
        for (index, parts) in self.results.iter().enumerate().rev() {
            if let Some((part, name)) = parts.iter().find(|(part, _)| text.contains(part.as_str())) {
                self.used.insert(index);
                let (before, after) = text.split_once(part.as_str())?;
                let name = format!("{{{{step-{}.{name}}}}}", index + 1);
                return Some(format!("{}{name}{}", template::escaped(before), template::escaped(after)));
            }
            // The same text without the space around it is a dependency, but its replay would differ.
            let is_inside = |(part, _): &(String, String)| {
                part.trim().chars().count() >= SHORTEST_RESULT && text.contains(part.trim())
            };
            if parts.iter().any(is_inside) {
                self.used.insert(index);
            }
        }
        None
    }

    /// Replaces dates in a text.
    fn dates(&mut self, text: &str) -> String {
        let (mut replaced, mut rest) = (String::new(), text);
        while let Some((at, date, days)) = self.next_date(rest) {
            replaced.push_str(&template::escaped(&rest[..at]));
            let source = ParameterSource::RelativeDate;
            replaced.push_str(&self.parameter("date", Some(&date), "date", source, Some(json!(days))));
            rest = &rest[at + DATE_CHARS..];
        }
        replaced.push_str(&template::escaped(rest));
        replaced
    }

    /// Finds the next date that is near today: its place, its text and the days between.
    fn next_date(&self, text: &str) -> Option<(usize, String, i32)> {
        let today = self.today?;
        let is_digit =
            |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
        (0..text.len().saturating_sub(DATE_CHARS - 1)).find_map(|at| {
            let found = text.get(at..at + DATE_CHARS)?;
            let date = parse_date(found)?;
            let days = (date - today).get_days();
            let is_alone = !is_digit(at.checked_sub(1)) && !is_digit(Some(at + DATE_CHARS));
            (is_alone && days.abs() <= MAX_DAYS).then(|| (at, found.to_owned(), days))
        })
    }

    /// Returns the template of a parameter for a value. Equal values share a parameter.
    fn parameter(
        &mut self,
        field: &str,
        value: Option<&str>,
        kind: &str,
        source: ParameterSource,
        default: Option<Value>,
    ) -> String {
        let same = |known: &&Known| {
            value.is_some() && known.value.as_deref() == value && known.parameter.source == source
        };
        let name = match self.parameters.iter().find(same) {
            Some(known) => known.parameter.name.clone(),
            None => {
                let name = self.free_name(field);
                let parameter =
                    PipelineParameter { name: name.clone(), kind: kind.to_owned(), source, default };
                self.parameters.push(Known { parameter, value: value.map(str::to_owned) });
                name
            }
        };
        format!("{{{{params.{name}}}}}")
    }

    fn free_name(&self, field: &str) -> String {
        let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let name: String = field.chars().take(40).map(fits).collect();
        let name = if name.is_empty() { "value".to_owned() } else { name };
        let is_free = |name: &String| !self.parameters.iter().any(|known| known.parameter.name == *name);
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
    }
}

/// Parses `YYYY-MM-DD` and nothing else.
fn parse_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    let has_shape = bytes.len() == DATE_CHARS
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if has_shape { text.parse().ok() } else { None }
}

/// A plain description: the tool and its first text.
fn describe(tool: &str, input: &Value) -> String {
    let first = input.as_object().and_then(|fields| fields.values().find_map(Value::as_str));
    let Some(first) = first else { return tool.to_owned() };
    let line: String =
        first.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DESCRIPTION_CHARS).collect();
    format!("{tool}: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, input: Value, result: &str, read_only: bool) -> RecordedCall {
        RecordedCall { tool: tool.into(), input, result: result.into(), failed: false, read_only }
    }

    fn captured(calls: Vec<RecordedCall>, messages: &[&str]) -> Recording {
        let now = "2026-03-01T23:30:00Z".parse::<Timestamp>().unwrap().as_millisecond();
        let messages = messages.iter().map(|&text| text.to_owned()).collect();
        let masker = Masker::new(["hunter2-hunter2".to_owned()]);
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        capture(RecordedCalls { calls, messages }, &masker, now, &berlin)
    }

    #[test]
    fn only_successful_work_is_recorded() {
        let failed = RecordedCall { failed: true, ..call("Bash", json!({}), "", false) };
        let names =
            ["memory_store", "ask_user", "plan_task", "run_pipeline", "capture_process", "promote_process"];
        let mut calls: Vec<_> = names.iter().map(|name| call(name, json!({}), "", true)).collect();
        calls.extend([failed, call("Read", json!({"path": "a"}), "x", true)]);
        let found = captured(calls, &[]);
        assert_eq!(found.steps.len(), 1);
        assert_eq!((found.steps[0].order, found.steps[0].description.as_str()), (1, "Read: a"));
    }

    #[test]
    fn values_of_the_user_dates_and_results_become_templates() {
        let found = captured(
            vec![
                call("web_research", json!({"query": "rust news", "n": 3}), "the long result", true),
                call(
                    "write_file",
                    json!({"path": "/w/2026-03-02-{{x}}.md", "content": "# the long result\n2026-03-02 2026-03-01"}),
                    "ok",
                    false,
                ),
                call("Read", json!({"path": "/w/fixed"}), "{\"content\": \"inner text\"}", true),
                call("Write", json!({"path": "rust news", "content": "inner text"}), "done", false),
            ],
            &["please find rust news"],
        );
        let inputs: Vec<&Value> = found.steps.iter().map(|step| &step.input).collect();
        assert_eq!(*inputs[0], json!({"query": "{{params.query}}", "n": 3}));
        assert_eq!(inputs[1]["path"], "/w/{{params.date}}-\\{{x}}.md");
        assert_eq!(inputs[1]["content"], "# {{step-1.result}}\n2026-03-02 2026-03-01");
        assert_eq!(*inputs[2], json!({"path": "/w/fixed"}));
        assert_eq!(*inputs[3], json!({"path": "{{params.query}}", "content": "{{step-3.result.content}}"}));
        let depends: Vec<&[usize]> = found.steps.iter().map(|step| step.depends_on.as_slice()).collect();
        assert_eq!(depends, [&[][..], &[1], &[2], &[2, 3]]);
        let parameters = serde_json::to_value(&found.parameters).unwrap();
        assert_eq!(
            parameters,
            json!([
                {"name": "query", "type": "string", "source": "user_input", "default": "rust news"},
                {"name": "date", "type": "date", "source": "relative_date", "default": 0},
            ])
        );
    }

    #[test]
    fn secrets_are_masked_and_become_parameters_without_a_default() {
        let found = captured(
            vec![call(
                "Bash",
                json!({"command": "curl -H hunter2-hunter2", "env": {"API_TOKEN": "abc"}}),
                "hunter2-hunter2",
                false,
            )],
            &["use hunter2-hunter2"],
        );
        let text = serde_json::to_string(&found).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("abc"), "{text}");
        assert_eq!(found.steps[0].input["command"], "{{params.command}}");
        assert!(found.parameters.iter().all(|parameter| parameter.default.is_none()), "{text}");
        assert_eq!(found.parameters.len(), 2, "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn calls_that_change_something_keep_their_order() {
        let found = captured(
            vec![
                call("Read", json!({"path": "a"}), "1", true),
                call("Read", json!({"path": "b"}), "2", true),
                call("Bash", json!({"command": "x"}), "3", false),
                call("Read", json!({"path": "c"}), "4", true),
                call("Bash", json!({"command": "y"}), "5", false),
            ],
            &[],
        );
        let depends: Vec<&[usize]> = found.steps.iter().map(|step| step.depends_on.as_slice()).collect();
        assert_eq!(depends, [&[][..], &[], &[1, 2], &[3], &[3, 4]]);
    }

    #[test]
    fn far_and_impossible_dates_stay() {
        let text = "2020-01-01 2026-02-30 12026-03-02 2026-03-021 x2026-03-05";
        let found = captured(vec![call("Bash", json!({"command": text}), "", false)], &[]);
        assert_eq!(
            found.steps[0].input["command"],
            "2020-01-01 2026-02-30 12026-03-02 2026-03-021 x{{params.date}}"
        );
        assert_eq!(found.parameters[0].default, Some(json!(3)));
    }
}
