//! A tool's result as people read it: the output of a command as it is, a file's lines, matches, tables, differences.

use gantry_flow::relative_text;
use serde_json::{Map, Value};

use crate::table::Table;

/// Fields that say nothing to a person.
const INTERNAL: [&str; 3] = ["tag", "tail", "ok"];
/// Fields whose text is the result itself, most specific first.
const CONTENT: [&str; 6] = ["output", "stdout", "content", "diff", "text", "markdown"];
const MAX_COLUMNS: usize = 6;
const DEEPEST: usize = 6;

/// A result as text, and what a person has to know beside it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Readable {
    pub(super) text: String,
    pub(super) notes: Vec<String>,
    /// Why a command counts as failed.
    pub(super) failure: Option<String>,
}

/// Returns the readable form of a result. `now` is in milliseconds.
pub(super) fn readable(result: &Value, width: usize, now: i64) -> Readable {
    let result = unwrapped(result);
    let Value::Object(fields) = result else {
        return Readable { text: block(result, width, now, 0), ..Readable::default() };
    };
    if let Some(machines) = machines(fields) {
        return several(machines, width, now);
    }
    let mut shown = Readable { failure: failure(fields), ..Readable::default() };
    let content = CONTENT.iter().find_map(|key| fields.get(*key)?.as_str());
    if let Some(content) = content {
        shown.text = content.to_owned();
        if let Some(stderr) = fields.get("stderr").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            shown.notes.push(stderr.trim_end().to_owned());
        }
        if content.is_empty() && shown.failure.is_none() && shown.notes.is_empty() {
            shown.notes.push("no output".to_owned());
        }
        shown.notes.extend(session(fields));
    } else if let Some(Value::Array(matches)) = fields.get("matches") {
        shown.text = matched(matches, width, now);
        if matches.is_empty() {
            shown.notes.push("no matches".to_owned());
        }
    } else {
        shown.text = block(result, width, now, 0);
    }
    if fields.get("truncated") == Some(&Value::Bool(true)) {
        let more = match fields.get("nextOffset").or(fields.get("next")).and_then(Value::as_i64) {
            Some(next) => format!("there is more; continue with offset={next}"),
            None => "the result is incomplete; there is more".to_owned(),
        };
        shown.notes.push(more);
    } else if let (Some(lines), Some(total)) =
        (fields.get("lines").and_then(Value::as_u64), fields.get("totalLines").and_then(Value::as_u64))
        && lines < total
    {
        shown.notes.push(format!("{lines} of {total} lines"));
    }
    for key in ["hint", "warning", "sandboxHint"] {
        shown
            .notes
            .extend(fields.get(key).and_then(Value::as_str).filter(|_| content.is_some()).map(str::to_owned));
    }
    shown
}

/// Returns the exit code that a command ended with: its own, 128 and the signal's number, or 124 after its timeout.
pub(super) fn exit_code(result: &Value) -> Option<u8> {
    let fields = unwrapped(result).as_object()?;
    if let Some(machines) = machines(fields) {
        // Of several machines, the first failure counts.
        let codes = machines.iter().map(|one| match one["ok"] == true {
            true => exit_code(&one["result"]).unwrap_or(0),
            false => 1,
        });
        return Some(codes.into_iter().find(|code| *code != 0).unwrap_or(0));
    }
    if fields.get("timedOut") == Some(&Value::Bool(true)) {
        return Some(124);
    }
    if let Some(code) = fields.get("exitCode").and_then(Value::as_i64) {
        return Some(u8::try_from(code).unwrap_or(1));
    }
    let signal = fields.get("signal")?.as_str()?;
    const SIGNALS: [(&str, u8); 7] = [
        ("SIGHUP", 1),
        ("SIGINT", 2),
        ("SIGQUIT", 3),
        ("SIGABRT", 6),
        ("SIGKILL", 9),
        ("SIGSEGV", 11),
        ("SIGTERM", 15),
    ];
    Some(SIGNALS.iter().find(|(name, _)| *name == signal).map_or(1, |(_, number)| 128 + number))
}

/// Native tools wrap their results in `{"ok": true, "result": …}`.
fn unwrapped(result: &Value) -> &Value {
    match result.get("result") {
        Some(inner) if result["ok"] == true => inner,
        _ => result,
    }
}

/// The results of a call on several machines.
fn machines(fields: &Map<String, Value>) -> Option<&Vec<Value>> {
    let results = fields.get("results")?.as_array()?;
    let is_machine = |one: &Value| one["node"].is_string() && one["ok"].is_boolean();
    (fields.len() == 1 && results.iter().all(is_machine)).then_some(results)
}

fn several(machines: &[Value], width: usize, now: i64) -> Readable {
    let mut all = Readable::default();
    for one in machines {
        let node = one["node"].as_str().unwrap_or_default();
        all.text.push_str(&format!("── {node}\n"));
        match one["ok"] == true {
            true => {
                let shown = readable(&one["result"], width, now);
                all.text.push_str(&ended(&shown.text));
                all.notes.extend(shown.notes.into_iter().map(|note| format!("{node}: {note}")));
                all.notes.extend(shown.failure.map(|why| format!("{node}: {why}")));
            }
            false => {
                let why = one["error"]["message"].as_str().unwrap_or("failed");
                all.text.push_str(&format!("error: {why}\n"));
            }
        }
    }
    all
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Why a command failed.
fn failure(fields: &Map<String, Value>) -> Option<String> {
    if fields.get("timedOut") == Some(&Value::Bool(true)) {
        return Some("the command timed out".to_owned());
    }
    let signal = fields.get("signal").and_then(Value::as_str);
    if let Some(signal) = signal.filter(|_| fields.contains_key("exitCode")) {
        return Some(format!("the command was ended by {signal}"));
    }
    let code = fields.get("exitCode").and_then(Value::as_i64).filter(|code| *code != 0)?;
    Some(format!("exit code {code}"))
}

/// Says that a command goes on in the background.
fn session(fields: &Map<String, Value>) -> Option<String> {
    let id = fields.get("sessionId")?.as_str()?;
    let is_running = fields.get("status").and_then(Value::as_str) == Some("running");
    is_running.then(|| {
        format!("it goes on in the background; see it with `gantry call Process action=poll sessionId={id}`")
    })
}

/// Matches of a search: paths, or lines with their place.
fn matched(matches: &[Value], width: usize, now: i64) -> String {
    let mut text = String::new();
    for one in matches {
        let line = match (one, one["path"].as_str(), one["line"].as_u64()) {
            (Value::String(path), ..) => path.clone(),
            (_, Some(path), Some(number)) => {
                let found = one["content"].as_str().or(one["text"].as_str()).unwrap_or_default();
                format!("{path}:{number}: {found}")
            }
            _ => block(one, width, now, 0),
        };
        text.push_str(&ended(&line));
    }
    text
}

/// Any value: fields as `name: value`, lists of objects as tables.
fn block(value: &Value, width: usize, now: i64, depth: usize) -> String {
    match value {
        Value::Array(items) if items.is_empty() => "none\n".to_owned(),
        Value::Array(items) if items.iter().all(Value::is_object) && depth < DEEPEST => {
            table(items, width, now)
        }
        Value::Array(items) => items.iter().map(|item| format!("{}\n", scalar("", item, now))).collect(),
        Value::Object(fields) if depth < DEEPEST => {
            let wanted =
                fields.iter().filter(|(key, value)| !INTERNAL.contains(&key.as_str()) && !value.is_null());
            wanted.map(|(key, value)| field(key, value, width, now, depth)).collect()
        }
        other => format!("{}\n", scalar("", other, now)),
    }
}

fn field(key: &str, value: &Value, width: usize, now: i64, depth: usize) -> String {
    let is_flat = match value {
        Value::Array(items) => items.iter().all(|item| !item.is_object() && !item.is_array()),
        Value::String(text) => !text.trim_end().contains('\n'),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    };
    if is_flat {
        return format!("{key}: {}\n", scalar(key, value, now));
    }
    let inner = match value {
        Value::String(text) => text.clone(),
        other => block(other, width.saturating_sub(2), now, depth + 1),
    };
    let lines: String = inner.lines().map(|line| format!("  {line}\n")).collect();
    format!("{key}:\n{lines}")
}

fn table(items: &[Value], width: usize, now: i64) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for fields in items.iter().filter_map(Value::as_object) {
        let wanted = fields.iter().filter(|(key, value)| {
            !INTERNAL.contains(&key.as_str()) && !value.is_null() && !value.is_object()
        });
        for (key, _) in wanted {
            if !columns.contains(&key.as_str()) {
                columns.push(key);
            }
        }
    }
    let left_out = columns.len().saturating_sub(MAX_COLUMNS);
    columns.truncate(MAX_COLUMNS);
    let mut table = Table::new(columns.iter().copied());
    for item in items {
        table.row(columns.iter().map(|key| scalar(key, &item[*key], now)));
    }
    let mut text: String = table.lines(width).iter().map(|line| format!("{line}\n")).collect();
    if left_out > 0 {
        text.push_str(&format!("({left_out} more columns; --json shows them)\n"));
    }
    text
}

/// A value on one line. Times are relative.
fn scalar(key: &str, value: &Value, now: i64) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_i64().filter(|at| is_time(key, *at)) {
            Some(at) => relative_text(at, now),
            None => number.to_string(),
        },
        Value::Array(items) => items.iter().map(|item| scalar("", item, now)).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns whether a number is a time in milliseconds: by its name, and between 2001 and 2100.
fn is_time(key: &str, at: i64) -> bool {
    let named =
        key.ends_with("At") || matches!(key, "at" | "created" | "modified" | "lastActivity" | "expires");
    named && (1_000_000_000_000..4_102_444_800_000).contains(&at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn shown(value: &Value) -> Readable {
        readable(value, 80, NOW)
    }

    #[test]
    fn command_shows_its_output_and_why_it_failed() {
        let ran = json!({"status": "failed", "exitCode": 3, "signal": null, "timedOut": false, "output": "a\nb\n",
            "tail": "b\n", "node": "local"});
        assert_eq!(shown(&ran).text, "a\nb\n");
        assert_eq!(shown(&ran).failure.as_deref(), Some("exit code 3"));
        assert_eq!(exit_code(&ran), Some(3));
        let quiet = json!({"exitCode": 0, "signal": null, "output": ""});
        assert_eq!(shown(&quiet).notes, ["no output"]);
        assert_eq!((shown(&quiet).failure, exit_code(&quiet)), (None, Some(0)));
        let killed = json!({"exitCode": null, "signal": "SIGKILL", "output": ""});
        assert_eq!(shown(&killed).failure.as_deref(), Some("the command was ended by SIGKILL"));
        assert_eq!(exit_code(&killed), Some(137));
        assert_eq!(exit_code(&json!({"exitCode": -1, "timedOut": true})), Some(124));
        let both = json!({"stdout": "out", "stderr": "err\n", "exitCode": 0});
        assert_eq!((shown(&both).text.as_str(), shown(&both).notes), ("out", vec!["err".to_owned()]));
        assert_eq!(exit_code(&json!({"path": "a"})), None);
    }

    #[test]
    fn results_of_several_machines_are_separate() {
        let all = json!({"results": [
            {"node": "a", "ok": true, "result": {"exitCode": 0, "output": "up"}},
            {"node": "b", "ok": true, "result": {"exitCode": 2, "output": "down\n"}},
            {"node": "c", "ok": false, "error": {"message": "c is offline"}},
        ]});
        assert_eq!(shown(&all).text, "── a\nup\n── b\ndown\n── c\nerror: c is offline\n");
        assert_eq!(shown(&all).notes, ["b: exit code 2"]);
        assert_eq!(exit_code(&all), Some(2));
    }

    #[test]
    fn files_matches_and_lists_are_lines() {
        let read =
            json!({"path": "/a", "content": "1\tone\n2\ttwo", "lines": 2, "tag": "x", "truncated": false});
        assert_eq!(shown(&read).text, "1\tone\n2\ttwo");
        let more = json!({"content": "x", "truncated": true, "nextOffset": 201});
        assert_eq!(shown(&more).notes, ["there is more; continue with offset=201"]);
        let grep =
            json!({"pattern": "x", "matches": [{"path": "/a", "line": 3, "content": "x y"}], "count": 1});
        assert_eq!(shown(&grep).text, "/a:3: x y\n");
        let glob = json!({"matches": ["/a", "/b"], "count": 2});
        assert_eq!(shown(&glob).text, "/a\n/b\n");
        assert_eq!(shown(&json!({"matches": []})).notes, ["no matches"]);
    }

    #[test]
    fn other_results_are_fields_and_tables() {
        let result = json!({"ok": true, "result": {"path": "/a", "bytes": 8, "tag": "t", "createdAt": NOW - 7_200_000}});
        assert_eq!(shown(&result).text, "path: /a\nbytes: 8\ncreatedAt: 2 hours ago\n");
        let list =
            json!({"jobs": [{"id": "a", "next": null, "on": true}, {"id": "bb", "on": false}], "none": []});
        assert_eq!(shown(&list).text, "jobs:\n  id  on\n  a   true\n  bb  false\nnone: \n");
        assert_eq!(shown(&json!([])).text, "none\n");
    }
}
