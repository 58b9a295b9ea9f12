//! Follows a run of a pipeline by the gateway's events.

use std::sync::Arc;

use anyhow::{Context, Result};
use gantry_link::{Event, Link, Request, ServeFuture, Service};
use gantry_protocol::{
    CloseReason, Empty, PipelineRunState, PipelineStatus, PipelineStatusParams, RunEvent, RunEventData,
    StreamFrame, event, method, raw,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::client::{ANSWER_LIMIT, Address, open, request_error, runtime};
use crate::exit::Refused;
use crate::output::Output;

/// Events that wait to be read. When more arrive, the state of the run is requested again.
const WAITING_EVENTS: usize = 256;

/// Sends a request that starts a run, and waits for the end of the run with its progress on a terminal.
pub(super) fn start_and_follow(
    output: &Output,
    address: &Address,
    method: &str,
    params: &impl Serialize,
) -> Result<PipelineRunState> {
    runtime()?.block_on(async {
        let (sender, mut heard) = mpsc::channel(WAITING_EVENTS);
        let (link, _, running) = open(address, Arc::new(Listener { sender })).await.map_err(Refused)?;
        // Events of a run that starts before the client listens would be lost.
        let _: Empty = request(&link, method::RUNS_LISTEN, &Empty {}).await?;
        let begun: PipelineRunState = request(&link, method, params).await?;
        let followed = until_end(output, &link, &mut heard, begun).await;
        link.close(CloseReason::Done);
        let _ = running.await;
        followed.context("the run continues; `gantry pipelines runs` shows it")
    })
}

async fn until_end(
    output: &Output,
    link: &Link,
    heard: &mut mpsc::Receiver<Heard>,
    begun: PipelineRunState,
) -> Result<PipelineRunState> {
    let id = begun.outcome.run_id.clone();
    let mut state = begun;
    while state.outcome.status == PipelineStatus::Running {
        let heard = tokio::select! {
            heard = heard.recv() => heard,
            _ = link.closed() => None,
        };
        let asks_again = match heard {
            Some(Heard::Run(data)) if data.run_id == id => is_end(output, &data.event),
            Some(Heard::Run(_)) => false,
            // The next request reports a lost connection.
            Some(Heard::Missed) | None => true,
        };
        if asks_again {
            let params = PipelineStatusParams { run_id: id.clone(), wait_ms: 0 };
            state = request(link, method::PIPELINES_STATUS, &params).await?;
        }
    }
    Ok(state)
}

/// Shows an event. Returns whether the run has ended.
fn is_end(output: &Output, event: &RunEvent) -> bool {
    match event {
        RunEvent::StepEnded { step, done, total, error, .. } => {
            let why = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
            output.note_on_terminal(&format!("{step} has ended{why} ({done} of {total})"));
        }
        RunEvent::Waiting { session_key, .. } => {
            output.note_on_terminal(&format!(
                "a step waits for an answer: gantry sessions questions {session_key}"
            ));
        }
        RunEvent::Ended { .. } => return true,
        _ => {}
    }
    false
}

async fn request<R: DeserializeOwned>(link: &Link, method: &str, params: &impl Serialize) -> Result<R> {
    let answer = link.request_within(method, raw(params), ANSWER_LIMIT).await.map_err(request_error)?;
    serde_json::from_str(answer.get()).context("the gateway's answer is invalid")
}

/// What the gateway sent.
enum Heard {
    Run(Box<RunEventData>),
    /// Events were lost, here or at the gateway.
    Missed,
}

/// Receives the events of runs.
struct Listener {
    sender: mpsc::Sender<Heard>,
}

impl Service for Listener {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, link: &Link, received: Event) {
        let heard = match received.name.as_str() {
            event::RUN_EVENT => received.parse().map(|data| Heard::Run(Box::new(data))),
            event::MISSED => Some(Heard::Missed),
            _ => None,
        };
        // A full queue would hide the end of the run.
        if heard.is_some_and(|heard| self.sender.try_send(heard).is_err()) {
            link.close(CloseReason::Done);
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}
