//! The work that `cargo xtask bench google` measures.

use super::compose::{Attached, Letter};
use super::part::Content;
use super::{Mailbox, raw};

const ATTACHMENT_BYTES: usize = 30_000;

/// Builds messages with two attachments each, and reads them again. Returns the bytes of all texts and attachments.
pub fn build_and_read_mails(count: usize) -> usize {
    let file: Vec<u8> = (0..ATTACHMENT_BYTES).map(|number| (number * 31 % 251) as u8).collect();
    let mut total = 0;
    for number in 0..count {
        let mailbox = |name: &str| Mailbox {
            name: Some(name.to_owned()),
            address: format!("user{number}@example.org"),
        };
        let attached = |name: &str| Attached {
            name: name.to_owned(),
            mime: "application/pdf".to_owned(),
            bytes: file.clone(),
        };
        let letter = Letter {
            from: Some(mailbox("Ann Example")),
            to: vec![mailbox("Jürgen Müller")],
            subject: format!("Grüße aus Köln, Nummer {number}"),
            text: "Liebe Grüße,\nund noch eine Zeile.\n".repeat(50),
            attachments: vec![attached("Bericht.pdf"), attached("Übersicht.pdf")],
            ..Letter::default()
        };
        let Ok(built) = letter.build() else { continue };
        let Some((_, part)) = raw::read(&built.bytes) else { continue };
        total += part.text().text.len();
        for file in part.attachments() {
            if let Content::Bytes(bytes) = file.content {
                total += bytes.len();
            }
        }
    }
    total
}
