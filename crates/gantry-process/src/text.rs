//! Decodes bytes at the edges of a cut. No character is split, and invalid bytes become U+FFFD as
//! in a decode of the whole.

/// Returns the last `limit` characters of `bytes`, decoded, and the number of all characters.
pub(crate) fn tail(bytes: &[u8], limit: usize) -> (String, u64) {
    let text = String::from_utf8_lossy(bytes);
    let total = text.chars().count();
    (last_chars(&text, limit, total).to_owned(), total as u64)
}

fn last_chars(text: &str, limit: usize, total: usize) -> &str {
    match total.checked_sub(limit) {
        None | Some(0) => text,
        Some(skip) => text.char_indices().nth(skip).map_or("", |(start, _)| &text[start..]),
    }
}

/// Decodes `bytes`, which were cut out of something longer, and drops the partial character at the
/// start.
pub(crate) fn decode_from_cut(bytes: &[u8], limit: usize) -> String {
    let continuation = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    tail(&bytes[continuation..], limit).0
}

/// Decodes the first `limit` bytes, without a character that the cut would split.
pub(crate) fn head(bytes: &[u8], limit: usize) -> String {
    if bytes.len() <= limit {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let cut = &bytes[..limit];
    String::from_utf8_lossy(&cut[..cut.len() - unfinished(cut)]).into_owned()
}

/// Counts the bytes at the end that begin an incomplete character.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let needed = match byte {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => 1,
        };
        // `E0 80` and similar sequences can never become a character; the standard decoder decides
        // that.
        let tail = &bytes[bytes.len() - back..];
        let open = std::str::from_utf8(tail).is_err_and(|err| err.error_len().is_none());
        return if needed > back && open { back } else { 0 };
    }
    0
}

/// `CharCounter` counts the characters of a stream as a decode of the whole would, for any division
/// into chunks.
#[derive(Debug, Default)]
pub(crate) struct CharCounter {
    counted: u64,
    carry: Vec<u8>,
}

impl CharCounter {
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let joined;
        let bytes = if self.carry.is_empty() {
            chunk
        } else {
            joined = [&self.carry, chunk].concat();
            &joined[..]
        };
        let (whole, rest) = bytes.split_at(bytes.len() - unfinished(bytes));
        self.counted += count(whole);
        self.carry = rest.to_vec();
    }

    pub(crate) fn total(&self) -> u64 {
        self.counted + count(&self.carry)
    }
}

fn count(bytes: &[u8]) -> u64 {
    bytes
        .utf8_chunks()
        .map(|chunk| chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty()))
        .sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "a\u{e9}\u{20ac}\u{1F600}z\u{1F680}";

    #[test]
    fn a_cut_never_splits_a_character() {
        for limit in 0..=SAMPLE.len() {
            let text = head(SAMPLE.as_bytes(), limit);
            assert!(SAMPLE.starts_with(&text) && limit - text.len() < 4, "{limit}: {text}");
        }
        for start in 0..=SAMPLE.len() {
            let text = decode_from_cut(&SAMPLE.as_bytes()[start..], 100);
            assert!(SAMPLE.ends_with(&text), "{start}: {text}");
        }
        assert_eq!(tail(SAMPLE.as_bytes(), 2), ("z\u{1F680}".to_owned(), 6));
        assert_eq!(tail(SAMPLE.as_bytes(), 0), (String::new(), 6));
    }

    proptest! {
        #[test]
        fn count_does_not_depend_on_chunking(bytes in proptest::collection::vec(prop_oneof![
            any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F), Just(b'a')], 0..60), size in 1usize..8) {
            let mut counter = CharCounter::default();
            bytes.chunks(size).for_each(|chunk| counter.feed(chunk));
            prop_assert_eq!(counter.total(), String::from_utf8_lossy(&bytes).chars().count() as u64);
        }
    }
}
