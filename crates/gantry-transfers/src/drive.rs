//! Drives one transfer to its end: attempt after attempt, until it is complete, fails, is cancelled, or makes no
//! progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_protocol::{ErrorCode, TransferOver, WireError, method};
use gantry_toolsets::Transferred;
use serde_json::Value;

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::progress::{SharedArrived, TransferProgress};
use crate::resume::token_ended;
use crate::running_transfer::{ResumedState, RunningTransfer, TransferResult};
use crate::spec::TransferSpec;
use crate::transfers::{Transfers, now_ms};

/// Progress is saved this often, or after this many bytes.
const SAVE_INTERVAL: Duration = Duration::from_secs(3);
const SAVE_BYTES: u64 = 64 * 1024 * 1024;
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The pause between attempts. It doubles while nothing arrives.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A source that changes more often than this while it is sent fails the transfer.
const MAX_RESTARTS: u32 = 5;
/// So many attempts in a row may add no bytes although both endpoints were connected.
const MAX_FRUITLESS: u32 = 40;

/// How long a connected endpoint may take to remove its part files.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

impl Transfers {
    pub(crate) async fn drive(self: &Arc<Self>, transfer: &Arc<RunningTransfer>) -> TransferResult {
        let mut progress = match &transfer.resumed {
            Some(ResumedState { progress, .. }) => TransferProgress::resumed(progress.as_deref()),
            None => TransferProgress::default(),
        };
        let arrived = progress.share();
        let ended = {
            // Dropped at the end of this block, which cancels the requests to both endpoints.
            let mut work = Box::pin(self.attempts(transfer, &mut progress));
            let mut save_timer = SaveTimer { at: Instant::now(), bytes: 0 };
            let mut interval = tokio::time::interval(CHECK_INTERVAL);
            loop {
                tokio::select! {
                    // In this order, because a stopping gateway also drops the callers. That must not cancel the
                    // transfer.
                    biased;
                    () = self.suspended.cancelled() => {
                        self.save(transfer, &arrived).await;
                        let message = "the gateway is stopping; the transfer resumes when it is back";
                        return Err(WireError::new(ErrorCode::Unavailable, message));
                    }
                    () = transfer.cancel.cancelled() => {
                        break Err(WireError::new(ErrorCode::Cancelled, "cancelled"));
                    }
                    () = transfer.token_ended() => break Err(token_ended()),
                    ended = &mut work => break ended,
                    _ = interval.tick() => {
                        if transfer.meter.idle_for() > self.idle_limit {
                            let limit = self.idle_limit.as_secs();
                            let message = format!("nothing moved for {limit} seconds");
                            break Err(WireError::new(ErrorCode::Failed, message));
                        }
                        if save_timer.is_due(transfer.meter.done()) {
                            self.save(transfer, &arrived).await;
                        }
                    }
                }
            }
        };
        let mut arrived = std::mem::take(&mut *progress.arrived());
        let recorded = match &ended {
            Ok(()) => Ok(arrived.bytes),
            Err(error) => Err(error.message.as_str()),
        };
        // The caller gets the outcome even if it cannot be recorded.
        let _ = self.database.finish_transfer(&transfer.id, recorded, now_ms()).await;
        if let Err(error) = ended {
            self.clean_up(transfer, arrived.partial).await;
            return Err(error);
        }
        transfer.meter.set_done(arrived.bytes);
        transfer.meter.set_total(arrived.bytes);
        let (skipped, skipped_count) = arrived.take_skipped();
        Ok(Transferred {
            bytes_transferred: arrived.bytes,
            mime: arrived.mime,
            files: arrived.files,
            skipped,
            skipped_count,
        })
    }

    /// Repeats attempts until one succeeds or no other one can.
    async fn attempts(
        &self,
        transfer: &RunningTransfer,
        progress: &mut TransferProgress,
    ) -> Result<(), WireError> {
        let mut pause = FIRST_PAUSE;
        let (mut restarts, mut fruitless, mut furthest) = (0, 0, 0);
        loop {
            let before = transfer.meter.done();
            let spec = transfer.spec();
            match self.attempt(&spec, transfer, progress).await {
                Ok(()) => return Ok(()),
                // A node was renamed meanwhile: errors about its old name do not count.
                Err(_) if !Arc::ptr_eq(&spec, &transfer.spec()) => progress.from_zero = false,
                Err(Failure::Final(error) | Failure::Source(error)) => return Err(error),
                Err(Failure::Restart(reason)) => {
                    restarts += 1;
                    if restarts > MAX_RESTARTS {
                        return Err(WireError::new(ErrorCode::Failed, reason));
                    }
                    progress.from_zero = true;
                }
                // A new transfer does not wait.
                Err(Failure::StoreAway(reason)) if !progress.begun => {
                    return Err(WireError::new(ErrorCode::Unavailable, reason));
                }
                // The idle limit bounds this wait.
                Err(Failure::StoreAway(_)) => progress.from_zero = false,
                Err(Failure::Lost(reason)) => {
                    progress.from_zero = false;
                    fruitless = if transfer.meter.done() > furthest { 0 } else { fruitless + 1 };
                    furthest = furthest.max(transfer.meter.done());
                    if fruitless >= MAX_FRUITLESS {
                        let message = format!("nothing more arrived in {MAX_FRUITLESS} attempts: {reason}");
                        return Err(WireError::new(ErrorCode::Failed, message));
                    }
                }
            }
            progress.resumed = true;
            pause = if transfer.meter.done() > before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        spec: &TransferSpec,
        transfer: &RunningTransfer,
        progress: &mut TransferProgress,
    ) -> Result<(), Failure> {
        // Rules may have changed since the transfer began. They are checked before the wait for endpoints, so that a
        // denied transfer does not stay waiting.
        let policy = self.gate.policy();
        spec.ends().check(&policy, &spec.policy_call).map_err(|mut refusal| {
            if progress.begun {
                refusal.message.push_str("; files that had arrived complete before are kept");
            }
            Failure::denied(refusal)
        })?;
        let (source, destination) =
            tokio::try_join!(self.connect(&spec.source), self.connect(&spec.destination))?;
        let attempt = Attempt {
            spec,
            policy: &policy,
            source,
            destination,
            relay: self.relay.clone(),
            meter: transfer.meter.clone(),
        };
        let opened = attempt.begin(progress).await?;
        // A store that answers first and fails later counts as a lost connection, so that the attempts are limited.
        attempt.copy_all(opened, progress).await.map_err(|failure| match failure {
            Failure::StoreAway(reason) => Failure::Lost(reason),
            other => other,
        })
    }

    async fn save(&self, transfer: &RunningTransfer, arrived: &SharedArrived) {
        let (total, done, text) = (transfer.meter.total(), transfer.meter.done(), arrived.text());
        // Without this save, a resumed transfer sends some files again.
        let saved = self.database.transfer_progress(&transfer.id, total, done, text.as_deref(), now_ms());
        let _ = saved.await;
    }

    /// Removes the part files at the destination and closes the source. A node that is offline is cleaned when it
    /// connects.
    async fn clean_up(&self, transfer: &RunningTransfer, entries: Vec<String>) {
        let over = TransferOver { transfer: transfer.id.clone(), entries };
        let abandon = async |endpoint| {
            let connection = self.connect(endpoint).await?;
            connection.request::<_, Value>(method::TRANSFER_ABANDON, &over).await
        };
        let spec = transfer.spec();
        for endpoint in [&spec.destination, &spec.source] {
            if self.check_connected(endpoint).is_ok() {
                let _ = tokio::time::timeout(CLEAN_UP_LIMIT, abandon(endpoint)).await;
            }
        }
    }
}

/// When progress was last saved.
struct SaveTimer {
    at: Instant,
    bytes: u64,
}

impl SaveTimer {
    /// Returns whether progress is to be saved now, and restarts the timer if so.
    fn is_due(&mut self, done: u64) -> bool {
        let due = self.at.elapsed() >= SAVE_INTERVAL || done.abs_diff(self.bytes) >= SAVE_BYTES;
        if !due || done == self.bytes {
            return false;
        }
        *self = SaveTimer { at: Instant::now(), bytes: done };
        true
    }
}
