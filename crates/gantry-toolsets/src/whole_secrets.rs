//! Cuts text without splitting a known secret. The gate masks whole secrets only, so it would let a
//! part of one through. Every tool that cuts a text before the gate masks it uses this module.

use gantry_process::Stream;
use gantry_tool::Masker;

/// The least text beyond a cut to examine: a secret may be stored while a command runs.
const SHORTEST_LOOK: usize = 4_096;

/// Returns how much text beyond a cut the functions here need to see.
pub(crate) fn beyond_cut(masker: &Masker) -> usize {
    masker.reach().max(SHORTEST_LOOK)
}

/// Returns a text whose end was cut, without the first part of a secret that continues in `beyond`.
pub(crate) fn cut_end(masker: &Masker, mut text: String, beyond: &str) -> String {
    if !beyond.is_empty() {
        let end = text.len();
        text.push_str(beyond);
        let end = masker.cut_before_secret(text.as_bytes(), end);
        text.truncate(text.floor_char_boundary(end));
    }
    text
}

/// Returns the beginning of a stream; see [`cut_end`].
pub(crate) fn cut_stream(masker: &Masker, stream: Stream) -> Stream {
    let text = cut_end(masker, stream.text, &stream.beyond);
    Stream { text, beyond: String::new(), ..stream }
}

/// Returns the last `limit` characters of a text whose start was cut, without the last part of a
/// secret that begins before them. `before` is what was cut off.
pub(crate) fn cut_start(masker: &Masker, before: &str, text: &str, limit: usize) -> String {
    let skip = text.chars().count().saturating_sub(limit);
    let shown = text.char_indices().nth(skip).map_or(text.len(), |(start, _)| start);
    if before.is_empty() && shown == 0 {
        return text.to_owned();
    }
    let whole = [before, text].concat();
    let start = masker.cut_after_secret(whole.as_bytes(), before.len() + shown);
    whole[whole.ceil_char_boundary(start)..].to_owned()
}

#[cfg(test)]
mod tests;
