//! How many tokens a request has, roughly and rather too many: for windows and budgets, before anybody counts.

use crate::{Block, Request};

/// Newer tokenizers make about a token of three bytes of English or of code. Other scripts take more bytes a letter, and
/// about as many tokens a byte.
const BYTES_A_TOKEN: u64 = 3;
/// The most that a provider counts for one; they scale larger ones down.
const TOKENS_AN_IMAGE: u64 = 4_800;
/// Roles, separators, ids.
const TOKENS_A_BLOCK: u64 = 12;
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
            TOKENS_A_BLOCK + of_text(&tool.name) + of_text(&tool.description) + of_text(&schema)
        })
        .sum();
    let overhead = if tools > 0 || request.native_web_search { TOKENS_OF_TOOLS } else { 0 };
    system + messages + tools + overhead
}

/// Of one block of a message.
pub fn estimate_block(block: &Block) -> u64 {
    of_block(block)
}

fn of_block(block: &Block) -> u64 {
    TOKENS_A_BLOCK
        + match block {
            Block::Text { text } => of_text(text),
            Block::Image { .. } => TOKENS_AN_IMAGE,
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

/// Results hold text and images only; anything else in one counts as its text.
fn of_flat_block(block: &Block) -> u64 {
    match block {
        Block::ToolResult { content, .. } => TOKENS_A_BLOCK * content.len() as u64,
        block => of_block(block),
    }
}

pub(crate) fn of_text(text: &str) -> u64 {
    (text.len() as u64).div_ceil(BYTES_A_TOKEN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Message, Role, SystemPart, ToolSpec};

    #[test]
    fn everything_in_a_request_counts() {
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
    fn other_scripts_are_not_underrated() {
        // Chinese takes about a token a letter, and three bytes.
        assert_eq!(of_text("漢字漢字"), 4);
    }
}
