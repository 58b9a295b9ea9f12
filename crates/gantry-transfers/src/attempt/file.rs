//! Copies one file from the source to the destination over a relayed stream.

use std::time::Duration;

use gantry_protocol::{
    StreamFrame, TransferDone, TransferHas, TransferHave, TransferReceive, TransferSend, method,
};

use super::Attempt;
use crate::failure::Failure;

/// When one endpoint has failed, the other one gets this long to report its side.
const OTHER_END_LIMIT: Duration = Duration::from_secs(5);

const DISAGREE: &str = "source and destination disagree about what was sent";

/// Where a file starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartAt {
    Zero,
    /// After the bytes that have arrived before.
    ArrivedBytes,
}

impl Attempt<'_> {
    /// Copies one file and waits until the destination has renamed it to its final name.
    pub(super) async fn copy_file(
        &self,
        entry: Option<&str>,
        start: StartAt,
        mode: u32,
        size: Option<u64>,
    ) -> Result<TransferDone, Failure> {
        let transfer = self.spec.id.clone();
        let entry = entry.map(str::to_owned);
        let has: TransferHas = match start {
            StartAt::ArrivedBytes => {
                let have = TransferHave { transfer: transfer.clone(), entry: entry.clone() };
                self.request_destination(method::TRANSFER_HAVE, &have).await?
            }
            StartAt::Zero => TransferHas::default(),
        };
        let from = has.have;
        let mut stream = self.relay.open(self.source.peer(), self.destination.peer(), from, &self.meter);
        self.meter.add(from);
        let receive = TransferReceive {
            transfer: transfer.clone(),
            entry: entry.clone(),
            stream: stream.number,
            from,
            mode,
            size,
        };
        let receiving = self.destination.request::<_, TransferDone>(method::TRANSFER_RECEIVE, &receive);
        let mut receiving = std::pin::pin!(receiving);
        // The receiver has to be ready before the sender begins, or it would reject the first frames.
        let credit = tokio::select! {
            failed = &mut receiving => {
                let early = || Failure::Lost("the receiver ended before anything was sent".into());
                return Err(failed.err().unwrap_or_else(early).at(&self.spec.destination));
            }
            credit = stream.ready() => credit.ok_or_else(|| Failure::Lost("the stream was closed".into()))?,
        };
        let send = TransferSend {
            transfer,
            entry,
            stream: stream.number,
            from,
            prefix_hash: has.prefix_hash,
            credit,
        };
        let sending = self.source.request::<_, TransferDone>(method::TRANSFER_SEND, &send);
        let mut sending = std::pin::pin!(sending);
        let (mut sent, mut received, mut end) = (None, None, None);
        let mut broken = std::pin::pin!(stream.broken());
        while sent.is_none() || received.is_none() {
            let failed = matches!(sent, Some(Err(_))) || matches!(received, Some(Err(_)));
            tokio::select! {
                frame = stream.ended(), if !failed => end = Some(frame),
                done = &mut sending, if sent.is_none() => {
                    if let Err(Failure::Lost(reason) | Failure::StoreAway(reason) | Failure::Restart(reason)) = &done {
                        stream.abort(reason);
                    } else if done.is_err() {
                        stream.abort("the source failed");
                    }
                    sent = Some(done.map_err(Failure::of_source));
                }
                done = &mut receiving, if received.is_none() => {
                    if done.is_err() {
                        stream.abort("the destination failed");
                    }
                    received = Some(done);
                }
                // This also overrides a source that reported success: its last bytes have not arrived.
                reason = &mut broken, if !failed => sent = Some(Err(Failure::Lost(reason))),
                () = tokio::time::sleep(OTHER_END_LIMIT), if failed => {
                    let silent = || Err(Failure::Lost("the other endpoint did not answer".into()));
                    sent.get_or_insert_with(silent);
                    received.get_or_insert_with(silent);
                }
            }
            // The receiver renames the file when it gets the end frame, so the source has to confirm the hash first.
            if let Some(Ok(done)) = &sent
                && let Some(frame) = end.take()
            {
                if hashes_agree(done, &frame) {
                    stream.release(frame);
                } else {
                    stream.abort(DISAGREE);
                    sent = Some(Err(Failure::Restart(DISAGREE.into())));
                }
            }
        }
        match (sent, received) {
            (Some(Ok(sent)), Some(Ok(received))) if sent == received => Ok(received),
            (Some(Ok(_)), Some(Ok(_))) => Err(Failure::Restart(DISAGREE.into())),
            (Some(Err(sent)), Some(Err(received))) => {
                Err(sent.at(&self.spec.source).or(received.at(&self.spec.destination)))
            }
            (Some(Err(failed)), _) => Err(failed.at(&self.spec.source)),
            (_, Some(Err(failed))) => Err(failed.at(&self.spec.destination)),
            _ => Err(Failure::Lost(format!("the stream ended at {}", stream.passed()))),
        }
    }
}

/// Whether the source's answer has the length and hash of its end frame.
fn hashes_agree(done: &TransferDone, end: &StreamFrame) -> bool {
    let hash = end.hash().map(|hash| blake3::Hash::from_bytes(hash).to_hex());
    done.bytes == end.offset() && hash.is_some_and(|hash| hash.as_str() == done.hash)
}
