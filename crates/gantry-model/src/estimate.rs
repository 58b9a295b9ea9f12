//! Estimates how many tokens a request has, rather too many than too few. It is used for windows
//! and budgets, before the provider counts.

use crate::{Block, Request};

/// Newer tokenizers use about one token for three bytes of English or code. Other scripts use more
/// bytes per letter, and about as many tokens per byte.
const BYTES_PER_TOKEN: u64 = 3;
/// The most that a provider counts for one image. Providers scale larger ones down.
const TOKENS_PER_IMAGE: u64 = 4_800;
/// Roles, separators and ids.
const TOKENS_PER_BLOCK: u64 = 12;
/// What providers add to requests with tools.
const TOKENS_OF_TOOLS: u64 = 700;

pub fn count_estimate(request: &Request) -> u64 {
    let system: u64 = request.system.iter().map(|part| of_text(&part.text)).sum();
    let messages: u64 = request.messages.iter().flat_map(|message| &message.content).map(of_block).sum();
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| {
            let schema = tool.input_schema.to_string();
            TOKENS_PER_BLOCK + of_text(&tool.name) + of_text(&tool.description) + of_text(&schema)
        })
        .sum();
    let overhead = if tools > 0 || request.native_web_search { TOKENS_OF_TOOLS } else { 0 };
    system + messages + tools + overhead
}

/// Estimates one block of a message.
pub fn estimate_block(block: &Block) -> u64 {
    of_block(block)
}

fn of_block(block: &Block) -> u64 {
    TOKENS_PER_BLOCK
        + match block {
            Block::Text { text } => of_text(text),
            Block::Image { .. } => TOKENS_PER_IMAGE,
            Block::Thinking { text, signature, .. } => {
                of_text(text) + signature.as_deref().map_or(0, of_text)
            }
            Block::ToolUse { name, input, malformed, .. } => {
                of_text(name) + malformed.as_deref().map_or_else(|| of_text(&input.to_string()), of_text)
            }
            Block::ToolResult { content, .. } => content.iter().map(of_flat_block).sum(),
            Block::Provider { block, .. } => of_text(&block.to_string()),
        }
}

/// Results hold only text and images. Anything else in one counts as its text.
fn of_flat_block(block: &Block) -> u64 {
    match block {
        Block::ToolResult { content, .. } => TOKENS_PER_BLOCK * content.len() as u64,
        block => of_block(block),
    }
}

pub(crate) fn of_text(text: &str) -> u64 {
    (text.len() as u64).div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Message, Role, SystemPart, ToolSpec};

    #[test]
    fn estimate_counts_every_part_of_a_request() {
        let mut request = Request { messages: vec![Message::user("x".repeat(300))], ..Request::default() };
        let mut last = count_estimate(&request);
        assert_eq!(last, 112);
        let mut grows = |request: &Request, by: u64| {
            let now = count_estimate(request);
            assert!(now >= last + by, "{now} after {last}, not {by} more");
            last = now;
        };
        request.system.push(SystemPart { text: "x".repeat(300), cache: true });
        grows(&request, 100);
        request.tools.push(ToolSpec {
            name: "t".into(),
            description: "x".repeat(300),
            input_schema: json!({"type": "object"}),
            eager_input_streaming: false,
        });
        grows(&request, 800);
        let image = Block::Image { media_type: "image/png".into(), data: "x".repeat(9) };
        let result = Block::ToolResult {
            id: "1".into(),
            content: vec![image, Block::text("x".repeat(300))],
            is_error: false,
        };
        request.messages.push(Message { role: Role::User, content: vec![result] });
        grows(&request, 4_900);
        let call = Block::ToolUse {
            id: "1".into(),
            name: "t".into(),
            input: json!({"a": "x".repeat(300)}),
            malformed: None,
        };
        request.messages.push(Message { role: Role::Assistant, content: vec![call] });
        grows(&request, 100);
    }

    #[test]
    fn other_scripts_are_not_underestimated() {
        // Chinese uses about one token per letter, and three bytes.
        assert_eq!(of_text("漢字漢字"), 4);
    }
}
