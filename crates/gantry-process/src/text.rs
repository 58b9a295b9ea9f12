//! Decodes bytes at the edges of a cut. No character is split, and invalid bytes become U+FFFD as
//! in a decode of the whole.

/// `Tail` is the last characters of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) text: String,
    /// Some of what comes before `text`.
    pub(crate) before: String,
}

/// `TailSize` says how many characters of a tail are wanted, and how many of what comes before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TailSize {
    pub(crate) chars: usize,
    pub(crate) before: usize,
}

impl TailSize {
    /// How many bytes hold such a tail. A character has at most four. The margin absorbs a character
    /// that the cut splits.
    pub(crate) fn bytes(self) -> usize {
        self.chars.saturating_add(self.before).saturating_mul(4).saturating_add(16)
    }
}

/// Returns the last characters of `bytes`, decoded, and the number of all characters.
pub(crate) fn tail(bytes: &[u8], size: TailSize) -> (Tail, u64) {
    let text = String::from_utf8_lossy(bytes);
    let total = text.chars().count();
    let (rest, text) = split_last(&text, size.chars, total);
    let (_, before) = split_last(rest, size.before, total.saturating_sub(size.chars));
    (Tail { text: text.to_owned(), before: before.to_owned() }, total as u64)
}

/// Splits off the last `limit` of `total` characters.
fn split_last(text: &str, limit: usize, total: usize) -> (&str, &str) {
    let skip = total.saturating_sub(limit);
    let start = text.char_indices().nth(skip).map_or(text.len(), |(start, _)| start);
    text.split_at(start)
}

/// Decodes `bytes`, which were cut out of something longer, and drops the partial character at the
/// start.
pub(crate) fn decode_from_cut(bytes: &[u8], size: TailSize) -> Tail {
    let continuation = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    tail(&bytes[continuation..], size).0
}

/// Decodes the first `limit` bytes, without a character that the cut would split, and then the rest.
pub(crate) fn head(bytes: &[u8], limit: usize) -> (String, String) {
    let decoded = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if bytes.len() <= limit {
        return (decoded(bytes), String::new());
    }
    let (head, rest) = bytes.split_at(limit - unfinished(&bytes[..limit]));
    (decoded(head), decoded(rest))
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
            let (text, rest) = head(SAMPLE.as_bytes(), limit);
            assert_eq!(text.clone() + &rest, SAMPLE);
            assert!(SAMPLE.starts_with(&text) && limit - text.len() < 4, "{limit}: {text}");
        }
        for start in 0..=SAMPLE.len() {
            let text = decode_from_cut(&SAMPLE.as_bytes()[start..], TailSize { chars: 100, before: 0 }).text;
            assert!(SAMPLE.ends_with(&text), "{start}: {text}");
        }
        for (chars, before, expected) in [
            (2, 0, ("z\u{1F680}", "")),
            (0, 0, ("", "")),
            (2, 1, ("z\u{1F680}", "\u{1F600}")),
            (5, 9, (&SAMPLE[1..], "a")),
        ] {
            let (found, total) = tail(SAMPLE.as_bytes(), TailSize { chars, before });
            assert_eq!((found.text.as_str(), found.before.as_str()), expected);
            assert_eq!(total, 6);
        }
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
