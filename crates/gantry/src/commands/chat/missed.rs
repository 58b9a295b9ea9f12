//! Shows what the journal recorded while the connection was lost.

use anyhow::Result;
use gantry_protocol::{
    History, HistoryBlock, HistoryEntry, HistoryEvent, HistoryParams, ListenResult, RunEnd, SessionParams,
    SessionStatus, method,
};

use super::Chat;
use crate::output::Tone;

/// Events that are read. More of them are counted only.
const MAX_READ: u32 = 200;

impl Chat<'_> {
    /// Remembers how far the journal is shown.
    pub(super) async fn remember_shown(&mut self) {
        let params = SessionParams { session_key: self.connection.key.clone() };
        if let Ok(status) = self.connection.request::<SessionStatus>(method::SESSIONS_STATUS, &params).await {
            self.shown_events = status.events;
            self.answers.clear();
        }
    }

    /// Shows what happened since the journal's last event that was shown. The outcome of an own message that is still open is
    /// requested separately.
    pub(super) async fn show_missed(&mut self, status: &ListenResult, has_open: bool) -> Result<()> {
        let ListenResult::Known(status) = status else { return Ok(()) };
        let from = self.shown_events;
        if status.events <= from {
            return Ok(());
        }
        let params = HistoryParams {
            before: None,
            session_key: self.connection.key.clone(),
            from: Some(from),
            limit: Some(MAX_READ),
        };
        let history: History = self.connection.request(method::SESSIONS_HISTORY, &params).await?;
        let shown = missed(&history.events, &self.own, &self.answers, has_open);
        if !shown.is_empty() {
            let last = history.events.last().map_or(from, |event| event.seq);
            self.screen
                .note(&format!("while the connection was lost (journal {from} to {last}):"), Tone::Quiet);
            for Missed { text, is_answer } in shown {
                match is_answer {
                    true => self.screen.whole_answer(&text),
                    false => self.screen.note(&text, Tone::Quiet),
                }
            }
            if history.next.is_some() {
                let rest = format!("`gantry sessions show {}` has the rest", self.connection.key);
                self.screen.note(&rest, Tone::Quiet);
            }
        }
        self.shown_events = status.events;
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Missed {
    text: String,
    is_answer: bool,
}

/// Returns what to show of these events. `own` are the messages that were typed here, `answers` those that were shown.
fn missed(events: &[HistoryEvent], own: &[String], answers: &[String], has_open: bool) -> Vec<Missed> {
    let mut shown = Vec::new();
    let note = |text: String| Missed { text, is_answer: false };
    let mut calls = 0;
    for event in events {
        match event.entry() {
            HistoryEntry::MessageIn { text, .. } if own.contains(&text) => {}
            HistoryEntry::MessageIn { from, text } => shown.push(note(format!("{from}: {text}"))),
            HistoryEntry::Notice { from, text } => shown.push(note(format!("notice from {from}: {text}"))),
            HistoryEntry::CallEnded { .. } | HistoryEntry::CallInterrupted { .. } => calls += 1,
            // The outcome of an own message is shown when it is known.
            HistoryEntry::Replied { reply } if !has_open => {
                let texts = reply.message.content.iter().filter_map(|block| match block {
                    HistoryBlock::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                let text = texts.collect::<Vec<_>>().join("\n");
                if !text.trim().is_empty() && !answers.contains(&text) {
                    shown.push(Missed { text, is_answer: true });
                }
            }
            HistoryEntry::RunEnded { end: RunEnd::Failed { error } } if !has_open => {
                shown.push(note(format!("the run failed: {error}")));
            }
            HistoryEntry::Reset { why } => shown.push(note(format!("started over: {why}"))),
            _ => {}
        }
    }
    if calls > 0 {
        let calls =
            if calls == 1 { "1 tool call ended".to_owned() } else { format!("{calls} tool calls ended") };
        shown.insert(0, note(calls));
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn missed_events_are_shown_once() {
        let event = |data: Value| HistoryEvent { seq: 0, at: 0, kind: String::new(), data };
        let events = [
            event(json!({"kind": "message_in", "from": "operator", "text": "mine"})),
            event(json!({"kind": "message_in", "from": "telegram:ann", "text": "hers"})),
            event(json!({"kind": "call_ended", "result": {"content": []}})),
            event(
                json!({"kind": "replied", "reply": {"message": {"content": [{"type": "text", "text": "done"}]}}}),
            ),
            event(
                json!({"kind": "replied", "reply": {"message": {"content": [{"type": "text", "text": "shown before"}]}}}),
            ),
            event(json!({"kind": "notice", "from": "cron:a", "text": "ran"})),
        ];
        let texts = |has_open| {
            let shown = missed(&events, &["mine".to_owned()], &["shown before".to_owned()], has_open);
            shown.into_iter().map(|missed| missed.text).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(false),
            ["1 tool call ended", "telegram:ann: hers", "done", "notice from cron:a: ran"]
        );
        assert_eq!(texts(true), ["1 tool call ended", "telegram:ann: hers", "notice from cron:a: ran"]);
    }
}
