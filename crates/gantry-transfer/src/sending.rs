//! Sends one file over a stream: on a blocking thread, block by block, no further than the receiver has granted.

use std::sync::Arc;

use gantry_protocol::{MAX_PAYLOAD_BYTES, StreamFrame, TransferDone, TransferSend};
use tokio::runtime::Handle;

use crate::books::Origin;
use crate::credit::Credit;
use crate::error::TransferError;
use crate::streams::FrameOut;

/// Blocks until everything is sent, or cannot be. A receiver that waits hears why.
pub(crate) fn run(
    order: &TransferSend,
    origin: Result<Box<dyn Origin>, TransferError>,
    credit: &Credit,
    out: &Arc<dyn FrameOut>,
    runtime: &Handle,
) -> Result<TransferDone, TransferError> {
    let sent = origin.and_then(|origin| {
        let send = |frame| {
            runtime
                .block_on(out.send(frame))
                .map_err(|_| TransferError::Ended("the connection was lost".into()))
        };
        send_all(order, origin, credit, send)
    });
    if let Err(err) = &sent {
        let _ = runtime.block_on(out.send(StreamFrame::abort(order.stream, &err.to_string())));
    }
    sent
}

fn send_all(
    order: &TransferSend,
    mut origin: Box<dyn Origin>,
    credit: &Credit,
    send: impl Fn(StreamFrame) -> Result<(), TransferError>,
) -> Result<TransferDone, TransferError> {
    let size = origin.size();
    let mut hasher = hash_prefix(&mut *origin, order, credit)?;
    let mut offset = order.from;
    while offset < size {
        let granted = credit.beyond(offset)?;
        let most = usize::try_from(granted.min(size) - offset).unwrap_or(MAX_PAYLOAD_BYTES);
        let frame =
            StreamFrame::data_with(order.stream, offset, most, |block| origin.read_at(offset, block))?;
        let Some(frame) = frame else { break };
        hasher.update(frame.payload());
        offset += frame.payload().len() as u64;
        send(frame)?;
    }
    origin.check_unchanged()?;
    if offset != size {
        return Err(TransferError::Changed(format!("it has {offset} bytes instead of {size}")));
    }
    let hash = hasher.finalize();
    send(StreamFrame::end(order.stream, size, hash.as_bytes()))?;
    Ok(TransferDone { bytes: size, hash: hash.to_hex().to_string() })
}

/// Hashes what the receiver has already, and makes sure that it is the same here.
fn hash_prefix(
    origin: &mut dyn Origin,
    order: &TransferSend,
    credit: &Credit,
) -> Result<blake3::Hasher, TransferError> {
    let mut hasher = blake3::Hasher::new();
    if order.from == 0 {
        return Ok(hasher);
    }
    if order.from > origin.size() {
        return Err(TransferError::PrefixMismatch);
    }
    let mut block = vec![0; MAX_PAYLOAD_BYTES];
    let mut offset = 0;
    while offset < order.from {
        credit.check()?;
        let wanted = usize::try_from(order.from - offset).unwrap_or(MAX_PAYLOAD_BYTES).min(MAX_PAYLOAD_BYTES);
        let read = origin.read_at(offset, &mut block[..wanted])?;
        if read < wanted {
            return Err(TransferError::PrefixMismatch);
        }
        hasher.update(&block[..read]);
        offset += read as u64;
    }
    match &order.prefix_hash {
        Some(hash) if *hash == hasher.finalize().to_hex().as_str() => Ok(hasher),
        _ => Err(TransferError::PrefixMismatch),
    }
}
