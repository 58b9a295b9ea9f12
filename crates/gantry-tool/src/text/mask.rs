//! Masks secrets in audit lines and results: known values everywhere, and values under secret-looking names in inputs.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem;
use serde_json::{Map, Value};

use crate::text::known_secrets::{KnownSecrets, base64_forms};

pub const MASK: &str = "[masked]";

/// Shorter values are not masked, because they would match ordinary text.
pub const SHORTEST_SECRET: usize = 8;

/// The most bytes that one byte of a secret may become in a document, as in `&quot;`.
const LONGEST_SPELLING: usize = 6;

/// Words that make a name secret, at any position: `MY_AUTH`, `stripeKey`.
const SECRET_WORDS: [&str; 6] = ["key", "keys", "auth", "token", "cookie", "passphrase"];
/// Parts that make a name secret even within a word: `apikey`, `accesstoken`, `dbpassword`.
const SECRET_PARTS: [&str; 8] =
    ["secret", "password", "passwd", "credential", "apikey", "accesskey", "authorization", "authtoken"];

/// Secrets that change while the process runs. `gantry-store` implements this.
pub trait SecretSource: Send + Sync + std::fmt::Debug {
    /// The current values, the longest first. Every call uses this, so it must be cheap.
    fn values(&self) -> Arc<[String]>;
}

/// Knows the secrets of this process and removes them from what is shown or recorded.
#[derive(Debug, Clone, Default)]
pub struct Masker {
    known: Arc<KnownSecrets>,
    /// The values of the source when it was last read.
    stored: Arc<Mutex<Arc<KnownSecrets>>>,
    source: Option<Arc<dyn SecretSource>>,
}

impl Masker {
    pub fn new(values: impl IntoIterator<Item = String>) -> Masker {
        let values: Arc<[String]> = values.into_iter().collect();
        Masker { known: Arc::new(KnownSecrets::new(values)), ..Masker::default() }
    }

    /// Also masks the values that the source has at the time of each call.
    pub fn following(self, source: Arc<dyn SecretSource>) -> Masker {
        Masker { source: Some(source), stored: Arc::default(), ..self }
    }

    /// A copy with the current values, for work on many texts: the source is read once.
    pub(crate) fn now(&self) -> Masker {
        let [stored, known] = self.lists();
        Masker { known, stored: Arc::new(Mutex::new(stored)), source: None }
    }

    /// True for names such as `apiKey`, `api_key`, `GITHUB_TOKEN`, `MY_AUTH`, `password`.
    pub fn is_secret_name(name: &str) -> bool {
        let plain: String =
            name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        SECRET_PARTS.iter().any(|part| plain.contains(part))
            || words(name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
    }

    /// The length of the longest form of a known secret, in bytes.
    pub fn longest_secret(&self) -> usize {
        self.lists().iter().map(|list| list.longest()).max().unwrap_or(0)
    }

    /// Masks known secrets in place, without a second copy of the text.
    pub fn mask_text(&self, text: &mut String) {
        mask_text(&self.lists(), text);
    }

    /// As [`Masker::mask_text`], for bytes.
    pub fn mask_bytes(&self, bytes: &mut Vec<u8>) {
        self.lists().iter().for_each(|list| list.mask(bytes));
    }

    /// Where to cut bytes that are masked later: at `end`, or before a secret that lies across `end`. A secret may be plain,
    /// escaped as HTML, in UTF-16 or in base64. Only a whole secret moves the cut, so that callers cannot guess a secret
    /// letter by letter.
    pub fn cut_before_secret(&self, bytes: &[u8], end: usize) -> usize {
        let forms = self.raw_forms();
        let mut end = end.min(bytes.len());
        // Repeats, because one secret may begin within another.
        while let Some(start) = forms.iter().filter_map(|form| found_across(bytes, end, form)).min() {
            end = start;
        }
        end
    }

    /// Where to begin bytes that are masked later: at `start`, or after a secret that lies across `start`. The counterpart of
    /// [`Masker::cut_before_secret`] for a text whose beginning is cut off.
    pub fn cut_after_secret(&self, bytes: &[u8], start: usize) -> usize {
        let forms = self.raw_forms();
        let mut start = start.min(bytes.len());
        // Repeats, because one secret may begin within another.
        while let Some(end) = forms.iter().filter_map(|form| last_across(bytes, start, form)).max() {
            start = end;
        }
        start
    }

    fn raw_forms(&self) -> Vec<Vec<u8>> {
        self.lists().iter().flat_map(|list| list.values.iter()).flat_map(|s| raw_forms(s)).collect()
    }

    /// How many bytes beyond a cut [`Masker::cut_before_secret`] and [`Masker::cut_after_secret`] need to see a whole secret.
    pub fn reach(&self) -> usize {
        let lists = self.lists();
        let longest = lists.iter().flat_map(|list| list.values.iter()).map(String::len).max();
        LONGEST_SPELLING * longest.unwrap_or(0)
    }

    /// Masks known secrets in every string and every field name.
    pub fn mask_texts(&self, value: &mut Value) {
        let lists = self.lists();
        if lists.iter().any(|list| !list.values.is_empty()) {
            mask_texts(&lists, value);
        }
    }

    /// As [`Masker::mask_texts`], and masks every value under a secret-looking name.
    pub fn mask_names_and_values(&self, value: &mut Value) {
        mask_names_and_values(&self.lists(), value);
    }

    /// The current lists. The values of the source come first, because tools send those out.
    fn lists(&self) -> Lists {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = &self.source {
            let values = source.values();
            if !Arc::ptr_eq(&values, &stored.given) {
                *stored = Arc::new(KnownSecrets::new(values));
            }
        }
        [stored.clone(), self.known.clone()]
    }
}

type Lists = [Arc<KnownSecrets>; 2];

fn mask_text(lists: &Lists, text: &mut String) {
    for list in lists {
        if !list.finds_in(text) {
            continue;
        }
        let mut bytes = std::mem::take(text).into_bytes();
        list.mask(&mut bytes);
        // Whole characters were replaced by whole characters, so the bytes are still UTF-8.
        *text = String::from_utf8(bytes).unwrap_or_default();
    }
}

fn mask_texts(lists: &Lists, value: &mut Value) {
    match value {
        Value::String(text) => mask_text(lists, text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_texts(lists, item)),
        Value::Object(fields) => {
            mask_field_names(lists, fields);
            fields.values_mut().for_each(|field| mask_texts(lists, field));
        }
        _ => {}
    }
}

/// Rebuilds the object only if a field name contains a secret, which is rare.
fn mask_field_names(lists: &Lists, fields: &mut Map<String, Value>) {
    let holds_secret = |name: &String| lists.iter().any(|list| list.finds_in(name));
    if !fields.keys().any(holds_secret) {
        return;
    }
    for (mut name, field) in std::mem::take(fields) {
        mask_text(lists, &mut name);
        // Two masked names may be equal. Neither value may be lost.
        while fields.contains_key(&name) {
            name.push('_');
        }
        fields.insert(name, field);
    }
}

/// Masks every range that `find` returns, in place. `find` gets the bytes and a position, and returns the first range at or
/// after it. A mask is never longer than the range, so the text never grows.
pub fn mask_found(bytes: &mut Vec<u8>, mut find: impl FnMut(&[u8], usize) -> Option<Range<usize>>) {
    let (mut read, mut written) = (0, 0);
    while let Some(found) = find(bytes, read).filter(|found| found.start >= read && !found.is_empty()) {
        bytes.copy_within(read..found.start, written);
        written += found.start - read;
        let mask = &MASK.as_bytes()[..MASK.len().min(found.len())];
        bytes[written..written + mask.len()].copy_from_slice(mask);
        written += mask.len();
        read = found.end;
    }
    if read > 0 {
        bytes.copy_within(read.., written);
        bytes.truncate(written + bytes.len() - read);
    }
}

/// The start of a form that begins before `end` and ends after it.
fn found_across(bytes: &[u8], end: usize, form: &[u8]) -> Option<usize> {
    let around = around(bytes, end, form);
    Some(around.start + memmem::find(&bytes[around], form)?)
}

/// The end of the last form that begins before `start` and ends after it.
fn last_across(bytes: &[u8], start: usize, form: &[u8]) -> Option<usize> {
    let around = around(bytes, start, form);
    Some(around.start + memmem::rfind(&bytes[around], form)? + form.len())
}

/// The bytes around a cut, so many that any form found in them lies across the cut.
fn around(bytes: &[u8], cut: usize, form: &[u8]) -> Range<usize> {
    let across = form.len().saturating_sub(1);
    cut.saturating_sub(across)..bytes.len().min(cut.saturating_add(across))
}

/// The forms of a secret in the bytes of a document.
fn raw_forms(secret: &str) -> Vec<Vec<u8>> {
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let wide = |bytes: fn(u16) -> [u8; 2]| secret.encode_utf16().flat_map(bytes).collect();
    let mut forms =
        vec![secret.as_bytes().to_vec(), html.into_bytes(), wide(u16::to_le_bytes), wide(u16::to_be_bytes)];
    forms.extend(base64_forms(secret).into_iter().map(String::into_bytes));
    forms
}

fn mask_names_and_values(lists: &Lists, value: &mut Value) {
    match value {
        Value::String(text) => mask_text(lists, text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_names_and_values(lists, item)),
        Value::Object(object) => {
            mask_field_names(lists, object);
            for (name, item) in object.iter_mut() {
                if Masker::is_secret_name(name) && holds_something(item) {
                    *item = Value::String(MASK.to_owned());
                } else {
                    mask_names_and_values(lists, item);
                }
            }
        }
        _ => {}
    }
}

/// An empty value is not masked.
fn holds_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// The words of `snake_case`, `kebab-case`, `CAPS_CASE` and `camelCase` names, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_numeric();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn masks_known_values_and_secret_names() {
        let masker = Masker::new(["hunter2-hunter2".to_owned(), "short".to_owned()]);
        let mut value =
            json!({"command": "curl -H hunter2-hunter2", "env": {"API_TOKEN": "x", "A": "short"}, "key": 7});
        masker.mask_names_and_values(&mut value);
        assert_eq!(
            value,
            json!({"command": "curl -H [masked]", "env": {"API_TOKEN": "[masked]", "A": "short"}, "key": "[masked]"})
        );
    }

    #[test]
    fn masking_never_lengthens_the_text() {
        for (secret, text, masked) in [
            ("12345678", "12345678", "[masked]"),
            ("12345678", "a12345678b1234567812345678c", "a[masked]b[masked][masked]c"),
            ("geheimnis-größe", "x geheimnis-größe y", "x [masked] y"),
            ("short", "a short one", "a short one"),
            ("", "text", "text"),
        ] {
            let masker = Masker::new([secret.to_owned()]);
            let (mut in_text, mut in_bytes) = (text.to_owned(), text.as_bytes().to_vec());
            masker.mask_text(&mut in_text);
            masker.mask_bytes(&mut in_bytes);
            assert_eq!((in_text.as_str(), in_bytes.as_slice()), (masked, masked.as_bytes()));
        }
    }

    #[test]
    fn cut_moves_before_a_secret_that_it_would_split() {
        let masker = Masker::new(["hunter2<hunter2".to_owned(), "hunter2<".to_owned()]);
        let wide: Vec<u8> = "a hunter2<hunter2 b".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, secret, after) in [
            (&b"a hunter2<hunter2 b"[..], 2, 17),
            (b"a hunter2&lt;hunter2 b", 2, 20),
            (b"a hunter2<hunter3 b", 2, 10),
        ] {
            for end in 0..=bytes.len() {
                let expected = if (secret + 1..after).contains(&end) { secret } else { end };
                assert_eq!(masker.cut_before_secret(bytes, end), expected, "{end} of {bytes:?}");
            }
        }
        for end in 5..34 {
            assert!(masker.cut_before_secret(&wide, end) <= 4, "{end}");
        }
        assert_eq!(
            Masker::new(["12345678".into(), "78901234".into()]).cut_before_secret(b"123456789012345", 9),
            0
        );
        assert_eq!(
            Masker::new(["12345678".into(), "78901234".into()]).cut_after_secret(b"123456789012345", 5),
            14,
            "one secret begins in another"
        );
        assert_eq!(masker.cut_before_secret(b"a hunter", 8), 8, "a beginning alone moves nothing");
        assert_eq!(Masker::default().cut_before_secret(b"text", 2), 2);
        assert!(masker.reach() >= b"hunter2&lt;hunter2".len());
    }

    #[test]
    fn secret_that_is_added_later_is_masked() {
        #[derive(Debug, Default)]
        struct Changing(Mutex<Vec<String>>);
        impl SecretSource for Changing {
            fn values(&self) -> Arc<[String]> {
                self.0.lock().unwrap().clone().into()
            }
        }
        let source = Arc::new(Changing::default());
        let masker = Masker::new(["fixed-secret".to_owned()]).following(source.clone());
        let masked = |text: &str| {
            let (mut text, mut value) = (text.to_owned(), json!([{"a": text}]));
            masker.mask_text(&mut text);
            masker.mask_texts(&mut value);
            assert_eq!(value, json!([{"a": text}]));
            text
        };
        assert_eq!(masked("fixed-secret later-secret"), "[masked] later-secret");
        source.0.lock().unwrap().push("later-secret".into());
        assert_eq!(
            (masked("fixed-secret later-secret"), masker.longest_secret()),
            ("[masked] [masked]".into(), 16)
        );
        source.0.lock().unwrap().clear();
        assert_eq!(masked("later-secret"), "later-secret");
    }

    #[test]
    fn field_names_are_masked_and_no_value_is_lost() {
        let masker = Masker::new(["hunter2-hunter2".to_owned(), "hunter3-hunter3".to_owned()]);
        let mut value =
            json!({"a": [{"x hunter2-hunter2": 1, "x hunter3-hunter3": 2, "b": "hunter2-hunter2"}]});
        let masked = json!({"a": [{"x [masked]": 1, "x [masked]_": 2, "b": "[masked]"}]});
        let mut both = value.clone();
        masker.mask_texts(&mut value);
        masker.mask_names_and_values(&mut both);
        assert_eq!((&value, &both), (&masked, &masked));
    }

    #[test]
    fn cut_moves_before_a_secret_in_base64() {
        let masker = Masker::new(["hunter2-hunter2".to_owned()]);
        let text = "Basic dXNlcjpodW50ZXIyLWh1bnRlcjI= x";
        // From the first character that holds nothing but the secret to the last.
        for end in 14..32 {
            assert_eq!(masker.cut_before_secret(text.as_bytes(), end), 13, "{end}");
        }
    }

    #[test]
    fn names_are_judged_by_their_words() {
        for name in [
            "STRIPE_KEY",
            "apiKey",
            "MY_AUTH",
            "accessToken",
            "GITHUB_TOKEN",
            "db-password",
            "Cookie",
            "APIKEY",
        ] {
            assert!(Masker::is_secret_name(name), "{name}");
        }
        for name in
            ["path", "content", "keyboard", "monkey", "line_numbers", "tokenizer", "author", "oldString"]
        {
            assert!(!Masker::is_secret_name(name), "{name}");
        }
    }
}
