//! Receives one file over a stream: on a blocking thread, written and hashed in one pass, credit granted as it goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gantry_protocol::{
    MAX_PAYLOAD_BYTES, MAX_UNACKNOWLEDGED_BYTES, StreamFrame, StreamKind, TransferDone, TransferReceive,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::books::Landing;
use crate::error::TransferError;
use crate::streams::{FrameOut, Shared};

/// Credit is granted in steps: a frame for each block would be as many frames back as forth.
const CREDIT_STEP: u64 = 2 * MAX_PAYLOAD_BYTES as u64;

/// A file that comes, and the hash of what has come.
pub(crate) struct Arrived {
    pub(crate) landing: Box<dyn Landing>,
    pub(crate) hasher: blake3::Hasher,
}

/// Blocks until the file is whole and has its name, or cannot be. A sender hears why.
pub(crate) fn run(
    order: &TransferReceive,
    arrived: Result<Arrived, TransferError>,
    frames: mpsc::Receiver<StreamFrame>,
    shared: &Shared,
    out: &Arc<dyn FrameOut>,
    runtime: &Handle,
) -> Result<TransferDone, TransferError> {
    let received = arrived.and_then(|arrived| {
        let grant = |up_to| {
            shared.granted.store(up_to, Ordering::Release);
            runtime
                .block_on(out.send(StreamFrame::credit(order.stream, up_to)))
                .map_err(|_| TransferError::Ended("the connection was lost".into()))
        };
        receive_all(order, arrived, frames, shared, grant)
    });
    if let Err(err) = &received {
        let _ = runtime.block_on(out.send(StreamFrame::abort(order.stream, &err.to_string())));
    }
    received
}

fn receive_all(
    order: &TransferReceive,
    arrived: Arrived,
    mut frames: mpsc::Receiver<StreamFrame>,
    shared: &Shared,
    grant: impl Fn(u64) -> Result<(), TransferError>,
) -> Result<TransferDone, TransferError> {
    let Arrived { mut landing, mut hasher } = arrived;
    if landing.length() < order.from {
        return Err(TransferError::PrefixMismatch);
    }
    if landing.length() > order.from {
        landing.truncate(order.from)?;
        hasher = landing.hash_prefix()?;
    }
    let mut written = order.from;
    let mut granted = written + MAX_UNACKNOWLEDGED_BYTES;
    grant(granted)?;
    loop {
        // The reason counts more than what still waits.
        if let Some(reason) = shared.reason() {
            return Err(TransferError::Ended(reason));
        }
        let Some(frame) = frames.blocking_recv() else {
            return Err(TransferError::Ended(shared.reason().unwrap_or_else(|| "nothing more came".into())));
        };
        match frame.kind() {
            StreamKind::Data => {
                if frame.offset() != written {
                    let message = format!("bytes for offset {} came when {written} had come", frame.offset());
                    return Err(TransferError::Violation(message));
                }
                landing.append(frame.payload())?;
                hasher.update(frame.payload());
                written += frame.payload().len() as u64;
                if written + MAX_UNACKNOWLEDGED_BYTES >= granted + CREDIT_STEP {
                    granted = written + MAX_UNACKNOWLEDGED_BYTES;
                    grant(granted)?;
                }
            }
            StreamKind::End => {
                let hash = hasher.finalize();
                check_whole(&frame, order.size.unwrap_or(written), written, &hash).inspect_err(|_| {
                    // What came is of no use to anybody.
                    let _ = landing.truncate(0);
                })?;
                landing.commit(order.mode)?;
                return Ok(TransferDone { bytes: written, hash: hash.to_hex().to_string() });
            }
            StreamKind::Credit | StreamKind::Abort => {}
        }
    }
}

fn check_whole(
    end: &StreamFrame,
    expected: u64,
    written: u64,
    hash: &blake3::Hash,
) -> Result<(), TransferError> {
    for told in [end.offset(), expected] {
        if written != told {
            return Err(TransferError::NotWhole(format!("{written} bytes came, {told} were announced")));
        }
    }
    if end.hash() != Some(*hash.as_bytes()) {
        return Err(TransferError::NotWhole("its hash is another one".into()));
    }
    Ok(())
}
