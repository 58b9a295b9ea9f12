//! Sends one file over a stream, on a blocking thread, block by block, as far as the receiver has granted credit.

use std::sync::Arc;

use gantry_protocol::{MAX_PAYLOAD_BYTES, StreamFrame, TransferDone, TransferSend};
use tokio::runtime::Handle;

use crate::backend::SourceFile;
use crate::credit::Credit;
use crate::error::TransferError;
use crate::streams::FrameOut;

/// Blocks until the file is sent, or failed. A failure aborts the stream with the reason.
pub(crate) fn run(
    order: &TransferSend,
    source: Result<Box<dyn SourceFile>, TransferError>,
    credit: &Credit,
    out: &Arc<dyn FrameOut>,
    runtime: &Handle,
) -> Result<TransferDone, TransferError> {
    let sent = source.and_then(|source| {
        let send = |frame| {
            runtime
                .block_on(out.send(frame))
                .map_err(|_| TransferError::Ended("the connection was lost".into()))
        };
        send_all(order, source, credit, send)
    });
    if let Err(err) = &sent {
        let _ = runtime.block_on(out.send(StreamFrame::abort(order.stream, &err.to_string())));
    }
    sent
}

fn send_all(
    order: &TransferSend,
    mut source: Box<dyn SourceFile>,
    credit: &Credit,
    send: impl Fn(StreamFrame) -> Result<(), TransferError>,
) -> Result<TransferDone, TransferError> {
    let size = source.size();
    let mut hasher = hash_prefix(&mut *source, order, credit)?;
    let mut offset = order.from;
    while offset < size {
        let granted = credit.beyond(offset)?;
        let most = usize::try_from(granted.min(size) - offset).unwrap_or(MAX_PAYLOAD_BYTES);
        let frame =
            StreamFrame::data_with(order.stream, offset, most, |block| source.read_at(offset, block))?;
        let Some(frame) = frame else { break };
        hasher.update(frame.payload());
        offset += frame.payload().len() as u64;
        send(frame)?;
    }
    source.check_unchanged()?;
    if offset != size {
        return Err(TransferError::Changed(format!("it has {offset} bytes instead of {size}")));
    }
    let hash = hasher.finalize();
    send(StreamFrame::end(order.stream, size, hash.as_bytes()))?;
    Ok(TransferDone { bytes: size, hash: hash.to_hex().to_string() })
}

/// Hashes the bytes that the receiver already has, and checks that the source begins with them.
fn hash_prefix(
    source: &mut dyn SourceFile,
    order: &TransferSend,
    credit: &Credit,
) -> Result<blake3::Hasher, TransferError> {
    let mut hasher = blake3::Hasher::new();
    if order.from == 0 {
        return Ok(hasher);
    }
    if order.from > source.size() {
        return Err(TransferError::PrefixMismatch);
    }
    let mut block = vec![0; MAX_PAYLOAD_BYTES];
    let mut offset = 0;
    while offset < order.from {
        credit.check()?;
        let wanted = usize::try_from(order.from - offset).unwrap_or(MAX_PAYLOAD_BYTES).min(MAX_PAYLOAD_BYTES);
        let read = source.read_at(offset, &mut block[..wanted])?;
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
