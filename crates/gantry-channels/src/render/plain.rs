//! Plain text, for webhooks and for messages whose formatting a provider rejected.

use super::flat::{Layout, Links, Quotes, Tables, flat};
use super::{Block, blocks};

const LAYOUT: Layout = Layout { tables: Tables::Columns, links: Links::Written, quotes: Quotes::Written };

/// Renders Markdown as plain text.
pub(crate) fn render(markdown: &str) -> String {
    render_blocks(&blocks(markdown))
}

pub(crate) fn render_blocks(blocks: &[Block]) -> String {
    flat(blocks, LAYOUT).text
}
