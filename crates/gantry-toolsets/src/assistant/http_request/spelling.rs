//! Finds a value however a server has escaped it: each character as it is, as `%2F`, as `\/` or
//! `\u002f`, as `&#47;` or `&sol;`, a space as `+`, or one escape within another, as in JSON that
//! is quoted in JSON.
//!
//! The search decodes escapes while reading, so it finds any mixture of them. It copies nothing.

use std::ops::Range;

/// The most bytes of one character: `\u002f` with each of its characters escaped in the same way.
pub(super) const LONGEST_SPELLING: usize = 36;

/// The number of nested escape levels that are decoded.
const LEVELS: u8 = 2;
/// The most alternative readings that are followed at once. Only values with many `\`, `%` and `&`
/// have more than a few.
const MAX_WAYS: usize = 32;
/// The most consecutive characters that start an escape: `\\\/` has three.
const MOST_LEADS: usize = 4;
/// The most leading zeros of the number in `&#47;`.
const MAX_ZEROS: usize = 5;

/// ASCII characters that have an HTML name.
const NAMED: [(char, &str); 33] = [
    ('&', "amp"),
    ('<', "lt"),
    ('>', "gt"),
    ('"', "quot"),
    ('\'', "apos"),
    ('/', "sol"),
    ('+', "plus"),
    ('=', "equals"),
    ('\\', "bsol"),
    ('%', "percnt"),
    ('_', "lowbar"),
    ('.', "period"),
    (',', "comma"),
    (':', "colon"),
    (';', "semi"),
    ('!', "excl"),
    ('?', "quest"),
    ('#', "num"),
    ('$', "dollar"),
    ('@', "commat"),
    ('*', "ast"),
    ('(', "lpar"),
    (')', "rpar"),
    ('[', "lsqb"),
    (']', "rsqb"),
    ('{', "lcub"),
    ('}', "rcub"),
    ('|', "verbar"),
    ('^', "Hat"),
    ('`', "grave"),
    ('\t', "Tab"),
    ('\n', "NewLine"),
    (' ', "nbsp"),
];

/// How Gantry itself has changed a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextForm {
    Verbatim,
    /// Header and host names are in lower case, and a backslash in an address is a slash.
    Normalized,
}

/// Searches for any of several values.
pub(super) struct Finder<'a> {
    values: &'a [Vec<char>],
    form: TextForm,
    /// The bytes with which a value can start, in any spelling.
    begins: [bool; 256],
}

impl<'a> Finder<'a> {
    pub(super) fn new(values: &'a [Vec<char>], form: TextForm) -> Finder<'a> {
        let mut begins = [false; 256];
        for first in values.iter().filter_map(|value| value.first()) {
            let mut buffer = [0; 4];
            let lead = first.encode_utf8(&mut buffer).as_bytes()[0];
            let others = if form == TextForm::Normalized {
                [lead.to_ascii_lowercase(), lead.to_ascii_uppercase(), b'/']
            } else {
                [lead; 3]
            };
            let blank = if lead == b' ' { b'+' } else { lead };
            for byte in others.into_iter().chain([lead, blank, b'\\', b'%', b'&']) {
                begins[usize::from(byte)] = true;
            }
        }
        Finder { values, form, begins }
    }

    /// Returns the first range at or after `from` that spells a value.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let reader = Reader { text, form: self.form };
        let mut ways = Ways::default();
        let mut at = from;
        loop {
            at += text.get(at..)?.iter().position(|byte| self.begins[usize::from(*byte)])?;
            match self.longest(&reader, at, &mut ways) {
                Some(end) if end > at => return Some(at..end),
                _ => at += 1,
            }
        }
    }

    /// Returns the end of the longest value that is spelt at `at`.
    fn longest(&self, reader: &Reader<'_>, at: usize, ways: &mut Ways) -> Option<usize> {
        let only = reader.can_only_be(at);
        let (mut longest, mut hopeless) = (None, None);
        for value in self.values {
            let Some(first) = value.first().copied() else { continue };
            // Most values are also present as base64 in several alphabets, and start in the same
            // way.
            let other = only.is_some_and(|only| first != only && is_plain(first));
            if other || hopeless == Some(first) {
                continue;
            }
            match reader.end(value, at, ways) {
                Ok(end) => longest = longest.max(Some(end)),
                Err(0) => hopeless = Some(first),
                Err(_) => {}
            }
        }
        longest
    }
}

/// A character that is neither a space, which may be written as `+`, nor the start of an escape.
fn is_plain(character: char) -> bool {
    character.is_ascii_graphic() && !matches!(character, '\\' | '%' | '&')
}

/// The positions from which reading continues; reused, so that attempts allocate no memory.
#[derive(Default)]
struct Ways {
    now: Vec<usize>,
    next: Vec<usize>,
}

struct Reader<'a> {
    text: &'a [u8],
    form: TextForm,
}

type Then<'t> = &'t mut dyn FnMut(usize);

impl Reader<'_> {
    /// Returns the end of the value that starts at `at`, the furthest if there are several
    /// readings; or else how many of its characters match.
    fn end(&self, value: &[char], at: usize, ways: &mut Ways) -> Result<usize, usize> {
        ways.now.clear();
        ways.now.push(at);
        for (number, character) in value.iter().enumerate() {
            ways.next.clear();
            for at in &ways.now {
                self.character(*at, LEVELS, *character, &mut |end| {
                    if ways.next.len() < MAX_WAYS && !ways.next.contains(&end) {
                        ways.next.push(end);
                    }
                });
            }
            if ways.next.is_empty() {
                return Err(number);
            }
            std::mem::swap(&mut ways.now, &mut ways.next);
        }
        Ok(ways.now.iter().max().copied().unwrap_or(at))
    }

    /// Calls `then` with each possible end of the character at `at`, with at most `levels` nested
    /// escapes.
    fn character(&self, at: usize, levels: u8, character: char, then: Then<'_>) {
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        self.bytes(at, levels, bytes, then);
        let Some(within) = levels.checked_sub(1) else { return };
        if character == ' ' {
            self.character(at, within, '+', then);
        }
        if !self.begins_escape(at) {
            return;
        }
        self.character(at, within, '\\', &mut |at| self.after_backslash(at, within, character, then));
        self.character(at, within, '&', &mut |at| self.entity(at, within, character, then));
    }

    /// Reads the bytes of a character, each as it is or as `%2F`.
    fn bytes(&self, at: usize, levels: u8, bytes: &[u8], then: Then<'_>) {
        let Some((first, rest)) = bytes.split_first() else { return then(at) };
        let Some(byte) = self.text.get(at) else { return };
        if self.same(*byte, *first) {
            self.bytes(at + 1, levels, rest, then);
        }
        if levels > 0 && self.begins_escape(at) {
            let within = levels - 1;
            self.character(at, within, '%', &mut |at| {
                self.hex(at, within, u32::from(*first), 2, &mut |at| self.bytes(at, levels, rest, then));
            });
        }
    }

    /// Reads the rest of `\/`, `\n`, `\u002f` and `\x2f`.
    fn after_backslash(&self, at: usize, levels: u8, character: char, then: Then<'_>) {
        let letter = match character {
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            other => other.is_ascii_punctuation().then_some(other),
        };
        if let Some(letter) = letter {
            self.character(at, levels, letter, then);
        }
        if character.is_ascii() {
            let code = u32::from(character);
            self.character(at, levels, 'x', &mut |at| self.hex(at, levels, code, 2, then));
        }
        let mut buffer = [0; 2];
        match *character.encode_utf16(&mut buffer) {
            [unit] => self.unit(at, levels, unit, then),
            [high, low] => self.unit(at, levels, high, &mut |at| {
                self.character(at, levels, '\\', &mut |at| self.unit(at, levels, low, then));
            }),
            _ => {}
        }
    }

    fn unit(&self, at: usize, levels: u8, unit: u16, then: Then<'_>) {
        self.character(at, levels, 'u', &mut |at| self.hex(at, levels, u32::from(unit), 4, then));
    }

    /// Reads `amp;`, `#47;` and `#x2f;`; the semicolon is optional, as in browsers.
    fn entity(&self, at: usize, levels: u8, character: char, then: Then<'_>) {
        let ended: Then<'_> = &mut |at| {
            then(at);
            self.character(at, levels, ';', then);
        };
        for (_, name) in NAMED.iter().filter(|(named, _)| *named == character) {
            self.word(at, levels, name, ended);
        }
        let code = u32::from(character);
        self.character(at, levels, '#', &mut |at| {
            self.zeros(at, levels, MAX_ZEROS, &mut |at| self.word(at, levels, &code.to_string(), ended));
            self.letter(at, levels, 'x', &mut |at| {
                let digits = (u32::BITS - code.leading_zeros()).div_ceil(4).max(1);
                self.zeros(at, levels, MAX_ZEROS, &mut |at| self.hex(at, levels, code, digits, ended));
            });
        });
    }

    fn word(&self, at: usize, levels: u8, word: &str, then: Then<'_>) {
        let mut chars = word.chars();
        match chars.next() {
            None => then(at),
            Some(first) => {
                self.character(at, levels, first, &mut |at| self.word(at, levels, chars.as_str(), then));
            }
        }
    }

    fn zeros(&self, at: usize, levels: u8, most: usize, then: Then<'_>) {
        then(at);
        if most > 0 {
            self.character(at, levels, '0', &mut |at| self.zeros(at, levels, most - 1, then));
        }
    }

    /// Reads this many digits of a number, in either case.
    fn hex(&self, at: usize, levels: u8, code: u32, digits: u32, then: Then<'_>) {
        let Some(more) = digits.checked_sub(1) else { return then(at) };
        let digit = char::from_digit((code >> (4 * more)) & 15, 16).unwrap_or('0');
        self.letter(at, levels, digit, &mut |at| self.hex(at, levels, code, more, then));
    }

    /// Reads a letter in either case.
    fn letter(&self, at: usize, levels: u8, letter: char, then: Then<'_>) {
        self.character(at, levels, letter, then);
        if letter.is_ascii_lowercase() {
            self.character(at, levels, letter.to_ascii_uppercase(), then);
        }
    }

    /// Returns the only plain character that can be spelt at `at`, if a quick look shows it. Most
    /// escapes of a text are of this kind, and reading them in every way is slow.
    fn can_only_be(&self, at: usize) -> Option<char> {
        // With more starts of escapes in a row than this, the first one spells a start itself or
        // nothing.
        if (at..at + MOST_LEADS).all(|at| self.begins_escape(at)) {
            return Some('\\');
        }
        let hex = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let rest = self.text.get(at..)?;
        let code = match rest {
            [b'%', digits @ ..] => hex(digits.get(..2)?)?,
            [b'\\', b'u', digits @ ..] => hex(digits.get(..4)?)?,
            [b'\\', other, ..] if is_plain(char::from(*other)) && *other != b'x' => u32::from(*other),
            _ => return None,
        };
        // The decoded character may start an escape itself.
        (!matches!(code, 0x25 | 0x26 | 0x5c)).then(|| char::from_u32(code).unwrap_or_default())
    }

    fn begins_escape(&self, at: usize) -> bool {
        matches!(self.text.get(at), Some(b'\\' | b'%' | b'&'))
    }

    fn same(&self, byte_in_text: u8, byte: u8) -> bool {
        byte_in_text == byte
            || self.form == TextForm::Normalized
                && (byte_in_text.eq_ignore_ascii_case(&byte) || (byte == b'\\' && byte_in_text == b'/'))
    }
}

#[cfg(test)]
mod tests;
