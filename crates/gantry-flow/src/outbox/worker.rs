//! The worker of the outbox: claims due messages, sends up to 32 at once and records the outcomes. Outcomes and new claims
//! share a transaction. Without due messages it writes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::{OutboxMessage, OutboxState};
use gantry_store::{ClaimedMessage, DatabaseError, NewOutboxMessage, SettledMessage};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Delivery, OutboxChannel, SESSION};
use crate::domain::Flow;
use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS};

/// The number of messages that are sent at the same time.
const MAX_SENDING: usize = 32;
/// The pauses before the second, third, … attempt. The last one repeats.
const BACKOFF_MS: [i64; 6] =
    [5 * SECOND_MS, 30 * SECOND_MS, 2 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS];
const MAX_ATTEMPTS: u32 = 12;
/// The pause after a failed access to the database.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// The time that messages have to arrive when the gateway stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Messages that are being sent.
#[derive(Default)]
struct Sending {
    tasks: JoinSet<(ClaimedMessage, Delivery)>,
    /// The messages by task, for tasks that panic.
    messages: HashMap<Id, ClaimedMessage>,
    settled: Vec<(ClaimedMessage, Delivery)>,
}

/// Sends the messages of the outbox until the gateway stops.
pub(crate) async fn run(flow: Arc<Flow>, stopping: CancellationToken) {
    while let Err(err) = recover(&flow).await {
        tracing::warn!(error = %err, "outbox_failed");
        tokio::select! {
            () = tokio::time::sleep(RETRY_AFTER) => {}
            () = stopping.cancelled() => return,
        }
    }
    let mut sending = Sending::default();
    while !stopping.is_cancelled() {
        match turn(&flow, &mut sending).await {
            Ok(Some(next)) => tokio::select! {
                () = sending.next() => {}
                () = flow.parts.outbox.woken() => {}
                () = flow.parts.clock.wait_until(next) => {}
                () = stopping.cancelled() => {}
            },
            Ok(None) => {}
            Err(err) => {
                tracing::warn!(error = %err, "outbox_failed");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
    // Whatever is not recorded here is unknown to the next process.
    let _ = tokio::time::timeout(STOP_LIMIT, async {
        while !sending.tasks.is_empty() {
            sending.next().await;
        }
    })
    .await;
    let _ = settle(&flow, &mut sending, 0).await;
}

/// Decides about messages that an earlier process was sending.
async fn recover(flow: &Flow) -> Result<(), DatabaseError> {
    let mut channels = flow.parts.outbox.channels();
    channels.retain(|channel| channel.ignores_repetitions());
    let repeatable: Vec<&str> = channels.iter().map(|channel| channel.name()).collect();
    let database = &flow.parts.database;
    let unknown = database.recover_outbox(&flow.owner, &repeatable, flow.parts.clock.now()).await?;
    if unknown > 0 {
        let (listed, _) = database.list_outbox(Some(OutboxState::Unknown), None, 100, 0).await?;
        let notices: Vec<NewOutboxMessage> =
            listed.iter().map(|message| undelivered(flow, message)).collect();
        database.add_outbox(&notices, flow.parts.clock.now()).await?;
    }
    Ok(())
}

/// Records outcomes and starts what is due. Returns when to look again, or `None` to look at once.
async fn turn(flow: &Arc<Flow>, sending: &mut Sending) -> Result<Option<i64>, DatabaseError> {
    sending.take_ready();
    let room = MAX_SENDING.saturating_sub(sending.tasks.len());
    let next = flow.parts.database.next_outbox().await?;
    let is_due = room > 0 && next.is_some_and(|next| next <= flow.parts.clock.now());
    if sending.settled.is_empty() && !is_due {
        // While all places are taken, the end of a task wakes the worker.
        let next = next.filter(|_| room > 0);
        return Ok(Some(next.unwrap_or_else(|| flow.parts.clock.now().saturating_add(HOUR_MS))));
    }
    for claimed in settle(flow, sending, room).await? {
        let channel = flow.parts.outbox.channel(&claimed.message.channel);
        let message = claimed.clone();
        let task = sending.tasks.spawn(async move {
            let delivery = deliver(channel, &claimed.message).await;
            (claimed, delivery)
        });
        sending.messages.insert(task.id(), message);
    }
    Ok(None)
}

async fn deliver(channel: Option<Arc<dyn OutboxChannel>>, message: &OutboxMessage) -> Delivery {
    match channel {
        Some(channel) => channel.deliver(message).await,
        None => Delivery::Rejected(format!("the channel {:?} is no longer configured", message.channel)),
    }
}

/// Records outcomes, and claims messages for `room` places.
async fn settle(
    flow: &Flow,
    sending: &mut Sending,
    room: usize,
) -> Result<Vec<ClaimedMessage>, DatabaseError> {
    let now = flow.parts.clock.now();
    let outcomes: Vec<SettledMessage> =
        sending.settled.iter().map(|(claimed, delivery)| outcome(claimed, delivery, now)).collect();
    let limit = u32::try_from(room).unwrap_or(0);
    let claimed = flow.parts.database.turn_outbox(&flow.owner, &outcomes, limit, now).await?;
    let needs_person = |state: OutboxState| matches!(state, OutboxState::Failed | OutboxState::Unknown);
    let ended = outcomes.iter().zip(&sending.settled).filter(|(outcome, _)| needs_person(outcome.state));
    let notices: Vec<NewOutboxMessage> = ended
        .filter(|(_, (claimed, _))| claimed.message.channel != SESSION)
        .map(|(outcome, (claimed, _))| {
            let (state, error) = (outcome.state, outcome.error.clone());
            undelivered(flow, &OutboxMessage { state, error, ..claimed.message.clone() })
        })
        .collect();
    sending.settled.clear();
    if !notices.is_empty() {
        flow.parts.database.add_outbox(&notices, now).await?;
    }
    Ok(claimed)
}

fn outcome(claimed: &ClaimedMessage, delivery: &Delivery, now: i64) -> SettledMessage {
    let attempts = claimed.message.attempts;
    let mut provider_id = None;
    let (state, next_at, error) = match delivery {
        Delivery::Sent(id) => {
            provider_id.clone_from(id);
            (OutboxState::Sent, None, None)
        }
        Delivery::Rejected(why) => (OutboxState::Failed, None, Some(why.clone())),
        Delivery::Unknown(why) => (OutboxState::Unknown, None, Some(why.clone())),
        Delivery::Retry { why, .. } if attempts >= MAX_ATTEMPTS => {
            (OutboxState::Failed, None, Some(format!("{why} (attempt {attempts}, the last one)")))
        }
        Delivery::Retry { why, after: Some(after) } => {
            let after = i64::try_from(after.as_millis()).unwrap_or(HOUR_MS).min(HOUR_MS);
            (OutboxState::Queued, Some(now.saturating_add(after)), Some(why.clone()))
        }
        Delivery::Retry { why, after: None } => {
            let place = usize::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(BACKOFF_MS.len() - 1);
            (OutboxState::Queued, Some(now.saturating_add(BACKOFF_MS[place])), Some(why.clone()))
        }
    };
    SettledMessage {
        id: claimed.message.id.clone(),
        epoch: claimed.epoch,
        state,
        next_at,
        error,
        provider_id,
    }
}

/// The notice to the owner about a message that did not arrive for certain.
fn undelivered(flow: &Flow, message: &OutboxMessage) -> NewOutboxMessage {
    let id: String = message.id.chars().take(12).collect();
    let (title, fix) = match message.state {
        OutboxState::Unknown => (
            "A message may not have arrived",
            format!(
                "If it arrived, run `gantry outbox arrived {id}`, otherwise `gantry outbox resend {id}`."
            ),
        ),
        _ => ("A message could not be delivered", format!("`gantry outbox resend {id}` sends it again.")),
    };
    let why = message.error.as_deref().unwrap_or("no reason is known");
    let text = format!("{:?} to {}: {why}. {fix}", message.body.title, message.channel);
    let key = format!("undelivered:{}:{}", message.id, message.attempts);
    flow.notice(&message.body.agent, title, &text, &key, "outbox", &[])
}

impl Sending {
    /// Waits for the next message to be sent. Waits forever while there is none.
    async fn next(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.take(ended),
            None => std::future::pending().await,
        }
    }

    fn take_ready(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.take(ended);
        }
    }

    fn take(&mut self, ended: Result<(Id, (ClaimedMessage, Delivery)), JoinError>) {
        match ended {
            Ok((id, sent)) => {
                self.messages.remove(&id);
                self.settled.push(sent);
            }
            Err(err) => {
                if let Some(message) = self.messages.remove(&err.id()) {
                    self.settled.push((message, Delivery::Unknown("the channel failed".to_owned())));
                }
            }
        }
    }
}
