//! [`next`] decides the next step of a session: a function without I/O from its state. The driver performs the step and
//! records the outcome.

use crate::context::Window;
use crate::entry::{CallResult, End, Entry};
use crate::state::{CallStatus, Phase, Run, State};

/// The limits of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The highest number of requests to the model.
    pub(crate) requests: u32,
    pub(crate) window: Window,
}

/// The highest number of consecutive compactions of a conversation that seems to fill the window.
const MAX_COMPACTIONS: u32 = 2;
/// The highest number of consecutive compactions of a conversation that the model rejects. Each one assumes at most half
/// of the previous window. The last one keeps only the task.
pub(crate) const MAX_OVERFLOWS: u32 = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// There is nothing to do.
    Idle,
    /// Effects are running.
    Wait,
    /// Record these entries, then decide again.
    Record(Vec<Entry>),
    Ask,
    /// Run these calls concurrently.
    Call(Vec<String>),
    /// Compact the conversation.
    Compact,
}

pub(crate) fn next(state: &State, limits: &Limits, now: i64) -> Step {
    let Some(run) = &state.run else {
        return match state.queue.front() {
            None => Step::Idle,
            // A run has the id of its first message, so that each message starts at most one run.
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
                "{error}; not even the task alone fits, because the agent's prompt, its tools and the answer need about \
                 {reserved} tokens: use a model with a larger window, or give the agent fewer tools"
            );
            ended(End::Failed { error })
        }
        Phase::Failed { error, .. } => ended(End::Failed { error: error.clone() }),
    }
}

/// Returns the entries to record first when a process loads a session that an earlier process left.
pub(crate) fn recover(state: &State) -> Vec<Entry> {
    let lost = state.run.as_ref().is_some_and(|run| run.phase == Phase::Asking);
    let calls = state.calls().iter().filter_map(|call| match call.status {
        CallStatus::Begun { read_only: true, .. } => Some(Entry::CallAgain { call: call.id.clone() }),
        // The call still waited for an approval, so it had no effect.
        CallStatus::Begun { .. } if waits_for_answer(call) => {
            Some(Entry::CallAgain { call: call.id.clone() })
        }
        CallStatus::Begun { .. } => Some(Entry::CallInterrupted { call: call.id.clone() }),
        CallStatus::Waiting | CallStatus::Ended(_) => None,
    });
    lost.then_some(Entry::RequestLost).into_iter().chain(calls).collect()
}

/// Whether the call cannot have had an effect: an approval was asked for since it started, and none was given. A call to
/// several machines asks for each one, so a question proves nothing about the others.
fn waits_for_answer(call: &crate::state::PendingCall) -> bool {
    let machines = call.input.get("node").and_then(serde_json::Value::as_str).unwrap_or_default();
    let one = machines != "*" && !machines.starts_with("tag:");
    let allowed = |asked: &crate::state::ApprovalRequest| {
        asked.answer.as_ref().is_some_and(gantry_protocol::ApprovalDecision::allows)
    };
    one && call.questions.iter().any(|asked| asked.since_begun) && !call.questions.iter().any(allowed)
}

fn ready(state: &State, run: &Run, limits: &Limits) -> Step {
    if let Some(tool) = &run.guard.ended_by {
        let error = format!("{tool} was called repeatedly with the same input and the same result");
        return ended(End::Failed { error });
    }
    if !state.queue.is_empty() {
        return Step::Record(vec![join(state)]);
    }
    if run.requests >= limits.requests {
        let error = format!("the run reached its limit of {} requests to the model", limits.requests);
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
                "the arguments of {} must be a JSON object, got {shown:?}; call it again with valid JSON",
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
