//! Filters a node's log for its reader. The operator sees everything; other callers see their own calls in full and other
//! calls without content.
//!
//! A line about a call contains its input, such as commands. Only its caller and the operator may see that.

use gantry_tool::Principal;
use serde_json::{Map, Value};

/// Replaces values of other callers.
const NOT_YOURS: &str = "[not yours]";

/// Fields with a caller's data. An error may quote a part of it.
const CALLER_FIELDS: [&str; 6] = ["input", "error", "source", "destination", "sessionKey", "stoppedBy"];

/// Events that may quote a caller without naming one.
const QUOTING_EVENTS: [&str; 3] = ["call", "panic", "internal_error"];

/// Events about the gateway itself, which only the operator sees in full: addresses and errors of servers.
const OPERATOR_EVENTS: [&str; 4] = ["login_denied", "mcp_server_failed", "mcp_server_lost", "warning"];

/// Fields of such events that everyone sees.
const SHOWN_TO_ALL: [&str; 4] = ["ts", "level", "event", "nodeId"];

/// Replaces a line that is not a JSON object, because its caller is unknown.
const NOT_A_LINE: &str = r#"{"event":"[a line that cannot be read; the operator sees it]"}"#;

pub(crate) fn shown_to(reader: &Principal, lines: Vec<String>) -> Vec<String> {
    if reader.is_operator() {
        return lines;
    }
    let reader = reader.to_string();
    lines.into_iter().map(|line| shown(&reader, line)).collect()
}

fn shown(reader: &str, line: String) -> String {
    let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(&line) else {
        return NOT_A_LINE.to_owned();
    };
    if fields.get("principal").is_some_and(|principal| principal == reader) {
        return line;
    }
    // Other events are the node's own and contain no caller's data.
    let event = fields.get("event").and_then(Value::as_str).unwrap_or_default().to_owned();
    if OPERATOR_EVENTS.contains(&event.as_str()) {
        fields.retain(|name, _| SHOWN_TO_ALL.contains(&name.as_str()));
        return Value::Object(fields).to_string();
    }
    let may_quote = QUOTING_EVENTS.contains(&event.as_str())
        || ["principal", "sessionKey"].iter().any(|name| fields.contains_key(*name));
    if !may_quote {
        return line;
    }
    // The name of an unknown tool is the caller's text.
    let refused = (event == "call_refused").then_some("tool");
    for field in CALLER_FIELDS.into_iter().chain(refused) {
        if let Some(said) = fields.get_mut(field) {
            *said = Value::from(NOT_YOURS);
        }
    }
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reader: Principal, line: &str, expected: &str) {
        assert_eq!(shown_to(&reader, vec![line.to_owned()]), [expected], "{reader}");
    }

    fn client(name: &str) -> Principal {
        Principal::Client { token: name.into() }
    }

    #[test]
    fn data_of_other_callers_is_hidden() {
        let line = r#"{"event":"call","principal":"client:ada","tool":"Bash","input":{"command":"x"}}"#;
        let masked = r#"{"event":"call","principal":"client:ada","tool":"Bash","input":"[not yours]"}"#;
        check(Principal::Operator, line, line);
        check(client("ada"), line, line);
        check(client("ad"), line, masked);
        check(Principal::Agent { id: "ada".into() }, line, masked);
        check(Principal::Mcp { client: "ada".into() }, line, masked);
        check(Principal::Scheduler, line, masked);
        check(
            client("bob"),
            r#"{"event":"call","principal":"operator","error":"no such file: secret"}"#,
            r#"{"event":"call","principal":"operator","error":"[not yours]"}"#,
        );
        check(
            client("bob"),
            r#"{"event":"run_failed","run":"r","sessionKey":"agent:main:main","error":"x"}"#,
            r#"{"event":"run_failed","run":"r","sessionKey":"[not yours]","error":"[not yours]"}"#,
        );
        check(
            client("bob"),
            r#"{"event":"transfer_started","principal":"operator","source":"a:/x"}"#,
            r#"{"event":"transfer_started","principal":"operator","source":"[not yours]"}"#,
        );
        check(client("bob"), r#"{"event":"call","input":7}"#, r#"{"event":"call","input":"[not yours]"}"#);
    }

    #[test]
    fn operator_events_are_reduced_for_others() {
        let denied = r#"{"ts":"now","level":"warn","event":"login_denied","address":"10.0.0.9"}"#;
        check(client("ada"), denied, r#"{"ts":"now","level":"warn","event":"login_denied"}"#);
        check(Principal::Operator, denied, denied);
        let refused = r#"{"event":"call_refused","principal":"client:eve","tool":"my secret"}"#;
        check(
            client("ada"),
            refused,
            r#"{"event":"call_refused","principal":"client:eve","tool":"[not yours]"}"#,
        );
    }

    #[test]
    fn own_events_are_shown_and_broken_lines_hidden() {
        let own = r#"{"ts":"now","event":"lost","error":"no route"}"#;
        check(client("ada"), own, own);
        for broken in ["", "plain", r#"{"event":"call","input":{"command":"x"#, "[1]"] {
            check(client("ada"), broken, NOT_A_LINE);
            check(Principal::Operator, broken, broken);
        }
    }
}
