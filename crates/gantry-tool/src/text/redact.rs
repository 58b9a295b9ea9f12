//! Redacts inputs and refusals for the audit log, and inputs in approval questions: secrets are masked,
//! and the size is bounded.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use gantry_protocol::AskedAction;

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
/// Paths that an approval question names.
const ASKED_PATHS: usize = 20;
const NOT_SHOWN: &str = "charactersNotShown";
const SHOWN_NAMES: usize = 32;
const NAME_CHARS: usize = 64;

pub(crate) fn input(masker: &Masker, input: &Value) -> Value {
    let masker = masker.now();
    bounded(&masker, input, shortened(&masker, input, string), INPUT_BYTES)
}

/// The input for a person who decides on a call. Shows both ends of long strings, because harm may be at either.
pub(crate) fn asked(masker: &Masker, input: &Value) -> Value {
    let masker = masker.now();
    let shown = shortened(&masker, input, both_ends);
    let is_whole = shown.to_string().len() <= ASKED_BYTES;
    let mut shown = bounded(&masker, input, shown, ASKED_BYTES);
    if let Some(fields) = shown.as_object_mut().filter(|_| !is_whole) {
        fields.insert(NOT_SHOWN.to_owned(), json!(input.to_string().chars().count()));
    }
    shown
}

/// The description of a call for a person who decides on it: secrets are masked first, then long texts are shortened.
pub(crate) fn asked_action(masker: &Masker, action: &AskedAction) -> AskedAction {
    let masker = &masker.now();
    let mut hidden = 0;
    let mut text = |text: &str| {
        let (shown, count) = shown_ends(&masked_text(masker, text));
        hidden += count;
        shown
    };
    let mut action = match action.clone() {
        AskedAction::Command { command, machine, directory, escalation, sandboxed, .. } => {
            let (command, escalation) = (text(&command), escalation.map(|reason| text(&reason)));
            let directory = directory.map(|path| text(&path));
            AskedAction::Command { command, machine, directory, escalation, sandboxed, not_shown: 0 }
        }
        AskedAction::FileChange { machine, mut paths, change, text: changed, .. } => {
            let more = paths.split_off(paths.len().min(ASKED_PATHS));
            hidden_paths(&mut paths, &more);
            let paths = paths.iter().map(|path| text(path)).collect();
            AskedAction::FileChange { machine, paths, change, text: text(&changed), not_shown: 0 }
        }
        AskedAction::FileRead { machine, path } => AskedAction::FileRead { machine, path: text(&path) },
        AskedAction::WebRequest { method, url, host, sent, .. } => {
            let (method, url, host) = (text(&method), text(&url), text(&host));
            AskedAction::WebRequest { method, url, host, sent: sent.map(|sent| text(&sent)), not_shown: 0 }
        }
        AskedAction::Connection { host, port, command } => {
            AskedAction::Connection { host: text(&host), port, command: command.map(|line| text(&line)) }
        }
        AskedAction::Message { to, text: message, .. } => {
            AskedAction::Message { to: text(&to), text: text(&message), not_shown: 0 }
        }
        AskedAction::ServiceChange { service, what, text: details, .. } => {
            AskedAction::ServiceChange { service, what: text(&what), text: text(&details), not_shown: 0 }
        }
        AskedAction::Schedule { what, when, text: task, .. } => {
            AskedAction::Schedule { what: text(&what), when: text(&when), text: text(&task), not_shown: 0 }
        }
        AskedAction::Other { tool, input, .. } => {
            let input = asked(masker, &input);
            hidden = hidden_chars(&input);
            AskedAction::Other { tool, input, not_shown: 0 }
        }
        AskedAction::Unknown => AskedAction::Unknown,
    };
    match &mut action {
        AskedAction::Command { not_shown, .. }
        | AskedAction::FileChange { not_shown, .. }
        | AskedAction::WebRequest { not_shown, .. }
        | AskedAction::Message { not_shown, .. }
        | AskedAction::ServiceChange { not_shown, .. }
        | AskedAction::Schedule { not_shown, .. }
        | AskedAction::Other { not_shown, .. } => *not_shown = hidden,
        AskedAction::FileRead { .. } | AskedAction::Connection { .. } | AskedAction::Unknown => {}
    }
    action
}

fn hidden_paths(paths: &mut Vec<String>, more: &[String]) {
    if !more.is_empty() {
        paths.push(format!("{} more files", more.len()));
    }
}

/// Masks known secrets, and secrets by their form.
pub(crate) fn masked_text(masker: &Masker, text: &str) -> String {
    masked_forms(&masked(masker, text))
}

/// Both ends of a long text, and the number of characters between them.
fn shown_ends(text: &str) -> (String, u64) {
    let total = text.chars().count();
    if total <= 2 * ASKED_END_CHARS {
        return (text.to_owned(), 0);
    }
    let count = total - 2 * ASKED_END_CHARS;
    let head: String = text.chars().take(ASKED_END_CHARS).collect();
    let tail: String = text.chars().skip(total - ASKED_END_CHARS).collect();
    (
        format!("{head}\n[… {count} characters are not shown …]\n{tail}"),
        u64::try_from(count).unwrap_or(u64::MAX),
    )
}

/// The number of characters that [`asked`] did not show.
fn hidden_chars(input: &Value) -> u64 {
    match input {
        Value::Object(fields) => {
            let own = fields.get(NOT_SHOWN).and_then(Value::as_u64).unwrap_or(0);
            fields.values().map(hidden_chars).fold(own, u64::saturating_add)
        }
        Value::Array(items) => items.iter().map(hidden_chars).fold(0, u64::saturating_add),
        _ => 0,
    }
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
    json!({"begins": head, "ends": tail, NOT_SHOWN: total - 2 * ASKED_END_CHARS})
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
    use crate::tool::asked;

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
    fn descriptions_are_masked_before_they_are_cut() {
        let masker = Masker::new(["hunter2-hunter2".to_owned()]);
        // The secret lies across the place of the cut.
        let long = format!("{}hunter2-hunter2{}", "a".repeat(ASKED_END_CHARS - 5), "b".repeat(20_000));
        let command = |command: String| AskedAction::Command {
            command,
            machine: "local".into(),
            directory: Some("hunter2-hunter2".into()),
            escalation: None,
            sandboxed: true,
            not_shown: 0,
        };
        let shown = asked_action(&masker, &command(long));
        let AskedAction::Command { command: text, directory, not_shown, .. } = &shown else { panic!() };
        assert!(!text.contains("hunte") && text.len() < 5_000, "{text}");
        assert_eq!((directory.as_deref(), *not_shown > 15_000), (Some("[masked]"), true));
        assert!(text.contains(&format!("[… {not_shown} characters are not shown …]")));
        let short = command("ls".into());
        assert_eq!(asked_action(&Masker::default(), &short), short);
        let other = asked::other("x", &json!({"content": "y".repeat(10_000)}));
        assert_eq!(asked_action(&masker, &other).not_shown(), 6_000);
        let many = asked::other("x", &json!({"argv": vec!["x".repeat(3_000); 400]}));
        assert!(asked_action(&masker, &many).not_shown() > 1_000_000);
        let paths: Vec<String> = (0..1_000).map(|number| format!("/w/{number}")).collect();
        let change = gantry_protocol::ChangeKind::Delete;
        let text = String::new();
        let files = AskedAction::FileChange { machine: "local".into(), paths, change, text, not_shown: 0 };
        let AskedAction::FileChange { paths, .. } = asked_action(&masker, &files) else { panic!() };
        assert_eq!((paths.len(), &*paths[ASKED_PATHS]), (ASKED_PATHS + 1, "980 more files"));
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
