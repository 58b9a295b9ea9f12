//! Redacts inputs and refusals for the audit log, and inputs in approval questions: secrets are masked,
//! and the size is bounded.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::text::mask::Masker;

/// The log has longer strings as their beginning, length and hash.
const STRING_CHARS: usize = 512;
/// The length of that beginning.
const HEAD_CHARS: usize = 128;
/// The log has longer inputs as the names of their fields, size and hash.
const INPUT_BYTES: usize = 16 * 1024;
/// Characters that an approval question shows of both ends of a long string.
const ASKED_END_CHARS: usize = 2_000;
const ASKED_BYTES: usize = 64 * 1024;
/// What masked values are replaced by.
const MASKED: &str = "[masked]";
const SHOWN_NAMES: usize = 32;
const NAME_CHARS: usize = 64;

pub(crate) fn input(masker: &Masker, input: &Value) -> Value {
    let masker = masker.now();
    bounded(&masker, input, shortened(&masker, input, string), INPUT_BYTES)
}

/// The input for a person who decides on a call. Shows both ends of long strings, because harm may be at either.
pub(crate) fn asked(masker: &Masker, input: &Value) -> Value {
    let masker = masker.now();
    bounded(&masker, input, shortened(&masker, input, both_ends), ASKED_BYTES)
}

fn bounded(masker: &Masker, input: &Value, shortened: Value, limit: usize) -> Value {
    let text = shortened.to_string();
    if text.len() <= limit {
        return shortened;
    }
    let names = input.as_object().into_iter().flat_map(Map::keys);
    let names: Vec<String> =
        names.take(SHOWN_NAMES).map(|name| masked(masker, name).chars().take(NAME_CHARS).collect()).collect();
    json!({"fields": names, "bytes": input.to_string().len(), "blake3": blake3::hash(text.as_bytes()).to_hex().to_string()})
}

/// The beginnings of messages that name fields and do not quote values.
const NAMES_FIELDS: [&str; 3] = ["unknown field", "required field", "not valid JSON"];

/// The refusal with the paths of invalid values, without the values that most schema messages quote.
pub(crate) fn refusal(refusal: &Refusal) -> String {
    let mut text = refusal.message.clone();
    for violation in &refusal.violations {
        let place = if violation.path.is_empty() { "the input" } else { &violation.path };
        let is_safe = NAMES_FIELDS.iter().any(|start| violation.message.starts_with(start));
        match violation.message.split(';').next().filter(|_| is_safe) {
            Some(message) => text.push_str(&format!("; {place}: {message}")),
            None => text.push_str(&format!("; {place}")),
        }
    }
    bounded_text(&text)
}

pub(crate) fn bounded_text(text: &str) -> String {
    match text.char_indices().nth(STRING_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn shortened(masker: &Masker, value: &Value, string: fn(&Masker, &str) -> Value) -> Value {
    match value {
        Value::String(text) => string(masker, text),
        Value::Array(items) => items.iter().map(|item| shortened(masker, item, string)).collect(),
        Value::Object(object) => {
            let field = |(name, item): (&String, &Value)| {
                let secret = Masker::is_secret_name(name) && !item.is_null();
                let item = if secret { json!(MASKED) } else { shortened(masker, item, string) };
                (masked(masker, name), item)
            };
            object.iter().map(field).collect()
        }
        other => other.clone(),
    }
}

fn masked(masker: &Masker, name: &str) -> String {
    let mut name = name.to_owned();
    masker.mask_text(&mut name);
    name
}

fn string(masker: &Masker, text: &str) -> Value {
    if text.len() <= STRING_CHARS {
        return Value::String(masked_forms(&masked(masker, text)));
    }
    // Takes enough text that a secret across the cut is masked as a whole.
    let mut head: String = text.chars().take(HEAD_CHARS + masker.longest_secret().max(HEAD_CHARS)).collect();
    masker.mask_text(&mut head);
    let head: String = masked_forms(&head).chars().take(HEAD_CHARS).collect();
    json!({"head": head, "bytes": text.len(), "blake3": blake3::hash(text.as_bytes()).to_hex().to_string()})
}

fn both_ends(masker: &Masker, text: &str) -> Value {
    let text = masked_forms(&masked(masker, text));
    let total = text.chars().count();
    if total <= 2 * ASKED_END_CHARS {
        return Value::String(text);
    }
    let head: String = text.chars().take(ASKED_END_CHARS).collect();
    let tail: String = text.chars().skip(total - ASKED_END_CHARS).collect();
    json!({"begins": head, "ends": tail, "charactersNotShown": total - 2 * ASKED_END_CHARS})
}

/// Whether a recorded input is only the names of its fields, its size and its hash.
pub(crate) fn is_only_a_digest(recorded: &Value) -> bool {
    recorded.as_object().is_some_and(|object| {
        object.len() == 3 && ["fields", "bytes", "blake3"].iter().all(|name| object.contains_key(*name))
    })
}

/// Returns a recorded input with `text` for every masked or shortened part, and adds the paths of such values to `hidden`.
pub(crate) fn with_stand_ins(
    recorded: &Value,
    text: &str,
    path: &mut Vec<String>,
    hidden: &mut Vec<Vec<String>>,
) -> Value {
    let is_shortened = |object: &Map<String, Value>| {
        object.len() == 3 && ["head", "bytes", "blake3"].iter().all(|name| object.contains_key(*name))
    };
    match recorded {
        Value::String(known) if known.contains(MASKED) => {
            hidden.push(path.clone());
            Value::String(known.replace(MASKED, text))
        }
        Value::Object(object) if is_shortened(object) => {
            hidden.push(path.clone());
            Value::String(text.to_owned())
        }
        Value::Object(object) => {
            let mut filled = Map::new();
            for (name, value) in object {
                path.push(name.clone());
                filled.insert(name.clone(), with_stand_ins(value, text, path, hidden));
                path.pop();
            }
            Value::Object(filled)
        }
        Value::Array(items) => {
            let mut filled = Vec::new();
            for (index, value) in items.iter().enumerate() {
                path.push(index.to_string());
                filled.push(with_stand_ins(value, text, path, hidden));
                path.pop();
            }
            Value::Array(filled)
        }
        other => other.clone(),
    }
}

/// Masks secrets by their form: values after a secret-looking name, and values with a well-known shape.
fn masked_forms(text: &str) -> String {
    // Most inputs contain none of these, and compiling the patterns takes milliseconds.
    const TRACES: [&str; 23] = [
        "bearer",
        "basic",
        "://",
        "token",
        "secret",
        "passw",
        "passphrase",
        "key",
        "authorization",
        "ghp",
        "gho",
        "ghs",
        "ghu",
        "github_pat",
        "glpat",
        "xox",
        "sk-",
        "sk_",
        "akia",
        "asia",
        "gto_",
        "gtc_",
        "gtn_",
    ];
    let lowered = text.to_ascii_lowercase();
    if !TRACES.iter().any(|trace| lowered.contains(trace)) {
        return text.to_owned();
    }
    static FORMS: OnceLock<Vec<(Regex, &str)>> = OnceLock::new();
    let forms = FORMS.get_or_init(|| {
        let forms = [
            (r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}", "$1 [masked]"),
            (r"(?i)([a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@", "$1:[masked]@"),
            (r#"(?i)\b([a-z0-9_-]*(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|authorization)[a-z0-9_-]*)(\s*[=:]\s*|\s+)("[^"]*"|'[^']*'|[^\s"'&;|]+)"#, "$1$2[masked]"),
            (r"\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abps]|sk|gt[ocn])[-_][A-Za-z0-9_-]{16,}", "[masked]"),
            (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "[masked]"),
            (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)", "[masked]"),
        ];
        forms.into_iter().filter_map(|(form, mask)| Some((Regex::new(form).ok()?, mask))).collect()
    });
    forms.iter().fold(text.to_owned(), |text, (form, mask)| match form.replace_all(&text, *mask) {
        Cow::Borrowed(_) => text,
        Cow::Owned(masked) => masked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_input_makes_a_long_line() {
        let masker = Masker::default();
        let many = json!({"argv": vec!["x".repeat(400); 4_000], "y".repeat(100_000): 1});
        let recorded = input(&masker, &many).to_string();
        assert!(recorded.len() < 8 * 1024, "{}", recorded.len());
        assert!(recorded.contains("argv"), "{recorded}");
    }

    #[test]
    fn secrets_in_names_of_fields_are_masked() {
        let masker = Masker::new(["hunter2-hunter2".to_owned()]);
        let secret = json!({"env": {"hunter2-hunter2": 1}, "x hunter2-hunter2": vec!["y"; 20_000]});
        for shown in [input(&masker, &secret), input(&masker, &secret["env"]), asked(&masker, &secret)] {
            let shown = shown.to_string();
            assert!(!shown.contains("hunter2") && shown.contains("[masked]"), "{shown}");
        }
    }

    #[test]
    fn approval_shows_both_ends_of_a_long_value() {
        let masker = Masker::new(["hunter2-hunter2".to_owned()]);
        let usual = format!("{}ssh-rsa evil", "# harmless\n".repeat(60));
        assert_eq!(asked(&masker, &json!({"content": usual}))["content"], json!(usual));
        let long = format!("{}hunter2-hunter2 ssh-rsa evil", "# harmless\n".repeat(6_000));
        let shown = asked(&masker, &json!({"content": long}));
        let ends = shown["content"]["ends"].as_str().unwrap();
        assert!(
            ends.ends_with("[masked] ssh-rsa evil")
                && shown["content"]["charactersNotShown"].as_u64() > Some(60_000)
        );
        let many = json!({"argv": vec!["x".repeat(3_000); 400]});
        assert!(asked(&masker, &many).to_string().len() < ASKED_BYTES);
    }

    #[test]
    fn a_secret_across_the_cut_is_masked() {
        let masker = Masker::new(["hunter2-hunter2".to_owned()]);
        let text = format!("{}hunter2-hunter2{}", "a".repeat(HEAD_CHARS - 5), "b".repeat(1_000));
        let recorded = input(&masker, &json!({"content": text})).to_string();
        assert!(!recorded.contains("hunter2") && !recorded.contains("hunte"), "{recorded}");
    }

    #[test]
    fn secrets_are_masked_by_their_form() {
        for (text, secret) in [
            ("curl -H 'Authorization: Bearer abc.def-ghi'", "abc.def-ghi"),
            ("git clone https://u:p4ssw0rd@host/x", "p4ssw0rd"),
            ("API_KEY=k1234567 run", "k1234567"),
            ("run --password=hunter3", "hunter3"),
            ("run --password hunter4", "hunter4"),
            ("ghp_0123456789abcdef0123", "0123456789abcdef"),
            ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
            ("echo gtn_0123456789abcdef0123", "0123456789abcdef"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n", "MIIE"),
        ] {
            let recorded = input(&Masker::default(), &json!({"command": text})).to_string();
            assert!(!recorded.contains(secret) && recorded.contains("[masked]"), "{recorded}");
        }
        let plain = json!({"command": "cargo test --workspace && git log --author me"});
        assert_eq!(input(&Masker::default(), &plain), plain);
    }
}
