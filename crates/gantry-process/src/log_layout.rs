//! How a session's log lies in its file, for the keeper that writes it and the engine that reads it.
//!
//! The output up to the log's limit, as it came; then, once there is more, a ring with the newest of the rest, then the
//! length of all output so far. The limit is the engine's and stays the same for the life of a log.

use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;

/// Holds the longest tail that a tool keeps (200,000 characters of four bytes) and a write in progress.
pub(crate) const RING: u64 = 1 << 20;

/// No write to the ring is longer.
pub(crate) const MAX_WRITE: usize = 64 * 1024;

/// What a log takes on disk beyond its limit.
pub(crate) const BEYOND_LIMIT: u64 = RING + 8;

/// Stores `bytes`, which lie at `position` (not below the limit) in the output, in the ring.
pub(crate) fn write_ring(file: &File, limit: u64, position: u64, bytes: &[u8]) -> Result<(), Error> {
    debug_assert!(bytes.len() <= MAX_WRITE && position >= limit);
    let start = (position - limit) % RING;
    let room = usize::try_from(RING - start).unwrap_or(usize::MAX);
    let (first, rest) = bytes.split_at(bytes.len().min(room));
    file.write_all_at(first, limit + start)?;
    file.write_all_at(rest, limit)?;
    // Last, so that a reader never believes in bytes that are not there yet.
    file.write_all_at(&(position + bytes.len() as u64).to_le_bytes(), limit + RING)
}

/// The length of all output so far, whether it is kept or not.
pub(crate) fn total(file: &File, limit: u64) -> Result<u64, Error> {
    let length = file.metadata()?.len();
    if length < limit.saturating_add(BEYOND_LIMIT) {
        return Ok(length.min(limit));
    }
    let mut total = [0; 8];
    file.read_exact_at(&mut total, limit + RING)?;
    Ok(u64::from_le_bytes(total).max(limit))
}

/// Up to `wanted` bytes of the output's end, and the length of all of it.
pub(crate) fn end(file: &File, limit: u64, wanted: u64) -> Result<(Vec<u8>, u64), Error> {
    let end = total(file, limit)?;
    let start = end.saturating_sub(wanted).max(kept_from(limit, end));
    let mut bytes = read(file, limit, start, end)?;
    // What was overwritten while we read is cut off again.
    let safe = kept_from(limit, total(file, limit)?).clamp(start, end);
    bytes.drain(..usize::try_from(safe - start).unwrap_or(usize::MAX).min(bytes.len()));
    Ok((bytes, end))
}

/// From where on the output up to `end` is there without a gap, whatever a write may be overwriting just now.
fn kept_from(limit: u64, end: u64) -> u64 {
    let ring_start = end.saturating_add(MAX_WRITE as u64).saturating_sub(RING);
    if ring_start <= limit { 0 } else { ring_start }
}

fn read(file: &File, limit: u64, start: u64, end: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; usize::try_from(end - start).map_err(Error::other)?];
    let mut position = start;
    while position < end {
        let (place, until) = if position < limit {
            (position, limit)
        } else {
            let place = (position - limit) % RING;
            (limit + place, position + RING - place)
        };
        let until = until.min(end);
        let part = (position - start) as usize..(until - start) as usize;
        file.read_exact_at(&mut bytes[part], place)?;
        position = until;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the sizes, the end of what was written is the end that is read.
    #[test]
    fn the_end_is_always_exact() {
        for limit in [0, 1, 1_000, RING - 1, RING + 77] {
            let file = tempfile::tempfile().unwrap();
            let mut written = Vec::new();
            for round in 0..90_u32 {
                let chunk: Vec<u8> =
                    (0..(round as usize * 7_919) % MAX_WRITE).map(|i| (i as u32 ^ round) as u8).collect();
                let linear = usize::try_from(limit).unwrap().saturating_sub(written.len()).min(chunk.len());
                file.write_all_at(&chunk[..linear], written.len() as u64).unwrap();
                let position = (written.len() + linear) as u64;
                if linear < chunk.len() {
                    write_ring(&file, limit, position, &chunk[linear..]).unwrap();
                }
                written.extend_from_slice(&chunk);
                for wanted in [1, 4_000, 800_016, u64::MAX] {
                    let (end, total) = end(&file, limit, wanted).unwrap();
                    assert_eq!(total, written.len() as u64);
                    assert!(end.len() as u64 >= wanted.min(total).min(RING - MAX_WRITE as u64));
                    assert!(written.ends_with(&end), "limit {limit}, round {round}, wanted {wanted}");
                }
            }
        }
    }
}
