//! The model's window: limits for results, an estimate of a request's tokens, and the compaction of conversations.

use gantry_model::{Block, Message, Request, Role, count_estimate, estimate_block};

/// The estimated number of characters per token.
const CHARS_PER_TOKEN: usize = 3;
/// The smallest window that is assumed.
const SMALLEST_WINDOW: usize = 512;
/// A result is not shortened below this.
const SHORTEST_RESULT: usize = 1_000;
/// Characters of a result and of a message in the transcript for a summary.
const TRANSCRIPT_RESULT: usize = 1_500;
const TRANSCRIPT_MESSAGE: usize = 4_000;

/// A model's window in tokens, and the part that is used before the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) tokens: usize,
    /// The system prompt, the tools, and the answer.
    pub(crate) reserved: usize,
}

impl Window {
    /// The window while no model is selected.
    pub(crate) const UNKNOWN: Window = Window { tokens: usize::MAX / 16, reserved: 0 };

    /// Reserves the tokens of a request without messages, and of its answer.
    pub(crate) fn new(tokens: usize, empty: &Request) -> Window {
        let reserved = count_estimate(empty) + u64::from(empty.max_tokens);
        Window { tokens, reserved: usize::try_from(reserved).unwrap_or(usize::MAX) }
    }

    /// Estimates the tokens of a request with these messages and its answer.
    fn used(&self, messages: &[Message]) -> usize {
        self.reserved.saturating_add(tokens(messages))
    }

    /// Whether a request with these messages could overflow a window that is smaller than documented.
    pub(crate) fn may_overflow(&self, messages: &[Message]) -> bool {
        self.used(messages) > self.tokens / 2
    }

    /// Returns the largest possible window after the model rejected these messages. `named` is the window in the error.
    pub(crate) fn learned(&self, messages: &[Message], named: Option<usize>) -> usize {
        let refused = self.used(messages).min(self.tokens);
        match named {
            Some(named) if named < refused => named,
            // By the estimate it should have fit, so the estimate is wrong.
            _ => refused / 2,
        }
        .max(SMALLEST_WINDOW)
    }

    /// Returns the tokens for messages. A minimum stays even if the prompt fills the window.
    fn room(&self) -> usize {
        self.tokens.saturating_sub(self.reserved).max(self.tokens / 4).max(512)
    }

    /// Whether the conversation should be compacted before the next request.
    pub(crate) fn is_full(&self, messages: &[Message]) -> bool {
        tokens(messages) > self.room() * 9 / 10
    }

    /// The highest length of one result, in characters.
    pub(crate) fn result_chars(&self) -> usize {
        (self.room() * CHARS_PER_TOKEN / 6).max(SHORTEST_RESULT)
    }

    /// The highest length of all results of one reply together, in characters.
    pub(crate) fn results_chars(&self) -> usize {
        (self.room() * CHARS_PER_TOKEN / 3).max(SHORTEST_RESULT)
    }

    /// The tokens of recent messages that a compaction keeps unchanged.
    fn kept(&self) -> usize {
        self.room() / 2
    }

    /// The length of the transcript for a summary, in characters.
    fn transcript_chars(&self) -> usize {
        self.tokens * CHARS_PER_TOKEN / 2
    }
}

/// Estimates the tokens of messages. The estimate is rather too high than too low.
pub(crate) fn tokens(messages: &[Message]) -> usize {
    let blocks = messages.iter().flat_map(|message| &message.content).map(estimate_block);
    usize::try_from(blocks.sum::<u64>()).unwrap_or(usize::MAX)
}

/// Keeps the head and the tail of a text. `hint` says where the omitted part can be read.
pub(crate) fn shorten(text: &str, limit: usize, hint: &str) -> String {
    let total = text.chars().count();
    if total <= limit {
        return text.to_owned();
    }
    let (head, tail) = (limit * 2 / 3, limit / 3);
    let from: String = text.chars().take(head).collect();
    let until: String = text.chars().skip(total - tail).collect();
    format!("{from}\n[… {} of {total} characters omitted{hint} …]\n{until}", total - head - tail)
}

/// Returns the index of the first message that stays unchanged. A call stays together with its result: the cut is
/// before a message that holds no result.
pub(crate) fn cut(messages: &[Message], window: &Window) -> usize {
    let mut at = messages.len();
    let (mut kept, mut best) = (0, messages.len());
    while at > 0 {
        at -= 1;
        kept += tokens(&messages[at..=at]);
        if kept > window.kept() {
            break;
        }
        if can_begin(&messages[at]) {
            best = at;
        }
    }
    // If everything fits, the estimate was wrong or a user asked for the compaction: summarize everything.
    if best == 0 { messages.len() } else { best }
}

fn can_begin(message: &Message) -> bool {
    message.role == Role::Assistant
        || !message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
}

/// Returns the transcript that a model summarizes.
pub(crate) fn transcript(messages: &[Message], window: &Window) -> String {
    let lines: Vec<String> = messages.iter().flat_map(lines).collect();
    shorten(&lines.join("\n"), window.transcript_chars(), "")
}

/// Makes a summary without a model: the messages and the names of the calls.
pub(crate) fn mechanical(messages: &[Message], window: &Window) -> String {
    let mut lines: Vec<String> = Vec::new();
    for message in messages {
        for block in &message.content {
            match block {
                Block::Text { text } => {
                    let who = if message.role == Role::User { "user" } else { "assistant" };
                    lines.push(format!("{who}: {}", shorten(text, 600, "")));
                }
                Block::ToolUse { name, input, .. } => {
                    lines.push(format!("called {}", crate::state::step_name(name, input)));
                }
                _ => {}
            }
        }
    }
    shorten(&lines.join("\n"), (window.kept() * CHARS_PER_TOKEN / 2).clamp(SHORTEST_RESULT, 20_000), "")
}

fn lines(message: &Message) -> Vec<String> {
    let who = if message.role == Role::User { "user" } else { "assistant" };
    let line = |block: &Block| match block {
        Block::Text { text } => Some(format!("{who}: {}", shorten(text, TRANSCRIPT_MESSAGE, ""))),
        Block::Image { .. } => Some(format!("{who}: (an image)")),
        Block::ToolUse { name, input, .. } => {
            Some(format!("{who} called {name} with {}", shorten(&input.to_string(), TRANSCRIPT_RESULT, "")))
        }
        Block::ToolResult { content, is_error, .. } => {
            let text: Vec<String> = content.iter().filter_map(text_of).collect();
            let kind = if *is_error { "error" } else { "result" };
            Some(format!("{kind}: {}", shorten(&text.join("\n"), TRANSCRIPT_RESULT, "")))
        }
        Block::Thinking { .. } | Block::Provider { .. } => None,
    };
    message.content.iter().filter_map(line).collect()
}

fn text_of(block: &Block) -> Option<String> {
    match block {
        Block::Text { text } => Some(text.clone()),
        Block::Image { .. } => Some("(an image)".into()),
        _ => None,
    }
}

/// Replaces the older part of the conversation by a summary, which includes the current task.
pub(crate) fn compacted(messages: &[Message], at: usize, summary: &str, window: &Window) -> Vec<Message> {
    let limit = (window.room() * CHARS_PER_TOKEN / 4).max(SHORTEST_RESULT);
    let (older, recent) = messages.split_at(at.min(messages.len()));
    let task = older.iter().rev().find_map(request_in);
    let task = task.map_or(String::new(), |task| {
        format!("The last request in it was:\n{}\n\n", shorten(&task, limit / 4, ""))
    });
    let text = format!(
        "[The conversation up to here was replaced by this summary.]\n{task}{}\n[End of the summary.]",
        shorten(summary, limit, "")
    );
    let mut kept = vec![Message { role: Role::User, content: vec![Block::text(text)] }];
    for message in recent {
        match message.role {
            Role::User => crate::state::push_user(&mut kept, message.content.clone()),
            Role::Assistant => kept.push(message.clone()),
        }
    }
    kept
}

/// Reduces the conversation to its current task, for a window that holds no more.
pub(crate) fn task_alone(messages: &[Message], window: &Window) -> Vec<Message> {
    let limit = (window.room() * CHARS_PER_TOKEN / 4).min(SHORTEST_RESULT);
    let task = messages.iter().rev().find_map(request_in).unwrap_or_default();
    let text = format!(
        "[The conversation was too long for the model and is omitted. Its last request was:]\n{}",
        shorten(&task, limit, "")
    );
    vec![Message::user(text)]
}

/// Returns the request in a message. In a summary it is the request that the summary names.
fn request_in(message: &Message) -> Option<String> {
    if message.role != Role::User {
        return None;
    }
    let text = message.content.iter().rev().find_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    })?;
    match text.split_once("The last request in it was:\n") {
        Some((_, rest)) => rest.split_once("\n\n").map(|(task, _)| task.to_owned()),
        None => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WINDOW: Window = Window { tokens: 8_000, reserved: 2_000 };

    fn turn(number: usize) -> [Message; 2] {
        let id = format!("c{number}");
        let call = Block::ToolUse { id: id.clone(), name: "Read".into(), input: json!({}), malformed: None };
        let result = Block::ToolResult { id, content: vec![Block::text("x".repeat(900))], is_error: false };
        [
            Message { role: Role::Assistant, content: vec![call] },
            Message { role: Role::User, content: vec![result] },
        ]
    }

    #[test]
    fn compaction_keeps_calls_with_their_results_and_the_task() {
        let mut messages = vec![Message::user("count the files, please")];
        messages.extend((0..40).flat_map(turn));
        assert!(WINDOW.is_full(&messages));
        for _ in 0..3 {
            let at = cut(&messages, &WINDOW);
            assert!(at > 0 && can_begin(&messages[at]));
            messages = compacted(&messages, at, "files were read", &WINDOW);
            assert!(!WINDOW.is_full(&messages), "{}", tokens(&messages));
            assert!(messages[0].text().contains("count the files, please"), "{}", messages[0].text());
            assert_eq!(messages[1].role, Role::Assistant);
            messages.extend((0..40).flat_map(turn));
        }
    }

    #[test]
    fn one_huge_message_is_compacted() {
        let messages = vec![Message::user("x".repeat(100_000))];
        let at = cut(&messages, &WINDOW);
        assert_eq!(at, 1);
        let shorter = compacted(&messages, at, &mechanical(&messages, &WINDOW), &WINDOW);
        assert!(!WINDOW.is_full(&shorter), "{}", tokens(&shorter));
        assert!(transcript(&messages, &WINDOW).len() < 8_000 * 3);
    }

    #[test]
    fn shortened_text_reports_the_omitted_characters() {
        let short = shorten(&"ä".repeat(1_000), 90, "; ask for the rest");
        assert!(short.contains("[… 910 of 1000 characters omitted; ask for the rest …]"), "{short}");
        assert_eq!(shorten("abc", 3, ""), "abc");
    }
}
