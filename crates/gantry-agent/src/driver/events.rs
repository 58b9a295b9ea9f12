//! What those who listen are told of the journal.

use gantry_tool::Gate;

use crate::context::shorten;
use crate::entry::{CommandEnd, End, Entry};
use crate::event::Event;
use crate::flow;
use crate::state::{Addressee, INTERRUPTED, State};

/// Of a result, for those who watch.
const SHOWN_RESULT: usize = 2_000;

/// What is told of an entry, seen from the state before it.
pub(super) fn event(gate: &Gate, state: &State, entry: &Entry) -> Option<Event> {
    let run = || state.run.as_ref().map(|run| run.id.clone()).unwrap_or_default();
    let ended = |call: &str, is_error, command: Option<CommandEnd>, result: String| {
        let tool = state.call(call).map(|call| call.name.clone()).unwrap_or_default();
        let failed = is_error || command.is_some_and(|command| command.failed);
        let exit_code = command.and_then(|command| command.exit_code);
        Event::ToolEnd { run: run(), call: call.to_owned(), tool, is_error, failed, exit_code, result }
    };
    Some(match entry {
        Entry::RunBegun { run, .. } => Event::RunBegun { run: run.clone() },
        Entry::CallBegun { call, .. } => {
            let known = state.call(call)?;
            let (tool, input) = (known.name.clone(), gate.presentable(&known.input));
            Event::ToolStart { run: run(), call: call.clone(), tool, input }
        }
        Entry::CallEnded { call, result } => {
            let texts = result.content.iter().filter_map(|block| match block {
                gantry_model::Block::Text { text } => Some(text.as_str()),
                _ => None,
            });
            let text = texts.collect::<Vec<_>>().join("\n");
            let shown = shorten(&flow::shown(&text), SHOWN_RESULT, "");
            ended(call, result.is_error, result.command, shown)
        }
        Entry::CallInterrupted { call } => ended(call, true, None, INTERRUPTED.to_owned()),
        Entry::ApprovalAsked(question) => Event::Approval { run: run(), question: question.clone() },
        Entry::ApprovalAnswered { question, answer, by, .. } => Event::ApprovalAnswered {
            run: run(),
            question: question.clone(),
            answer: answer.clone(),
            by: by.clone(),
        },
        Entry::UserAsked(asked) => Event::Asked { run: run(), asked: asked.clone() },
        Entry::UserAnswered { question, answers, by, .. } => Event::AskedAnswered {
            run: run(),
            question: question.clone(),
            answers: answers.clone(),
            by: by.clone(),
        },
        Entry::Compacted { replaced, by_model, .. } => {
            Event::Compacted { replaced: *replaced, by_model: *by_model }
        }
        Entry::Reset { why, .. } => Event::Reset { why: why.clone() },
        Entry::RunEnded { end } => {
            let run = state.run.as_ref()?;
            settled(&run.id, end.clone(), run.answers.clone())
        }
        _ => return None,
    })
}

pub(super) fn settled(run: &str, end: End, messages: Vec<Addressee>) -> Event {
    let run = run.to_owned();
    match end {
        End::Final { text } => Event::Final { run, text, messages },
        End::Stopped { by } => Event::Stopped { run, by, messages },
        End::Failed { error } => Event::Error { run: Some(run), message: error, messages },
    }
}
