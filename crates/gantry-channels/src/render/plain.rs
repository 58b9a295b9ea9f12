//! Plain text: the other half of mails and of messages in Matrix, for programs that do not show HTML.

use super::blocks;
use super::flat::{Layout, Links, Quotes, Tables, flat};

const LAYOUT: Layout = Layout { tables: Tables::Columns, links: Links::Written, quotes: Quotes::Written };

/// Renders Markdown as plain text.
pub(crate) fn render(markdown: &str) -> String {
    flat(&blocks(markdown), LAYOUT).text
}
