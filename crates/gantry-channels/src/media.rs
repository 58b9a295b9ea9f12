//! Files of messages: read from the provider within limits, and kept in the agent's storage below `inbox/`.

use crate::adapter::{Inbound, Media, MediaKind};
use crate::chats::{Account, Chats};

/// The most files of one message, and the most bytes of one.
const MAX_FILES: usize = 10;
const MAX_BYTES: usize = 20 * 1024 * 1024;

/// Keeps the files of a message. Returns a line for the model about each.
pub(crate) async fn keep(chats: &Chats, account: &Account, inbound: &Inbound) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, media) in inbound.media.iter().enumerate() {
        let kind = kind_name(media.kind);
        let shown: String = file_name(media, number);
        if number >= MAX_FILES {
            lines.push(format!("{} more files were left out", inbound.media.len() - MAX_FILES));
            break;
        }
        if media.size.is_some_and(|size| size > MAX_BYTES as u64) {
            lines.push(format!("{kind} {shown}: larger than {} MB, not read", MAX_BYTES / 1024 / 1024));
            continue;
        }
        let bytes = match account.adapter.fetch(media, MAX_BYTES).await {
            Ok(bytes) => bytes,
            Err(why) => {
                lines.push(format!("{kind} {shown}: could not be read: {why}"));
                continue;
            }
        };
        let event = blake3::hash(inbound.event_id.as_bytes()).to_hex();
        let path = format!("inbox/{}-{}/{}-{shown}", account.channel, account.name, &event[..12]);
        match chats.parts.sessions.keep_file(&chats.parts.objects, &account.access.agent, &path, &bytes).await
        {
            Ok(()) => lines.push(format!("{kind} gsv:{path}, {} bytes, {}", bytes.len(), media.mime)),
            Err(why) => lines.push(format!("{kind} {shown}: could not be kept: {why}")),
        }
    }
    lines
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
}
