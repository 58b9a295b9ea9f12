//! The part of Gmail's search syntax that tests use. An unknown operator is an error, so that no test passes by chance.

use super::{Mail, payload};

#[derive(Debug, PartialEq)]
pub(super) enum Term {
    Header(&'static str, String),
    Label(String),
    NewerThan(i64),
    Text(String),
}

const DAY: i64 = 24 * 60 * 60 * 1000;

pub(super) fn parse(query: &str) -> Result<Vec<Term>, String> {
    let mut terms = Vec::new();
    for word in query.split_whitespace() {
        let Some((name, value)) = word.split_once(':') else {
            terms.push(Term::Text(word.trim_matches('"').to_lowercase()));
            continue;
        };
        let value = value.trim_matches('"').to_lowercase();
        terms.push(match name {
            "from" => Term::Header("From", value),
            "to" => Term::Header("To", value),
            "subject" => Term::Header("Subject", value),
            "is" | "in" | "label" => Term::Label(value.to_uppercase()),
            "newer_than" => {
                let days = value.strip_suffix('d').and_then(|days| days.parse::<i64>().ok());
                Term::NewerThan(days.ok_or("newer_than wants days")? * DAY)
            }
            other => return Err(format!("this server has no operator {other}:")),
        });
    }
    Ok(terms)
}

pub(super) fn matches(terms: &[Term], mail: &Mail) -> bool {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    let header = |name: &str| payload::header(&mail.bytes, name).unwrap_or_default().to_lowercase();
    let has = |label: &str| mail.labels.iter().any(|known| known == label);
    let is_hidden = has("DRAFT") || has("SPAM") || has("TRASH");
    !is_hidden
        && terms.iter().all(|term| match term {
            Term::Header(name, value) => header(name).contains(value),
            Term::Label(label) => has(label),
            Term::NewerThan(span) => mail.received >= now - span,
            Term::Text(text) => String::from_utf8_lossy(&mail.bytes).to_lowercase().contains(text),
        })
}
