//! Reads events as homeservers send them. Fields that are missing or of another type are never an error: other servers
//! and other people's programs wrote them.

use serde_json::Value;

use crate::adapter::{Media, MediaKind};

const MAX_ID: usize = 255;
const MAX_TEXT: usize = 65_536;

/// One event of a room.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) sender: String,
    pub(super) state_key: Option<String>,
    pub(super) at: i64,
    pub(super) content: Value,
    /// For membership events: what the membership was before.
    pub(super) old_membership: Option<String>,
}

impl Event {
    pub(super) fn read(value: &Value) -> Option<Event> {
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        let event = Event {
            id: text("event_id").filter(|id| is_id(id, '$'))?,
            kind: text("type")?,
            sender: text("sender").filter(|id| is_id(id, '@'))?,
            state_key: text("state_key"),
            at: value["origin_server_ts"].as_i64().unwrap_or(0),
            content: value["content"].clone(),
            old_membership: value["unsigned"]["prev_content"]["membership"].as_str().map(str::to_owned),
        };
        Some(event)
    }

    pub(super) fn membership(&self) -> Option<&str> {
        (self.kind == "m.room.member").then(|| self.content["membership"].as_str())?
    }
}

/// Reports whether a text can be an id: `@person:server`, `!room:server`, `$event`.
pub(super) fn is_id(text: &str, sigil: char) -> bool {
    text.len() > 1
        && text.len() <= MAX_ID
        && text.starts_with(sigil)
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// What an `m.room.message` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    /// The old way to quote: lines with `>` before the text. The sender wrote them.
    pub(super) quoted: Option<String>,
    pub(super) media: Option<Media>,
    /// The event that this one replaces.
    pub(super) edit_of: Option<String>,
    pub(super) reply_to: Option<String>,
    /// The first event of the thread.
    pub(super) thread: Option<String>,
}

impl Said {
    /// Returns nothing for notices, which must not be answered, and for what says nothing.
    pub(super) fn read(content: &Value, own: &Own) -> Option<Said> {
        let relation = &content["m.relates_to"];
        let relates_by = |kind: &str| relation["rel_type"].as_str() == Some(kind);
        let event_id = |value: &Value| value.as_str().filter(|id| is_id(id, '$')).map(str::to_owned);
        let edit_of = if relates_by("m.replace") { event_id(&relation["event_id"]) } else { None };
        let said = if edit_of.is_some() { &content["m.new_content"] } else { content };
        let kind = said["msgtype"].as_str()?;
        if matches!(kind, "m.notice" | "m.server_notice") || kind.starts_with("m.key.verification") {
            return None;
        }
        let thread = if relates_by("m.thread") { event_id(&relation["event_id"]) } else { None };
        // Within a thread, the reply may only be there for clients that know no threads.
        let is_fallback = thread.is_some() && relation["is_falling_back"].as_bool() == Some(true);
        let reply_to = event_id(&relation["m.in_reply_to"]["event_id"]).filter(|_| !is_fallback);
        let body: String = said["body"].as_str().unwrap_or_default().chars().take(MAX_TEXT).collect();
        let media = media(said, kind, &body);
        let text = match (&media, said["filename"].as_str()) {
            // Without a file name, the body is the file name and there is no caption.
            (Some(_), None) => String::new(),
            (Some(_), Some(name)) if name == body => String::new(),
            _ => body,
        };
        let has_reply = relation["m.in_reply_to"].is_object();
        let (quoted, text) = if has_reply { split_quote(&text) } else { (None, text.as_str()) };
        let text = own.without_mention(text, said["formatted_body"].as_str().unwrap_or_default());
        // A mention alone still calls the bot, although nothing is left of it.
        let is_empty = said["body"].as_str().is_none_or(|body| body.trim().is_empty());
        if is_empty && media.is_none() {
            return None;
        }
        Some(Said { text, quoted, media, edit_of, reply_to, thread })
    }
}

fn media(said: &Value, kind: &str, body: &str) -> Option<Media> {
    let kind = match kind {
        "m.image" => MediaKind::Image,
        "m.audio" => MediaKind::Audio,
        "m.video" => MediaKind::Video,
        "m.file" => MediaKind::Document,
        _ => return None,
    };
    let source = said["url"].as_str().filter(|url| mxc(url).is_some())?;
    let name = said["filename"].as_str().unwrap_or(body);
    let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_ID).collect();
    let mime = said["info"]["mimetype"].as_str().unwrap_or("application/octet-stream");
    Some(Media {
        kind,
        mime: mime.chars().filter(char::is_ascii_graphic).take(MAX_ID).collect(),
        name: Some(name).filter(|name| !name.is_empty()),
        size: said["info"]["size"].as_u64(),
        source: source.to_owned(),
    })
}

/// Splits `mxc://server/id`, if both parts are harmless in a path.
pub(super) fn mxc(source: &str) -> Option<(&str, &str)> {
    let (server, id) = source.strip_prefix("mxc://")?.split_once('/')?;
    let is_server = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let is_media = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let fits = |text: &str| !text.is_empty() && text.len() <= MAX_ID;
    let is_valid = fits(server) && fits(id) && server.chars().all(is_server) && id.chars().all(is_media);
    (is_valid && server.contains(|c: char| c.is_ascii_alphanumeric())).then_some((server, id))
}

/// Separates the lines with `>` that clients used to put before a reply.
fn split_quote(body: &str) -> (Option<String>, &str) {
    let mut quoted = String::new();
    let mut rest = body;
    while let Some(after) = rest.strip_prefix('>') {
        let (line, next) = after.split_once('\n').unwrap_or((after, ""));
        quoted.push_str(line.strip_prefix(' ').unwrap_or(line));
        quoted.push('\n');
        rest = next;
    }
    match quoted.is_empty() {
        true => (None, body),
        false => (Some(quoted.trim_end().to_owned()), rest.trim_start_matches('\n')),
    }
}

/// The account itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    pub(super) id: String,
    pub(super) name: String,
}

impl Own {
    /// Reports whether a message mentions the account. A mention of the whole room does not count.
    pub(super) fn is_mentioned(&self, content: &Value) -> bool {
        if let Some(mentions) = content.get("m.mentions").filter(|mentions| mentions.is_object()) {
            let people = mentions["user_ids"].as_array();
            return people.is_some_and(|people| people.iter().any(|id| id.as_str() == Some(&self.id)));
        }
        // Older clients do not list whom they mention.
        let body = content["body"].as_str().unwrap_or_default();
        let html = content["formatted_body"].as_str().unwrap_or_default();
        self.pill(html).is_some() || find_whole(body, &self.id).is_some() || self.is_called(body)
    }

    /// Reports whether a text starts with the account's name and a colon or comma.
    fn is_called(&self, body: &str) -> bool {
        let rest =
            (!self.name.is_empty()).then(|| body.trim_start().strip_prefix(self.name.as_str())).flatten();
        rest.is_some_and(|rest| rest.starts_with([':', ',']))
    }

    /// The text of the link by which clients mention the account.
    fn pill<'a>(&self, html: &'a str) -> Option<&'a str> {
        let encoded = self.id.replace('@', "%40").replace(':', "%3A");
        let links =
            [format!("https://matrix.to/#/{}\"", self.id), format!("https://matrix.to/#/{encoded}\"")];
        let at = links.iter().find_map(|link| Some(html.find(link.as_str())? + link.len()))?;
        let (_, after) = html.get(at..)?.split_once('>')?;
        after.split_once("</a>").map(|(text, _)| text)
    }

    fn without_mention(&self, text: &str, html: &str) -> String {
        let local = self.id.split(':').next().unwrap_or_default();
        let pill = self.pill(html).unwrap_or_default();
        let trimmed = text.trim();
        let names = [self.id.as_str(), pill, self.name.as_str(), local];
        for name in names.into_iter().filter(|name| name.len() > 1) {
            let called = trimmed.strip_prefix(name).or_else(|| trimmed.strip_prefix('@')?.strip_prefix(name));
            // A longer word that begins alike, such as a link code, is not this account's name.
            let is_word = |c: char| is_name(c) || c == '-';
            if let Some(rest) = called.filter(|rest| !rest.starts_with(is_word)) {
                return rest.trim_start_matches([':', ',']).trim().to_owned();
            }
        }
        for name in [self.id.as_str(), pill].into_iter().filter(|name| name.len() > 1) {
            if let Some(at) = find_whole(trimmed, name) {
                let (before, after) = (&trimmed[..at], &trimmed[at + name.len()..]);
                let after = if before.ends_with(' ') { after.trim_start_matches(' ') } else { after };
                return format!("{before}{after}").trim().to_owned();
            }
        }
        trimmed.to_owned()
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Finds `name` where it is not part of a longer word.
fn find_whole(text: &str, name: &str) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    text.match_indices(name).map(|(at, _)| at).find(|at| {
        let (before, after) = (&text[..*at], &text[at + name.len()..]);
        !before.ends_with(is_name) && !after.starts_with(is_name)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own() -> Own {
        Own { id: "@gantry:example.org".into(), name: "Gantry".into() }
    }

    fn said(content: Value) -> Option<Said> {
        Said::read(&content, &own())
    }

    #[test]
    fn mentions_are_those_of_the_account_alone() {
        let body = json!({"body": "Gantry: hi"});
        for (content, is_mentioned) in [
            (json!({"m.mentions": {"user_ids": ["@gantry:example.org"]}}), true),
            (json!({"m.mentions": {"room": true}, "body": "@room @gantry:example.org"}), false),
            (json!({"m.mentions": {"user_ids": ["@gantry:example.org.evil", 7]}}), false),
            (json!({"m.mentions": {}, "body": "Gantry: hi"}), false),
            (body, true),
            (json!({"body": "tell @gantry:example.org2"}), false),
            (json!({"body": "tell @gantry:example.org that"}), true),
            (
                json!({"body": "x", "formatted_body": "<a href=\"https://matrix.to/#/@gantry:example.org\">G</a>"}),
                true,
            ),
            (json!({"body": "I like Gantry"}), false),
            (json!({"body": ["not a text"], "m.mentions": "odd"}), false),
        ] {
            assert_eq!(own().is_mentioned(&content), is_mentioned, "{content}");
        }
    }

    #[test]
    fn mention_is_removed_from_the_text() {
        let html = "<a href=\"https://matrix.to/#/@gantry:example.org\">Gantry</a>";
        for (body, html, text) in [
            ("Gantry: hello", "", "hello"),
            ("@gantry:example.org hello", "", "hello"),
            ("@gantry, hello", "", "hello"),
            ("hello Gantry you", html, "hello you"),
            ("hello @gantry:example.org, you", "", "hello , you"),
            ("Gantryman: hello", "", "Gantryman: hello"),
            ("Gantry-link-abc", "", "Gantry-link-abc"),
            ("hello Gantry", "", "hello Gantry"),
        ] {
            assert_eq!(own().without_mention(body, html), text, "{body}");
        }
    }

    #[test]
    fn notices_verification_and_redacted_messages_say_nothing() {
        for content in [
            json!({"msgtype": "m.notice", "body": "I am a bot"}),
            json!({"msgtype": "m.key.verification.request", "body": "verify"}),
            json!({"msgtype": "m.server_notice", "body": "x"}),
            json!({}),
            json!({"msgtype": "m.text", "body": "  "}),
            json!({"msgtype": 3, "body": {}}),
            json!("text"),
            json!({"m.relates_to": {"rel_type": "m.replace", "event_id": "$a"},
                   "m.new_content": {"msgtype": "m.notice", "body": "b"}, "msgtype": "m.text", "body": "x"}),
        ] {
            assert_eq!(said(content.clone()), None, "{content}");
        }
    }

    #[test]
    fn relations_are_read() {
        let reply = said(json!({"msgtype": "m.text", "body": "> <@a:b> old\n> more\n\nnew",
            "m.relates_to": {"m.in_reply_to": {"event_id": "$r"}}}))
        .unwrap();
        assert_eq!((reply.text.as_str(), reply.quoted.as_deref()), ("new", Some("<@a:b> old\nmore")));
        assert_eq!(reply.reply_to.as_deref(), Some("$r"));
        let in_thread = said(json!({"msgtype": "m.text", "body": "x", "m.relates_to":
            {"rel_type": "m.thread", "event_id": "$t", "is_falling_back": true, "m.in_reply_to": {"event_id": "$r"}}}))
        .unwrap();
        assert_eq!((in_thread.thread.as_deref(), in_thread.reply_to), (Some("$t"), None));
        let edit = said(json!({"msgtype": "m.text", "body": "* new", "m.new_content": {"msgtype": "m.text", "body": "new"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$e"}}))
        .unwrap();
        assert_eq!((edit.text.as_str(), edit.edit_of.as_deref()), ("new", Some("$e")));
        let not_a_quote = said(json!({"msgtype": "m.text", "body": "> mine"})).unwrap();
        assert_eq!(not_a_quote.text, "> mine");
    }

    #[test]
    fn files_have_a_name_and_maybe_a_caption() {
        let file = |body: &str, name: Option<&str>| {
            let mut content = json!({"msgtype": "m.image", "body": body, "url": "mxc://example.org/abc",
                "info": {"mimetype": "image/png\r\nx", "size": 3}});
            if let Some(name) = name {
                content["filename"] = json!(name);
            }
            let said = said(content).unwrap();
            let media = said.media.unwrap();
            assert_eq!(
                (media.mime.as_str(), media.size, media.kind),
                ("image/pngx", Some(3), MediaKind::Image)
            );
            (said.text, media.name.unwrap())
        };
        assert_eq!(file("a.png", None), (String::new(), "a.png".into()));
        assert_eq!(file("a.png", Some("a.png")), (String::new(), "a.png".into()));
        assert_eq!(file("look", Some("a.png")), ("look".into(), "a.png".into()));
    }

    #[test]
    fn hostile_ids_are_refused() {
        for source in [
            "https://evil.example/x",
            "mxc://server/../../x",
            "mxc://server/a/b",
            "mxc://../x",
            "mxc:///x",
            "mxc://server/",
            "mxc://server/a?b",
            "mxc://ser\nver/a",
        ] {
            assert_eq!(mxc(source), None, "{source}");
        }
        assert_eq!(mxc("mxc://[::1]:8448/aB_-9"), Some(("[::1]:8448", "aB_-9")));
        assert!(!is_id("!a\r\nb:c", '!') && !is_id("$", '$') && !is_id("abc", '$') && is_id("!Ab:c", '!'));
        assert!(!is_id(&format!("${}", "a".repeat(300)), '$'));
    }
}
