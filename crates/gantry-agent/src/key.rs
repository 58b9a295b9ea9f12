//! [`SessionKey`] identifies a conversation. Names from channels are normalized. Keys that people type must already be
//! normalized, so that two names never mean the same conversation.

use serde::{Deserialize, Serialize};

pub(crate) const MAIN: &str = "main";
const MAX_ID: usize = 64;
const MAX_KEY: usize = 400;

/// The direct messages that share a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DmScope {
    /// All direct messages share the agent's main conversation.
    #[default]
    Main,
    PerPeer,
    PerChannelPeer,
    PerAccountChannelPeer,
}

/// A normalized key and the agent of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub key: String,
    pub agent: String,
}

/// The origin of a message from a channel.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub agent: &'a str,
    pub channel: &'a str,
    pub account: &'a str,
    /// `dm`, `group`, …
    pub kind: &'a str,
    pub peer: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    #[error("invalid session key {0:?}; a key is a word, such as main, or agent:NAME:…")]
    NoKey(String),
    #[error(
        "invalid session key {text:?}: only lowercase letters, digits and + - _ @ . are allowed; did you mean {near:?}?"
    )]
    Spelling { text: String, near: String },
}

impl SessionKey {
    /// Returns the key for a message from a channel.
    pub fn of(origin: &Origin<'_>, scope: DmScope) -> SessionKey {
        let agent = agent_id(origin.agent);
        let (channel, peer) = (token(origin.channel), peer_token(origin.peer));
        let rest = match (origin.kind, scope) {
            ("dm", DmScope::Main) => MAIN.to_owned(),
            ("dm", DmScope::PerPeer) => format!("dm:{peer}"),
            ("dm", DmScope::PerChannelPeer) => format!("{channel}:dm:{peer}"),
            ("dm", DmScope::PerAccountChannelPeer) => {
                format!("{channel}:{}:dm:{peer}", word(origin.account, "default"))
            }
            // Ids of groups are unique within an account only.
            (kind, _) => match word(origin.account, "default").as_str() {
                "default" => format!("{channel}:{}:{peer}", token(kind)),
                account => format!("{channel}:{account}:{}:{peer}", token(kind)),
            },
        };
        SessionKey { key: format!("agent:{agent}:{rest}"), agent }
    }

    /// Normalizes an agent's name.
    pub fn agent_name(text: &str) -> String {
        agent_id(text)
    }

    /// Parses a key: a whole key, or a word for a conversation of `agent`.
    pub fn parse(text: &str, agent: &str, scope: DmScope) -> Result<SessionKey, BadKey> {
        let shown = || text.chars().take(80).collect();
        let bad = || BadKey::NoKey(shown());
        let parts: Vec<&str> = text.trim().split(':').collect();
        if text.len() > MAX_KEY || parts.iter().any(|part| part.trim().is_empty()) {
            return Err(bad());
        }
        let (agent, rest) = match parts.as_slice() {
            ["agent", agent, rest @ ..] if !rest.is_empty() => (*agent, rest),
            [word] => (agent, std::slice::from_ref(word)),
            _ => return Err(bad()),
        };
        let (own, folded): (String, Vec<String>) =
            (agent_id(agent), rest.iter().map(|part| token(part)).collect());
        if own != agent || folded.iter().zip(rest).any(|(folded, part)| folded != part) {
            let near = format!("agent:{own}:{}", folded.join(":")).chars().take(200).collect();
            return Err(BadKey::Spelling { text: shown(), near });
        }
        let (agent, rest) = (own, folded);
        // The old name of the main conversation. Other direct messages have keys of their own: people who are not the
        // owner never share it.
        let is_main = matches!(rest.as_slice(), [_, kind, peer] if kind == "dm" && peer == MAIN);
        let rest = if is_main && scope == DmScope::Main { MAIN.to_owned() } else { rest.join(":") };
        Ok(SessionKey { key: format!("agent:{agent}:{rest}"), agent })
    }
}

fn agent_id(text: &str) -> String {
    word(text, MAIN)
}

/// Lower case, `[a-z0-9][a-z0-9_-]{0,63}`.
fn word(text: &str, otherwise: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
    let text: String = text.trim().to_lowercase().chars().map(fits).take(MAX_ID).collect();
    let text = text.trim_start_matches(['-', '_']);
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}

/// A provider's id in the form of a key. Ids may be case-sensitive, so an id that changes by that gets a hash of its exact
/// form: two chats never share a key.
fn peer_token(id: &str) -> String {
    let folded: String = token(id).chars().take(MAX_ID).collect();
    if folded == id {
        return folded;
    }
    format!("{folded}-{}", &blake3::hash(id.as_bytes()).to_hex()[..12])
}

fn token(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "+-_@.".contains(c) { c } else { '_' };
    text.trim().to_lowercase().chars().map(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_messages_share_conversations_as_configured() {
        let origin =
            Origin { agent: "Main", channel: "WhatsApp", account: "Work 1", kind: "dm", peer: "+4912" };
        for (scope, key) in [
            (DmScope::Main, "agent:main:main"),
            (DmScope::PerPeer, "agent:main:dm:+4912"),
            (DmScope::PerChannelPeer, "agent:main:whatsapp:dm:+4912"),
            (DmScope::PerAccountChannelPeer, "agent:main:whatsapp:work-1:dm:+4912"),
        ] {
            let made = SessionKey::of(&origin, scope);
            assert_eq!(made.key, key);
            assert_eq!(SessionKey::parse(&made.key, "x", scope).unwrap(), made, "the key is normalized");
            let read = SessionKey::parse(&made.key, "x", DmScope::Main).unwrap();
            assert_eq!(read, made, "a stored key keeps its meaning");
        }
        let group = SessionKey::of(&Origin { kind: "group", ..origin }, DmScope::Main);
        assert_eq!(group.key, "agent:main:whatsapp:work-1:group:+4912");
    }

    #[test]
    fn chats_whose_ids_differ_in_case_or_marks_have_keys_of_their_own() {
        let key = |peer: &str| {
            let origin = Origin { agent: "main", channel: "matrix", account: "default", kind: "group", peer };
            let made = SessionKey::of(&origin, DmScope::Main);
            assert_eq!(
                SessionKey::parse(&made.key, "x", DmScope::Main).unwrap(),
                made,
                "the key is normalized"
            );
            made.key
        };
        let long = "x".repeat(80);
        let ids = [
            "!AbC:example.org",
            "!abc:example.org",
            "!ABC:example.org",
            "_abc_example.org",
            &long,
            &long[1..],
        ];
        let keys: std::collections::BTreeSet<String> = ids.iter().map(|id| key(id)).collect();
        assert_eq!(keys.len(), ids.len(), "{keys:?}");
    }

    #[test]
    fn keys_that_are_not_normalized_are_rejected() {
        let parse = |text: &str| SessionKey::parse(text, "helper", DmScope::Main).map(|key| key.key).ok();
        assert_eq!(parse("main").as_deref(), Some("agent:helper:main"));
        assert_eq!(parse("agent:main:cli:dm:main").as_deref(), Some("agent:main:main"));
        assert_eq!(parse(" work ").as_deref(), Some("agent:helper:work"));
        for (text, near) in [
            ("f1Read", "agent:helper:f1read"),
            ("../../x", "agent:helper:.._.._x"),
            ("agent:Main:x", "agent:main:x"),
            ("agent:main:web:group:a b", "agent:main:web:group:a_b"),
        ] {
            let error = SessionKey::parse(text, "helper", DmScope::Main).unwrap_err().to_string();
            assert!(
                error.contains(&format!("did you mean {near:?}?")),
                "two names must not mean one session: {error}"
            );
        }
        for bad in ["", ":", "agent:main", "agent::x", "a:b", &"x".repeat(500)] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
