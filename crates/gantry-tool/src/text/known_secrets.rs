//! `KnownSecrets` finds a list of secrets in a text in one pass, plain and in base64.

use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem;

use crate::text::mask::{SHORTEST_SECRET, mask_found};

/// A fixed list of values. The search automaton is built on first use.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets {
    /// The original list, compared by pointer to detect a new one.
    pub(crate) given: Arc<[String]>,
    /// The values that are long enough to mask.
    pub(crate) values: Vec<String>,
    forms: OnceLock<Forms>,
}

#[derive(Debug)]
struct Forms {
    all: Vec<String>,
    /// `None` if the list is too large for an automaton. Then each form is searched by itself.
    finder: Option<AhoCorasick>,
}

impl KnownSecrets {
    pub(crate) fn new(given: Arc<[String]>) -> KnownSecrets {
        let values = given.iter().filter(|value| value.len() >= SHORTEST_SECRET).cloned().collect();
        KnownSecrets { given, values, forms: OnceLock::new() }
    }

    pub(crate) fn finds_in(&self, text: &str) -> bool {
        if self.values.is_empty() || text.len() < SHORTEST_SECRET {
            return false;
        }
        let forms = self.forms();
        match &forms.finder {
            Some(finder) => finder.is_match(text),
            None => forms.all.iter().any(|form| text.contains(form.as_str())),
        }
    }

    /// Masks every form of every value in place. The longest match wins.
    pub(crate) fn mask(&self, bytes: &mut Vec<u8>) {
        if self.values.is_empty() {
            return;
        }
        let forms = self.forms();
        match &forms.finder {
            Some(finder) => mask_found(bytes, |bytes, from| {
                let found = finder.find(&bytes[from..])?;
                Some(from + found.start()..from + found.end())
            }),
            None => forms.all.iter().for_each(|form| {
                let finder = memmem::Finder::new(form);
                mask_found(bytes, |bytes, from| {
                    let start = from + finder.find(&bytes[from..])?;
                    Some(start..start + form.len())
                });
            }),
        }
    }

    /// The longest form, in bytes.
    pub(crate) fn longest(&self) -> usize {
        if self.values.is_empty() { 0 } else { self.forms().all.first().map_or(0, String::len) }
    }

    fn forms(&self) -> &Forms {
        self.forms.get_or_init(|| {
            let mut all: Vec<String> = self
                .values
                .iter()
                .flat_map(|value| base64_forms(value).into_iter().chain([value.clone()]))
                .collect();
            // The longest first, so that a secret that contains another is masked whole.
            all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            all.dedup();
            let finder = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&all)
                .ok();
            Forms { all, finder }
        })
    }
}

/// The forms of a secret within the base64 of a longer text, such as `user:secret`. It may begin at each of the three
/// positions of a group. Characters at the ends that also encode neighbours are left out. Covers both alphabets.
pub(crate) fn base64_forms(secret: &str) -> Vec<String> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;

    let mut forms = Vec::with_capacity(3);
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret.as_bytes());
        let whole = STANDARD_NO_PAD.encode(&bytes);
        let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        let Some(own) = whole.get(first..end) else { continue };
        if own.contains(['+', '/']) {
            forms.push(own.replace('+', "-").replace('/', "_"));
        }
        forms.push(own.to_owned());
    }
    forms
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn a_secret_is_found_wherever_it_begins_within_base64() {
        let secret = "p\u{fc}\u{ff}?~>hunter2";
        let known = KnownSecrets::new([secret.to_owned()].into());
        for before in ["", "u", "us", "use", "user:", "a longer name of a user:"] {
            for after in ["", "x", "xy", "xyz\n"] {
                for encoded in [
                    STANDARD.encode(format!("{before}{secret}{after}")),
                    URL_SAFE_NO_PAD.encode(format!("{before}{secret}{after}")),
                ] {
                    assert!(known.finds_in(&encoded), "{before:?} {after:?} {encoded}");
                    let mut masked = encoded.clone().into_bytes();
                    known.mask(&mut masked);
                    let masked = String::from_utf8(masked).unwrap();
                    assert!(masked.contains("[masked]") && masked.len() < encoded.len(), "{masked}");
                }
            }
        }
        assert!(!known.finds_in(&STANDARD.encode("something else altogether")));
    }

    #[test]
    fn a_secret_that_contains_another_is_masked_whole() {
        let known = KnownSecrets::new(["hunter2-".into(), "hunter2-hunter3".into()].into());
        let mut text = b"hunter2-hunter3 hunter2-hunter4".to_vec();
        known.mask(&mut text);
        assert_eq!(text, b"[masked] [masked]hunter4");
    }
}
