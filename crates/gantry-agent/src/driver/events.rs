//! Events of a session: which event a journal entry publishes, and what is logged about it.

use gantry_protocol::SessionEvent;
use gantry_tool::Gate;

use crate::context::shorten;
use crate::entry::{CommandEnd, End, Entry};
use crate::flow;
use crate::state::{Addressee, INTERRUPTED, State};

/// Characters of a result in an event.
const RESULT_CHARS: usize = 2_000;

/// Returns the event of an entry. `state` is the state before the entry.
pub(super) fn event_of(gate: &Gate, state: &State, entry: &Entry) -> Option<SessionEvent> {
    let run = || state.run.as_ref().map(|run| run.id.clone()).unwrap_or_default();
    let ended = |call: &str, is_error, command: Option<CommandEnd>, result: String| {
        let tool = state.call(call).map(|call| call.name.clone()).unwrap_or_default();
        let failed = is_error || command.is_some_and(|command| command.failed);
        let exit_code = command.and_then(|command| command.exit_code);
        SessionEvent::ToolEnd { run: run(), call: call.to_owned(), tool, is_error, failed, exit_code, result }
    };
    Some(match entry {
        Entry::Notice(notice) => SessionEvent::Notice {
            id: notice.id.clone(),
            from: notice.from.clone(),
            text: notice.text.clone(),
        },
        Entry::RunBegun { run, .. } => SessionEvent::RunBegun { run: run.clone() },
        Entry::CallBegun { call, .. } => {
            let known = state.call(call)?;
            let (tool, input) = (known.name.clone(), gate.presentable(&known.input));
            SessionEvent::ToolStart { run: run(), call: call.clone(), tool, input }
        }
        Entry::CallEnded { call, result } => {
            let texts = result.content.iter().filter_map(|block| match block {
                gantry_model::Block::Text { text } => Some(text.as_str()),
                _ => None,
            });
            let text = texts.collect::<Vec<_>>().join("\n");
            let shown = shorten(&flow::without_fence(&text), RESULT_CHARS, "");
            ended(call, result.is_error, result.command, shown)
        }
        Entry::CallInterrupted { call } => ended(call, true, None, INTERRUPTED.to_owned()),
        Entry::ApprovalAsked(question) => SessionEvent::Approval { run: run(), question: question.clone() },
        Entry::ApprovalAnswered { question, answer, by, .. } => SessionEvent::ApprovalAnswered {
            run: run(),
            question: question.clone(),
            answer: answer.clone(),
            by: by.clone(),
        },
        Entry::UserAsked(asked) => SessionEvent::Asked { run: run(), asked: asked.clone() },
        Entry::UserAnswered { question, answers, by, .. } => SessionEvent::AskedAnswered {
            run: run(),
            question: question.clone(),
            answers: answers.clone(),
            by: by.clone(),
        },
        Entry::Compacted { replaced, by_model, .. } => {
            SessionEvent::Compacted { replaced: *replaced, by_model: *by_model }
        }
        Entry::Reset { why, .. } => SessionEvent::Reset { why: why.clone() },
        Entry::RunEnded { end } => {
            let run = state.run.as_ref()?;
            final_event(&run.id, end.clone(), run.answers.clone())
        }
        _ => return None,
    })
}

/// Returns the final event of a run's messages.
pub(super) fn final_event(run: &str, end: End, messages: Vec<Addressee>) -> SessionEvent {
    let run = run.to_owned();
    match end {
        End::Final { text } => SessionEvent::Final { run, text, messages },
        End::Stopped { by } => SessionEvent::Stopped { run, by, messages },
        End::Failed { error } => SessionEvent::Error { run: Some(run), message: error, messages },
    }
}

/// Logs the start and the end of a run.
pub(super) fn log(event: &SessionEvent, session: &str) {
    match event {
        SessionEvent::RunBegun { run } => tracing::info!(run, sessionKey = session, "run_started"),
        SessionEvent::Final { run, .. } => tracing::info!(run, sessionKey = session, "run_ended"),
        SessionEvent::Stopped { run, by, .. } => {
            tracing::info!(run, sessionKey = session, stoppedBy = by, "run_ended");
        }
        SessionEvent::Error { run, message, .. } => {
            tracing::warn!(run = run.as_deref(), sessionKey = session, error = message, "run_failed");
        }
        _ => {}
    }
}

/// Whether the event asks a question or reports an answer.
pub(super) fn is_question(event: &SessionEvent) -> bool {
    matches!(
        event,
        SessionEvent::Approval { .. }
            | SessionEvent::ApprovalAnswered { .. }
            | SessionEvent::Asked { .. }
            | SessionEvent::AskedAnswered { .. }
    )
}
