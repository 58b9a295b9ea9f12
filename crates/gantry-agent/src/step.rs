//! What a session does next: a function without I/O from where it stands. The driver performs what it says, and writes
//! down what came of it.

use crate::context::Window;
use crate::entry::{CallResult, End, Entry};
use crate::state::{CallStatus, Phase, Run, State};

/// Bounds of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How often the model may be asked.
    pub(crate) requests: u32,
    pub(crate) window: Window,
}

/// Compactions in a row, because the conversation seems to fill the window.
const MAX_COMPACTIONS: u32 = 2;
/// Compactions in a row of a conversation that the model refuses. Each one assumes at most half the window of the one
/// before; the last one keeps the task alone.
pub(crate) const MAX_OVERFLOWS: u32 = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Nothing is to be done.
    Idle,
    /// Something is under way.
    Wait,
    /// Write this down, then look again.
    Record(Vec<Entry>),
    Ask,
    /// Run these calls, side by side.
    Call(Vec<String>),
    /// Make the conversation shorter first.
    Compact,
}

pub(crate) fn next(state: &State, limits: &Limits, now: i64) -> Step {
    let Some(run) = &state.run else {
        return match state.queue.front() {
            None => Step::Idle,
            // A run is named after the message it begins with: each begins at most one.
            Some(first) => {
                Step::Record(vec![Entry::RunBegun { run: first.id.clone(), at: now }, join(state)])
            }
        };
    };
    if let Some(by) = &run.stop {
        return ended(End::Stopped { by: by.clone() });
    }
    match &run.phase {
        Phase::Ready => ready(state, run, limits),
        Phase::Asking => Step::Wait,
        Phase::Calling(_) => calling(state),
        Phase::Answered(text) => ended(End::Final { text: text.clone() }),
        Phase::Failed { overflow: true, .. } if run.compactions < MAX_OVERFLOWS => Step::Compact,
        Phase::Failed { error, overflow: true } => {
            let reserved = limits.window.reserved;
            let error = format!(
                "{error}; not even the task alone fits, since the agent's prompt, its tools and the answer take about \
                 {reserved} tokens: use a model with a larger window, or give the agent fewer tools"
            );
            ended(End::Failed { error })
        }
        Phase::Failed { error, .. } => ended(End::Failed { error: error.clone() }),
    }
}

/// What has to be written down before anything else, when a process takes up a session that another one left.
pub(crate) fn recover(state: &State) -> Vec<Entry> {
    let lost = state.run.as_ref().is_some_and(|run| run.phase == Phase::Asking);
    let calls = state.calls().iter().filter_map(|call| match call.status {
        CallStatus::Begun { read_only: true, .. } => Some(Entry::CallAgain { call: call.id.clone() }),
        // It was still being asked about, so it had not begun.
        CallStatus::Begun { .. } if waits_for_answer(call) => {
            Some(Entry::CallAgain { call: call.id.clone() })
        }
        CallStatus::Begun { .. } => Some(Entry::CallInterrupted { call: call.id.clone() }),
        CallStatus::Waiting | CallStatus::Ended(_) => None,
    });
    lost.then_some(Entry::RequestLost).into_iter().chain(calls).collect()
}

/// Whether the call cannot have run: somebody was asked about it since it began, and has not said yes. A call that goes to several machines
/// is asked about one by one, so there a question says nothing of the others.
fn waits_for_answer(call: &crate::state::PendingCall) -> bool {
    let machines = call.input.get("node").and_then(serde_json::Value::as_str).unwrap_or_default();
    let one = machines != "*" && !machines.starts_with("tag:");
    let allowed = |asked: &crate::state::Asked| asked.answer.as_ref().is_some_and(crate::Answer::allows);
    one && call.questions.iter().any(|asked| asked.since_begun) && !call.questions.iter().any(allowed)
}

fn ready(state: &State, run: &Run, limits: &Limits) -> Step {
    if let Some(tool) = &run.guard.ended_by {
        let error = format!("{tool} was called again and again with the same input and the same result");
        return ended(End::Failed { error });
    }
    if !state.queue.is_empty() {
        return Step::Record(vec![join(state)]);
    }
    if run.requests >= limits.requests {
        let error = format!("the model was asked {} times in one run, which is the limit", limits.requests);
        return ended(End::Failed { error });
    }
    if limits.window.is_full(&state.messages) && run.compactions < MAX_COMPACTIONS && state.messages.len() > 1
    {
        return Step::Compact;
    }
    Step::Ask
}

fn calling(state: &State) -> Step {
    let waiting = || state.calls().iter().filter(|call| call.status == CallStatus::Waiting);
    let malformed: Vec<Entry> = waiting()
        .filter_map(|call| {
            let shown: String = call.malformed.as_ref()?.chars().take(200).collect();
            let text = format!(
                "the arguments of {} are no JSON object: {shown:?}; call again with valid JSON",
                call.name
            );
            Some(Entry::CallEnded { call: call.id.clone(), result: CallResult::error(text) })
        })
        .collect();
    if !malformed.is_empty() {
        return Step::Record(malformed);
    }
    let waiting: Vec<String> = waiting().map(|call| call.id.clone()).collect();
    if waiting.is_empty() { Step::Wait } else { Step::Call(waiting) }
}

fn join(state: &State) -> Entry {
    Entry::Joined { messages: state.queue.iter().map(|message| message.id.clone()).collect() }
}

fn ended(end: End) -> Step {
    Step::Record(vec![Entry::RunEnded { end }])
}

#[cfg(test)]
mod tests;
