//! Defines the layout of a log file, for the keeper that writes it and the engine that reads it.
//!
//! The file starts with the output up to the log's limit, in order. If there is more, a ring with
//! the newest of the rest follows, and then the length of all output so far. The engine chooses the
//! limit, which stays the same for the life of a log.

use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;

/// Holds the longest tail that a tool keeps (200,000 characters of four bytes) and a write in
/// progress.
pub(crate) const RING: u64 = 1 << 20;

/// The longest write to the ring.
pub(crate) const MAX_WRITE: usize = 64 * 1024;

/// How much disk space a log takes beyond its limit.
pub(crate) const BEYOND_LIMIT: u64 = RING + 8;

/// Stores `bytes` in the ring. They start at `position` in the output, which is not below the
/// limit.
pub(crate) fn write_ring(file: &File, limit: u64, position: u64, bytes: &[u8]) -> Result<(), Error> {
    debug_assert!(bytes.len() <= MAX_WRITE && position >= limit);
    let start = (position - limit) % RING;
    let room = usize::try_from(RING - start).unwrap_or(usize::MAX);
    let (first, rest) = bytes.split_at(bytes.len().min(room));
    file.write_all_at(first, limit + start)?;
    file.write_all_at(rest, limit)?;
    // The length is written last, so that a reader never relies on bytes that are not there yet.
    file.write_all_at(&(position + bytes.len() as u64).to_le_bytes(), limit + RING)
}

/// The length of all output so far, whether or not it is kept.
pub(crate) fn total(file: &File, limit: u64) -> Result<u64, Error> {
    let length = file.metadata()?.len();
    if length < limit.saturating_add(BEYOND_LIMIT) {
        return Ok(length.min(limit));
    }
    let mut total = [0; 8];
    file.read_exact_at(&mut total, limit + RING)?;
    Ok(u64::from_le_bytes(total).max(limit))
}

/// Returns up to `wanted` bytes of the end of the output, and the length of all output.
pub(crate) fn end(file: &File, limit: u64, wanted: u64) -> Result<(Vec<u8>, u64), Error> {
    let end = total(file, limit)?;
    let start = end.saturating_sub(wanted).max(kept_from(limit, end));
    let mut bytes = read(file, limit, start, end)?;
    // Discards what was overwritten during the read.
    let safe = kept_from(limit, total(file, limit)?).clamp(start, end);
    bytes.drain(..usize::try_from(safe - start).unwrap_or(usize::MAX).min(bytes.len()));
    Ok((bytes, end))
}

/// Returns the position from which the output up to `end` is complete, even if a write is in
/// progress.
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

    /// The bytes read from the end equal the bytes written, for every combination of sizes.
    #[test]
    fn end_of_output_is_exact_for_all_sizes() {
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
