//! Receives one file over a stream, on a blocking thread. Each block is written and hashed at once, and credit is
//! granted as blocks arrive.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gantry_protocol::{
    MAX_PAYLOAD_BYTES, MAX_UNACKNOWLEDGED_BYTES, StreamFrame, StreamKind, TransferDone, TransferReceive,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::backend::PartFile;
use crate::error::TransferError;
use crate::streams::{FrameOut, Shared};

/// Credit is granted in steps, because one credit frame per block would double the number of frames.
const CREDIT_STEP: u64 = 2 * MAX_PAYLOAD_BYTES as u64;

/// A part file and the hash of its bytes so far.
pub(crate) struct HashedPart {
    pub(crate) part: Box<dyn PartFile>,
    pub(crate) hasher: blake3::Hasher,
}

/// Blocks until the file is complete and renamed, or failed. A failure aborts the stream with the reason.
pub(crate) fn run(
    order: &TransferReceive,
    hashed: Result<HashedPart, TransferError>,
    frames: mpsc::Receiver<StreamFrame>,
    shared: &Shared,
    out: &Arc<dyn FrameOut>,
    runtime: &Handle,
) -> Result<TransferDone, TransferError> {
    let received = hashed.and_then(|hashed| {
        let grant = |up_to| {
            shared.granted.store(up_to, Ordering::Release);
            runtime
                .block_on(out.send(StreamFrame::credit(order.stream, up_to)))
                .map_err(|_| TransferError::Ended("the connection was lost".into()))
        };
        receive_all(order, hashed, frames, shared, grant)
    });
    if let Err(err) = &received {
        let _ = runtime.block_on(out.send(StreamFrame::abort(order.stream, &err.to_string())));
    }
    received
}

fn receive_all(
    order: &TransferReceive,
    hashed: HashedPart,
    mut frames: mpsc::Receiver<StreamFrame>,
    shared: &Shared,
    grant: impl Fn(u64) -> Result<(), TransferError>,
) -> Result<TransferDone, TransferError> {
    let HashedPart { mut part, mut hasher } = hashed;
    if part.length() < order.from {
        return Err(TransferError::PrefixMismatch);
    }
    if part.length() > order.from {
        part.truncate(order.from)?;
        hasher = part.hash_prefix()?;
    }
    let mut written = order.from;
    let mut granted = written + MAX_UNACKNOWLEDGED_BYTES;
    grant(granted)?;
    loop {
        // A stream that ended early fails even if frames are still queued.
        if let Some(reason) = shared.reason() {
            return Err(TransferError::Ended(reason));
        }
        let Some(frame) = frames.blocking_recv() else {
            return Err(TransferError::Ended(
                shared.reason().unwrap_or_else(|| "no more frames arrived".into()),
            ));
        };
        match frame.kind() {
            StreamKind::Data => {
                if frame.offset() != written {
                    let message = format!("bytes for offset {} came when {written} had come", frame.offset());
                    return Err(TransferError::Violation(message));
                }
                part.append(frame.payload())?;
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
                    // The received bytes are wrong and must not be resumed from.
                    let _ = part.truncate(0);
                })?;
                part.commit(order.mode)?;
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
    for announced in [end.offset(), expected] {
        if written != announced {
            return Err(TransferError::NotWhole(format!("{written} bytes came, {announced} were announced")));
        }
    }
    if end.hash() != Some(*hash.as_bytes()) {
        return Err(TransferError::NotWhole("its hash differs".into()));
    }
    Ok(())
}
