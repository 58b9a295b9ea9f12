//! Events of runs: the gateway sends them to clients that follow runs, and counts them for `/metrics`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{Empty, Missed, RunEvent, RunEventData, RunKind, WireError, event, method, raw};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::domain::Flow;

/// Events that a slow client may be behind. Older ones are dropped, and the client gets their number.
const CAPACITY: usize = 1_024;

/// Publishes what happens to runs.
pub(crate) struct RunEvents {
    sender: broadcast::Sender<Arc<RunEventData>>,
    /// The connections that follow runs.
    followers: Mutex<HashSet<u64>>,
}

impl Default for RunEvents {
    fn default() -> Self {
        RunEvents { sender: broadcast::channel(CAPACITY).0, followers: Mutex::default() }
    }
}

/// Names a run in its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunName<'a> {
    pub(crate) kind: RunKind,
    pub(crate) run: &'a str,
    pub(crate) source: &'a str,
    pub(crate) name: &'a str,
    pub(crate) agent: &'a str,
}

impl Flow {
    /// Publishes an event of a run. Nobody has to listen.
    pub(crate) fn publish(&self, run: RunName<'_>, event: RunEvent) {
        self.metrics.count(run.kind, &event);
        // Without a follower nothing is built.
        if self.run_events.sender.receiver_count() == 0 {
            return;
        }
        let data = RunEventData {
            kind: run.kind,
            run_id: run.run.to_owned(),
            source_id: run.source.to_owned(),
            name: run.name.to_owned(),
            agent: run.agent.to_owned(),
            event,
        };
        // The last follower may have left meanwhile.
        let _ = self.run_events.sender.send(Arc::new(data));
    }

    #[cfg(test)]
    pub(crate) fn follow_all_runs(&self) -> broadcast::Receiver<Arc<RunEventData>> {
        self.run_events.sender.subscribe()
    }

    fn followers(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.run_events.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn methods(methods: Methods, flow: &Arc<Flow>) -> Methods {
    methods.on(method::RUNS_LISTEN, flow, listen)
}

/// Sends the events of runs that the client may see, until it disconnects.
async fn listen(flow: Arc<Flow>, context: MethodContext, _: Empty) -> Result<Empty, WireError> {
    if !flow.followers().insert(context.connection) {
        return Ok(Empty {});
    }
    let mut events = flow.run_events.sender.subscribe();
    tokio::spawn(async move {
        let link = &context.link;
        loop {
            let received = tokio::select! {
                _ = link.closed() => break,
                received = events.recv() => received,
            };
            let sent = match received {
                Ok(data) if context.identity.may_act_as(&data.agent) => {
                    link.event(event::RUN_EVENT, raw(&*data)).await
                }
                Ok(_) => continue,
                Err(RecvError::Lagged(events)) => link.event(event::MISSED, raw(&Missed { events })).await,
                Err(RecvError::Closed) => break,
            };
            if sent.is_err() {
                break;
            }
        }
        flow.followers().remove(&context.connection);
    });
    Ok(Empty {})
}
