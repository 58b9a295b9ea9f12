//! Files of messages: read from the provider within limits, and kept in the agent's storage below `inbox/`. The model sees
//! pictures itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_agent::Image;

use crate::adapter::{Inbound, Media, MediaKind};
use crate::chats::{Account, Chats};

/// The most files of one message, and the most bytes of one.
const MAX_FILES: usize = 10;
const MAX_BYTES: usize = 20 * 1024 * 1024;
/// The most pictures of one message that the model sees, and the most bytes of one.
const MAX_IMAGES: usize = 4;
const MAX_IMAGE: usize = 1536 * 1024;

/// The files of a message, for its session.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// A line for the model about each file.
    pub(crate) lines: Vec<String>,
    pub(crate) images: Vec<Image>,
}

/// Keeps the files of a message.
pub(crate) async fn keep(chats: &Chats, account: &Account, inbound: &Inbound) -> Kept {
    let mut kept = Kept::default();
    for (number, media) in inbound.media.iter().enumerate() {
        let kind = kind_name(media.kind);
        let shown: String = file_name(media, number);
        if number >= MAX_FILES {
            kept.lines.push(format!("{} more files were left out", inbound.media.len() - MAX_FILES));
            break;
        }
        if media.size.is_some_and(|size| size > MAX_BYTES as u64) {
            kept.lines.push(format!("{kind} {shown}: larger than {} MB, not read", MAX_BYTES / 1024 / 1024));
            continue;
        }
        let bytes = match account.adapter.fetch(media, MAX_BYTES).await {
            Ok(bytes) => bytes,
            Err(why) => {
                kept.lines.push(format!("{kind} {shown}: could not be read: {why}"));
                continue;
            }
        };
        let event = blake3::hash(inbound.event_id.as_bytes()).to_hex();
        let path = format!("inbox/{}-{}/{}-{shown}", account.channel, account.name, &event[..12]);
        match chats.parts.sessions.keep_file(&chats.parts.objects, &account.access.agent, &path, &bytes).await
        {
            Ok(()) => kept.lines.push(format!("{kind} gsv:{path}, {} bytes, {}", bytes.len(), media.mime)),
            Err(why) => kept.lines.push(format!("{kind} {shown}: could not be kept: {why}")),
        }
        if kept.images.len() < MAX_IMAGES && bytes.len() <= MAX_IMAGE {
            kept.images.extend(image(&bytes));
        }
    }
    kept
}

/// A picture that models can see, by its first bytes. What the provider calls it does not count.
fn image(bytes: &[u8]) -> Option<Image> {
    let media_type = match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => return None,
    };
    Some(Image { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) })
}

fn kind_name(kind: MediaKind) -> &'static str {
    match kind {
        MediaKind::Image => "image",
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
        MediaKind::Document => "file",
    }
}

/// A name without anything that could lead elsewhere.
fn file_name(media: &Media, number: usize) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = media.name.as_deref().unwrap_or_default();
    let name: String = name.chars().map(|c| if fits(c) { c } else { '_' }).take(80).collect();
    let name = name.trim_matches('.').to_owned();
    if name.is_empty() { format!("{}-{}", kind_name(media.kind), number + 1) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let named = |name: &str| {
            let media = Media {
                kind: MediaKind::Document,
                mime: "text/plain".into(),
                name: Some(name.into()),
                size: None,
                source: "x".into(),
            };
            file_name(&media, 0)
        };
        assert_eq!(named("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(named("a\r\nb.txt"), "a__b.txt");
        assert_eq!(named(".."), "file-1");
        assert_eq!(named("report.pdf"), "report.pdf");
    }

    #[test]
    fn pictures_are_recognised_by_their_bytes() {
        let seen = image(b"\x89PNG\r\n\x1a\nrest").unwrap();
        assert_eq!((seen.media_type.as_str(), seen.data.as_str()), ("image/png", "iVBORw0KGgpyZXN0"));
        assert_eq!(image(b"RIFF\0\0\0\0WEBPx").unwrap().media_type, "image/webp");
        assert_eq!(image(b"<svg onload=x>"), None);
        assert_eq!(image(b""), None);
    }
}
