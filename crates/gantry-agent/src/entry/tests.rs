use gantry_protocol::GrantReach;
use serde_json::{Value, json};

use super::*;

/// A journal as the previous version wrote it: one entry of each kind.
const STORED: &str = include_str!("tests/stored_journal.jsonl");

fn stored() -> Vec<Value> {
    STORED.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn stored_journal_is_read_and_written_unchanged() {
    let mut kinds = Vec::new();
    for value in stored() {
        let entry: Entry =
            serde_json::from_value(value.clone()).unwrap_or_else(|err| panic!("{err}: {value}"));
        assert_eq!(value["kind"], entry.kind(), "the column and the JSON have the same kind");
        assert_eq!(serde_json::to_value(&entry).unwrap(), value);
        kinds.push(entry.kind());
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 23, "one entry of each kind: {kinds:?}");
}

#[test]
fn stored_journal_folds_to_the_same_state() {
    let entries = stored().into_iter().map(|value| serde_json::from_value(value).unwrap());
    let before_reset = entries.take_while(|entry| !matches!(entry, Entry::Reset { .. }));
    let state = State::fold(before_reset);
    assert_eq!(state.child.as_ref().map(|child| child.name.as_str()), Some("scout"));
    assert_eq!(state.grants.len(), 1, "the stored \"always\" is in force");
    assert_eq!((state.runs, state.has_work(), state.ended.len()), (1, false, 1));
    assert_eq!(state.model.as_deref(), Some("lab/qwen"));
}

#[test]
fn stored_questions_and_decisions_have_the_form_of_the_wire() {
    let question = stored().into_iter().find(|entry| entry["kind"] == "approval_asked").unwrap();
    let asked: Question = serde_json::from_value(question).unwrap();
    assert_eq!((asked.tool.as_str(), asked.exact.as_str()), ("local__Bash", "e1"));
    let always = ApprovalDecision::Always {
        scope: GrantScope::Tool,
        until: 7,
        reach: GrantReach::Session,
        grant: None,
    };
    assert_eq!(json!(always), json!({"answer": "always", "scope": "tool", "until": 7}));
}
