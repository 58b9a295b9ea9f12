//! Drives one transfer to its end: round after round, until it is whole, cannot be, is called off, or nothing moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_protocol::{ErrorCode, TransferOver, WireError, method};
use gantry_toolsets::Transferred;
use serde_json::Value;

use super::attempt::{Attempt, TransferSpec, came_before, refused};
use super::progress::{Kept, TransferProgress};
use super::session::{Failure, Session};
use super::{Ended, Job, Resumed, Transfers, token_is_over};
use crate::gateway::now_ms;

/// How far a transfer is, is written down this often, or after so many bytes.
const RECORD_PAUSE: Duration = Duration::from_secs(3);
const RECORD_BYTES: u64 = 64 * 1024 * 1024;
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Between rounds; doubled while nothing moves.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A source that changes again and again is given up.
const MAX_RESTARTS: u32 = 5;
/// And so is a transfer of which, with both ends there, nothing more arrives.
const MAX_FRUITLESS: u32 = 40;

/// How long an end that is there may take to remove its parts.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

impl Transfers {
    pub(super) async fn drive(self: &Arc<Self>, job: &Arc<Job>) -> Ended {
        let mut ledger = match &job.resumed {
            Some(Resumed { ledger, .. }) => TransferProgress::resumed(ledger.as_deref()),
            None => TransferProgress::default(),
        };
        let kept = ledger.share();
        let ended = {
            // Dropped with this block, which calls off what was asked of both ends.
            let mut work = Box::pin(self.rounds(job, &mut ledger));
            let mut record = Record { at: Instant::now(), bytes: 0 };
            let mut look = tokio::time::interval(LOOK_PAUSE);
            loop {
                tokio::select! {
                    // In this order: callers that are sent away by a gateway that stops have not called it off.
                    biased;
                    () = self.nodes.stopping.cancelled() => {
                        self.record(job, &kept).await;
                        let message = "the gateway is stopping; the transfer goes on when it is back";
                        return Err(WireError::new(ErrorCode::Unavailable, message));
                    }
                    () = job.cancel.cancelled() => {
                        break Err(WireError::new(ErrorCode::Cancelled, "cancelled"));
                    }
                    () = job.token_over() => break Err(token_is_over()),
                    ended = &mut work => break ended,
                    _ = look.tick() => {
                        if job.meter.idle_for() > self.idle_limit {
                            let limit = self.idle_limit.as_secs();
                            let message = format!("nothing moved for {limit} seconds");
                            break Err(WireError::new(ErrorCode::Failed, message));
                        }
                        if record.is_due(job.meter.done()) {
                            self.record(job, &kept).await;
                        }
                    }
                }
            }
        };
        let mut arrived = std::mem::take(&mut *ledger.arrived());
        let noted = match &ended {
            Ok(()) => Ok(arrived.bytes),
            Err(error) => Err(error.message.as_str()),
        };
        // The bytes are there, or the caller hears why not, whatever the record says.
        let _ = self.database.finish_transfer(&job.id, noted, now_ms()).await;
        match ended {
            Ok(()) => {
                job.meter.set_done(arrived.bytes);
                job.meter.set_total(arrived.bytes);
                let (skipped, skipped_count) = arrived.take_skipped();
                Ok(Transferred {
                    bytes_transferred: arrived.bytes,
                    mime: arrived.mime,
                    files: arrived.files,
                    skipped,
                    skipped_count,
                })
            }
            Err(error) => {
                self.clean_up(job, arrived.partial).await;
                Err(error)
            }
        }
    }

    async fn rounds(&self, job: &Job, ledger: &mut TransferProgress) -> Result<(), WireError> {
        let mut pause = FIRST_PAUSE;
        let (mut restarts, mut fruitless, mut furthest) = (0, 0, 0);
        loop {
            let before = job.meter.done();
            let errand = job.errand();
            match self.round(&errand, job, ledger).await {
                Ok(()) => return Ok(()),
                // A node was renamed: what was said of its old name does not count.
                Err(_) if !Arc::ptr_eq(&errand, &job.errand()) => ledger.from_zero = false,
                Err(Failure::Final(error) | Failure::Source(error)) => return Err(error),
                Err(Failure::Restart(reason)) => {
                    restarts += 1;
                    if restarts > MAX_RESTARTS {
                        return Err(WireError::new(ErrorCode::Failed, reason));
                    }
                    ledger.from_zero = true;
                }
                // A new transfer waits for nobody.
                Err(Failure::Away(reason)) if !ledger.begun => {
                    return Err(WireError::new(ErrorCode::Unavailable, reason));
                }
                // Nothing moves meanwhile, and that has its own limit.
                Err(Failure::Away(_)) => ledger.from_zero = false,
                Err(Failure::Lost(reason)) => {
                    ledger.from_zero = false;
                    fruitless = if job.meter.done() > furthest { 0 } else { fruitless + 1 };
                    furthest = furthest.max(job.meter.done());
                    if fruitless >= MAX_FRUITLESS {
                        let message = format!("nothing more arrived in {MAX_FRUITLESS} attempts: {reason}");
                        return Err(WireError::new(ErrorCode::Failed, message));
                    }
                }
            }
            ledger.resumed = true;
            pause = if job.meter.done() > before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tokio::time::sleep(pause).await;
        }
    }

    async fn round(
        &self,
        errand: &TransferSpec,
        job: &Job,
        ledger: &mut TransferProgress,
    ) -> Result<(), Failure> {
        // Rules may be other ones than when it began. Asked before anybody is waited for: what is refused does not stay waiting.
        errand
            .ends()
            .check(self.gate.policy(), &errand.judged_as)
            .map_err(|refusal| refused(if ledger.begun { came_before(refusal) } else { refusal }))?;
        let session = |endpoint| Session::open(&self.nodes, &self.own, endpoint);
        let (source, destination) = tokio::try_join!(session(&errand.source), session(&errand.destination))?;
        let round = Attempt {
            errand,
            policy: self.gate.policy(),
            source,
            destination,
            relay: self.nodes.relay.clone(),
            meter: job.meter.clone(),
        };
        round.run(ledger).await
    }

    async fn record(&self, job: &Job, kept: &Kept) {
        let (total, done, ledger) = (job.meter.total(), job.meter.done(), kept.text());
        // A record that is behind costs nothing but an older number, and files that are sent again.
        let noted = self.database.transfer_progress(&job.id, total, done, ledger.as_deref(), now_ms());
        let _ = noted.await;
    }

    /// Has what has come removed at the destination, and the source forget. An end that is away hears it when it is back.
    async fn clean_up(&self, job: &Job, entries: Vec<String>) {
        let over = TransferOver { transfer: job.id.clone(), entries };
        let abandon = async |endpoint| {
            let end = Session::open(&self.nodes, &self.own, endpoint).await?;
            end.request::<_, Value>(method::TRANSFER_ABANDON, &over).await
        };
        let errand = job.errand();
        for endpoint in [&errand.destination, &errand.source] {
            if self.check_present(endpoint).is_ok() {
                let _ = tokio::time::timeout(CLEAN_UP_LIMIT, abandon(endpoint)).await;
            }
        }
    }
}

struct Record {
    at: Instant,
    bytes: u64,
}

impl Record {
    /// Now and then, not with every frame.
    fn is_due(&mut self, done: u64) -> bool {
        let due = self.at.elapsed() >= RECORD_PAUSE || done.abs_diff(self.bytes) >= RECORD_BYTES;
        if !due || done == self.bytes {
            return false;
        }
        *self = Record { at: Instant::now(), bytes: done };
        true
    }
}
