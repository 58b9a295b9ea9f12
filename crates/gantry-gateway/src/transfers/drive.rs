//! Drives one transfer to its end: round after round, until it is whole, cannot be, is called off, or nothing moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_protocol::{ErrorCode, TransferOver, WireError, method};
use gantry_toolsets::Transferred;
use serde_json::Value;

use super::round::{Ledger, Round};
use super::session::{Failure, Session};
use super::{Ended, Job, Transfers};
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
        let mut ledger = Ledger::default();
        ledger.resumed = job.resumed;
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
                        let message = "the gateway is stopping; the transfer goes on when it is back";
                        return Err(WireError::new(ErrorCode::Unavailable, message));
                    }
                    () = job.cancel.cancelled() => {
                        break Err(WireError::new(ErrorCode::Cancelled, "cancelled"));
                    }
                    ended = &mut work => break ended,
                    _ = look.tick() => {
                        if job.meter.idle_for() > self.idle_limit {
                            let limit = self.idle_limit.as_secs();
                            let message = format!("nothing moved for {limit} seconds");
                            break Err(WireError::new(ErrorCode::Failed, message));
                        }
                        self.record(job, &mut record).await;
                    }
                }
            }
        };
        let noted = match &ended {
            Ok(()) => Ok(ledger.bytes),
            Err(error) => Err(error.message.as_str()),
        };
        // The bytes are there, or the caller hears why not, whatever the record says.
        let _ = self.database.finish_transfer(&job.errand.id, noted, now_ms()).await;
        match ended {
            Ok(()) => {
                job.meter.set_done(ledger.bytes);
                job.meter.set_total(ledger.bytes);
                let skipped = ledger.take_skipped();
                Ok(Transferred {
                    bytes_transferred: ledger.bytes,
                    mime: ledger.mime,
                    files: ledger.files,
                    skipped,
                })
            }
            Err(error) => {
                self.clean_up(job, ledger).await;
                Err(error)
            }
        }
    }

    async fn rounds(&self, job: &Job, ledger: &mut Ledger) -> Result<(), WireError> {
        let mut pause = FIRST_PAUSE;
        let (mut restarts, mut fruitless, mut furthest) = (0, 0, 0);
        loop {
            let before = job.meter.done();
            match self.round(job, ledger).await {
                Ok(()) => return Ok(()),
                Err(Failure::Final(error) | Failure::Source(error)) => return Err(error),
                Err(Failure::Restart(reason)) => {
                    restarts += 1;
                    if restarts > MAX_RESTARTS {
                        return Err(WireError::new(ErrorCode::Failed, reason));
                    }
                    ledger.from_zero = true;
                }
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

    async fn round(&self, job: &Job, ledger: &mut Ledger) -> Result<(), Failure> {
        let session = |endpoint| Session::open(&self.nodes, &self.own, endpoint);
        let (source, destination) =
            tokio::try_join!(session(&job.errand.source), session(&job.errand.destination))?;
        let round = Round {
            errand: &job.errand,
            source,
            destination,
            relay: self.nodes.relay.clone(),
            meter: job.meter.clone(),
        };
        round.run(ledger).await
    }

    /// Now and then, not with every frame.
    async fn record(&self, job: &Job, record: &mut Record) {
        let done = job.meter.done();
        let due = record.at.elapsed() >= RECORD_PAUSE || done.abs_diff(record.bytes) >= RECORD_BYTES;
        if due && done != record.bytes {
            *record = Record { at: Instant::now(), bytes: done };
            // A record that is behind costs nothing but an older number.
            let _ = self.database.transfer_progress(&job.errand.id, job.meter.total(), done, now_ms()).await;
        }
    }

    /// Has what has come removed at the destination, and the source forget. An end that is away hears it when it is back.
    async fn clean_up(&self, job: &Job, ledger: Ledger) {
        let over = TransferOver { transfer: job.errand.id.clone(), entries: ledger.partial };
        let abandon = async |endpoint| {
            let end = Session::open(&self.nodes, &self.own, endpoint).await?;
            end.request::<_, Value>(method::TRANSFER_ABANDON, &over).await
        };
        for endpoint in [&job.errand.destination, &job.errand.source] {
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
