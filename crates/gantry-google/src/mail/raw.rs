//! Reads the bytes of a message into [`Headers`] and a [`Part`].

use mail_parser::{Message, MessageParser, MessagePart, MimeHeaders, PartType};

use super::headers::Headers;
use super::part::{Content, Part, is_known_charset};

/// Deeper parts are read as bytes.
const MAX_DEPTH: usize = 30;

/// Reads a whole message. Returns `None` for bytes that are not one.
pub(crate) fn read(bytes: &[u8]) -> Option<(Headers, Part)> {
    let mail = MessageParser::default().parse(bytes)?;
    let root = mail.part(0)?;
    Some((Headers::of(&mail), part(&mail, root, 0)))
}

fn part(mail: &Message<'_>, read: &MessagePart<'_>, depth: usize) -> Part {
    let kind = read.content_type();
    let mime = match kind {
        Some(kind) => format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("octet-stream")).to_lowercase(),
        None => "text/plain".to_owned(),
    };
    let charset = kind.and_then(|kind| kind.attribute("charset")).map(str::to_owned);
    let is_unknown = charset.as_deref().is_some_and(|charset| !is_known_charset(charset));
    let content = match &read.body {
        PartType::Multipart(ids) if depth < MAX_DEPTH => {
            let parts = ids.iter().filter_map(|id| mail.part(*id));
            Content::Parts(parts.map(|read| part(mail, read, depth + 1)).collect())
        }
        PartType::Message(inner) if depth < MAX_DEPTH => {
            Content::Parts(inner.part(0).map(|read| part(inner, read, depth + 1)).into_iter().collect())
        }
        PartType::Text(text) | PartType::Html(text) if !is_unknown => Content::Text(text.to_string()),
        _ => Content::Bytes(read.contents().to_vec()),
    };
    Part {
        mime,
        charset,
        name: read.attachment_name().map(str::to_owned),
        is_attachment: read.content_disposition().is_some_and(|kind| kind.is_attachment()),
        content,
    }
}
