//! Who may see and change background work, and how surfaces answer. The operator may do everything. A client token may read
//! and change the work of its agents, unless it is read-only or limited to some tools.

use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::Response;
use gantry_domain::Identity;
use gantry_domain::http::{json_response, problem, refusal_response};
use gantry_protocol::WireError;
use gantry_store::DatabaseError;
use gantry_tool::{Refusal, RefusalCode, nearest, on_one_line};
use serde::{Deserialize, Serialize};

pub(crate) type Answer<T> = Result<T, WireError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Change,
}

/// Checks that the caller may use the work of an agent.
pub(crate) fn check(identity: &Identity, agent: &str, access: Access) -> Result<(), Refusal> {
    let Identity::Client(token) = identity else { return Ok(()) };
    identity.check_agent(agent)?;
    if access == Access::Read {
        return Ok(());
    }
    if token.read_only {
        let message = format!("the token \"{}\" is read-only", token.name);
        return Err(Refusal::new(RefusalCode::Denied, message));
    }
    if token.tools.is_some() {
        let message = format!(
            "the token \"{}\" is limited to some tools, and an agent would use its own tools",
            token.name
        );
        let hint = "use a token that was made without --tools";
        return Err(Refusal::new(RefusalCode::Denied, message).with_hint(hint));
    }
    Ok(())
}

/// Returns the agents whose work the caller may see. `None` means all.
pub(crate) fn own_agents(identity: &Identity) -> Option<&[String]> {
    match identity {
        Identity::Client(token) if !token.agents.iter().any(|agent| agent == "*") => Some(&token.agents),
        Identity::Client(_) | Identity::Operator | Identity::Page(_) => None,
    }
}

pub(crate) fn check_operator(identity: &Identity, what: &str) -> Result<(), Refusal> {
    match identity.is_operator() {
        true => Ok(()),
        false => {
            let refusal = Refusal::new(RefusalCode::Denied, format!("only the operator can {what}"));
            Err(refusal.with_hint("use the operator's token"))
        }
    }
}

/// Rejects an id that names nothing, or several things.
pub(crate) fn unknown_id(what: &str, id: &str, is_ambiguous: bool, lists: &str) -> Refusal {
    let shown = shown(id);
    let text = match is_ambiguous {
        true => format!("several {what}s have ids that start with {shown:?}; write more of the id"),
        false => format!("unknown {what} {shown:?}; `{lists}` lists them"),
    };
    Refusal::new(RefusalCode::InvalidInput, text)
}

/// The query of routes that confirm: the content hash of what the person read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    #[serde(default)]
    pub(crate) seen: Option<String>,
}

/// Characters of a content hash. It has to withstand a search for other content with the same hash.
const HASH_CHARS: usize = 16;

/// Returns a hash of what somebody is asked to allow.
pub(crate) fn content_hash(content: &impl Serialize) -> String {
    let text = serde_json::to_string(content).unwrap_or_default();
    let hash = blake3::hash(text.as_bytes()).to_hex();
    hash.get(..HASH_CHARS).unwrap_or_default().to_owned()
}

/// What a person may write to name a thing.
pub(crate) struct Named<'a> {
    pub(crate) id: &'a str,
    /// Things without a name have ids only.
    pub(crate) name: Option<&'a str>,
}

/// Characters of an id in a list of candidates, and candidates in it.
const SHOWN_ID: usize = 8;
const CANDIDATES: usize = 5;

/// Finds the only thing with this id, a unique beginning of its id, or its name. `lists` is the command that lists them.
///
/// An id comes before a name, so a name never hides a thing.
pub(crate) fn pick<T>(
    what: &str,
    written: &str,
    lists: &str,
    things: Vec<T>,
    named: impl Fn(&T) -> Named<'_>,
) -> Result<T, String> {
    let written = written.trim();
    let is_exact = |thing: &T| named(thing).id == written;
    let starts = |thing: &T| !written.is_empty() && named(thing).id.starts_with(&written.to_lowercase());
    let is_named =
        |thing: &T| named(thing).name.is_some_and(|name| name.to_lowercase() == written.to_lowercase());
    let tests: [&dyn Fn(&T) -> bool; 3] = [&is_exact, &starts, &is_named];
    for test in tests {
        let found: Vec<usize> = (0..things.len()).filter(|index| test(&things[*index])).collect();
        match found.as_slice() {
            [] => {}
            [one] => return things.into_iter().nth(*one).ok_or_else(String::new),
            several => {
                let candidates =
                    several.iter().take(CANDIDATES).map(|index| candidate(&named(&things[*index])));
                return Err(format!(
                    "{} {what}s match {:?}; write one of these ids: {}",
                    several.len(),
                    shown(written),
                    candidates.collect::<Vec<_>>().join(", ")
                ));
            }
        }
    }
    let near = nearest(written, things.iter().filter_map(|thing| named(thing).name));
    let near = near.first().map_or(String::new(), |near| format!("; did you mean {:?}?", on_one_line(near)));
    Err(format!("unknown {what} {:?}{near}; `{lists}` lists them", shown(written)))
}

fn candidate(named: &Named<'_>) -> String {
    let id = named.id.get(..SHOWN_ID).unwrap_or(named.id);
    match named.name {
        Some(name) => format!("{id} ({})", on_one_line(name)),
        None => id.to_owned(),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Finds what is wrong with a name for people: control characters and invisible characters could imitate other text.
pub(crate) fn name_problem(field: &str, text: &str) -> Option<String> {
    (on_one_line(text) != text)
        .then(|| format!("{field}: must not have control characters or invisible characters"))
}

/// As [`name_problem`], for a text of several lines.
pub(crate) fn text_problem(field: &str, text: &str) -> Option<String> {
    text.split(['\n', '\t']).find_map(|line| name_problem(field, line.trim_end_matches('\r')))
}

pub(crate) fn store_refusal(err: DatabaseError) -> Refusal {
    let code = match &err {
        DatabaseError::Refused(_) => RefusalCode::InvalidInput,
        _ => RefusalCode::Unavailable,
    };
    Refusal::new(code, err.to_string())
}

pub(crate) fn wire(refusal: Refusal) -> WireError {
    refusal.to_wire()
}

pub(crate) fn answered<T: Serialize>(answer: Result<T, Refusal>) -> Response {
    match answer {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(refusal) => refusal_response(&refusal),
    }
}

pub(crate) fn bad_query(err: &QueryRejection) -> Response {
    problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(written: &str) -> Result<&'static str, String> {
        let things = vec![
            ("3f2a91c0ff", "Report"),
            ("3f99000000", "news"),
            ("abcdef0000", "News"),
            ("beef000000", "3f2a"),
        ];
        pick("job", written, "gantry cron", things, |thing| Named { id: thing.0, name: Some(thing.1) })
            .map(|thing| thing.0)
    }

    #[test]
    fn ids_unique_beginnings_and_unique_names_are_found() {
        assert_eq!(found("abcdef0000"), Ok("abcdef0000"));
        assert_eq!(found("3F2A"), Ok("3f2a91c0ff"), "a beginning of an id comes before a name");
        assert_eq!(found(" report "), Ok("3f2a91c0ff"));
        assert_eq!(
            found("3f").unwrap_err(),
            "2 jobs match \"3f\"; write one of these ids: 3f2a91c0 (Report), 3f990000 (news)"
        );
        assert!(found("news").unwrap_err().contains("3f990000 (news), abcdef00 (News)"));
        assert_eq!(
            found("Reprot").unwrap_err(),
            "unknown job \"Reprot\"; did you mean \"Report\"?; `gantry cron` lists them"
        );
        assert!(found("").is_err());
    }

    #[test]
    fn names_with_control_or_invisible_characters_are_rejected() {
        for bad in ["a\u{1b}[2J", "a\nb", "a\u{202e}b", "a\u{200b}", "\u{7}"] {
            assert!(name_problem("title", bad).is_some(), "{bad:?}");
        }
        for good in ["Größe 5 – ok", "日本語", "👩‍👧"] {
            assert_eq!(name_problem("title", good), None, "{good:?}");
        }
        assert_eq!(text_problem("description", "a\n\tb\r\nc"), None);
        assert!(text_problem("description", "a\n\u{1b}]0;x").is_some());
    }
}
