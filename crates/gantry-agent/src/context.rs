//! What fits into a model's window: results bounded one by one and in sum, an estimate of what a request costs, and where
//! a conversation may be parted.

use gantry_model::{Block, Message, Request, Role, count_estimate, estimate_block};

/// Characters to a token, as the estimate has it.
const CHARS_PER_TOKEN: usize = 3;
/// No model has less.
const SMALLEST_WINDOW: usize = 512;
/// The smallest a result is shortened to.
const SHORTEST_RESULT: usize = 1_000;
/// Of what older messages are told to whoever sums them up.
const TOLD_OF_RESULT: usize = 1_500;
const TOLD_OF_MESSAGE: usize = 4_000;

/// A model's window, in tokens, and what of it is taken before the conversation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) tokens: usize,
    /// The system prompt, the tools, and the answer.
    pub(crate) reserved: usize,
}

impl Window {
    /// Of a model that is not asked.
    pub(crate) const UNKNOWN: Window = Window { tokens: usize::MAX / 16, reserved: 0 };

    /// What of the window a request takes without its messages.
    pub(crate) fn new(tokens: usize, empty: &Request) -> Window {
        let reserved = count_estimate(empty) + u64::from(empty.max_tokens);
        Window { tokens, reserved: usize::try_from(reserved).unwrap_or(usize::MAX) }
    }

    /// Tokens of a request with these messages and its answer, about.
    fn used(&self, messages: &[Message]) -> usize {
        self.reserved.saturating_add(tokens(messages))
    }

    /// Whether a request with these messages may be longer than the model takes, if its window is smaller than it is said
    /// to be.
    pub(crate) fn may_overflow(&self, messages: &[Message]) -> bool {
        self.used(messages) > self.tokens / 2
    }

    /// What the window can be at most, after the model has refused these messages. `named` is what the refusal says.
    pub(crate) fn learned(&self, messages: &[Message], named: Option<usize>) -> usize {
        let refused = self.used(messages).min(self.tokens);
        match named {
            Some(named) if named < refused => named,
            // By our count it should have fit, so the count is wrong.
            _ => refused / 2,
        }
        .max(SMALLEST_WINDOW)
    }

    /// For messages. A prompt that leaves nothing still leaves room to say so.
    fn room(&self) -> usize {
        self.tokens.saturating_sub(self.reserved).max(self.tokens / 4).max(512)
    }

    /// Whether the conversation should be made shorter before the model is asked.
    pub(crate) fn is_full(&self, messages: &[Message]) -> bool {
        tokens(messages) > self.room() * 9 / 10
    }

    /// The longest one result may be, in characters.
    pub(crate) fn result_chars(&self) -> usize {
        (self.room() * CHARS_PER_TOKEN / 6).max(SHORTEST_RESULT)
    }

    /// The longest all results of one reply may be together.
    pub(crate) fn results_chars(&self) -> usize {
        (self.room() * CHARS_PER_TOKEN / 3).max(SHORTEST_RESULT)
    }

    /// Of the end of the conversation, what stays as it is when the rest is summed up, in tokens.
    fn kept(&self) -> usize {
        self.room() / 2
    }

    /// What whoever sums up is told, in characters.
    fn told(&self) -> usize {
        self.tokens * CHARS_PER_TOKEN / 2
    }
}

/// How many tokens messages come to, about, and rather more.
pub(crate) fn tokens(messages: &[Message]) -> usize {
    let blocks = messages.iter().flat_map(|message| &message.content).map(estimate_block);
    usize::try_from(blocks.sum::<u64>()).unwrap_or(usize::MAX)
}

/// Head and tail of a text, and how much is left out between.
pub(crate) fn shorten(text: &str, limit: usize, where_the_rest_is: &str) -> String {
    let total = text.chars().count();
    if total <= limit {
        return text.to_owned();
    }
    let (head, tail) = (limit * 2 / 3, limit / 3);
    let from: String = text.chars().take(head).collect();
    let until: String = text.chars().skip(total - tail).collect();
    format!(
        "{from}\n[… {} of {total} characters left out{where_the_rest_is} …]\n{until}",
        total - head - tail
    )
}

/// Where the newest part begins that stays as it is. A call is never parted from its result: the cut is before a message
/// that answers none.
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
    // Where all of it would stay, the estimate was wrong or somebody asked for it: all of it goes.
    if best == 0 { messages.len() } else { best }
}

fn can_begin(message: &Message) -> bool {
    message.role == Role::Assistant
        || !message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
}

/// What is told to a model that is to sum up, and what stands in for its summary when it cannot.
pub(crate) fn told(messages: &[Message], window: &Window) -> String {
    let lines: Vec<String> = messages.iter().flat_map(lines).collect();
    shorten(&lines.join("\n"), window.told(), "")
}

/// A summary without a model: what was asked, and which calls were made.
pub(crate) fn mechanical(messages: &[Message], window: &Window) -> String {
    let mut said: Vec<String> = Vec::new();
    for message in messages {
        for block in &message.content {
            match block {
                Block::Text { text } => {
                    let who = if message.role == Role::User { "user" } else { "assistant" };
                    said.push(format!("{who}: {}", shorten(text, 600, "")));
                }
                Block::ToolUse { name, input, .. } => {
                    said.push(format!("called {}", crate::state::step_name(name, input)));
                }
                _ => {}
            }
        }
    }
    shorten(&said.join("\n"), (window.kept() * CHARS_PER_TOKEN / 2).clamp(SHORTEST_RESULT, 20_000), "")
}

fn lines(message: &Message) -> Vec<String> {
    let who = if message.role == Role::User { "user" } else { "assistant" };
    let line = |block: &Block| match block {
        Block::Text { text } => Some(format!("{who}: {}", shorten(text, TOLD_OF_MESSAGE, ""))),
        Block::Image { .. } => Some(format!("{who}: (an image)")),
        Block::ToolUse { name, input, .. } => {
            Some(format!("{who} called {name} with {}", shorten(&input.to_string(), TOLD_OF_RESULT, "")))
        }
        Block::ToolResult { content, is_error, .. } => {
            let text: Vec<String> = content.iter().filter_map(text_of).collect();
            let kind = if *is_error { "error" } else { "result" };
            Some(format!("{kind}: {}", shorten(&text.join("\n"), TOLD_OF_RESULT, "")))
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

/// The conversation with its older part replaced by a summary, which names the task that is being worked on.
pub(crate) fn compacted(messages: &[Message], at: usize, summary: &str, window: &Window) -> Vec<Message> {
    let limit = (window.room() * CHARS_PER_TOKEN / 4).max(SHORTEST_RESULT);
    let (older, recent) = messages.split_at(at.min(messages.len()));
    let task = older.iter().rev().find_map(asked);
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

/// The conversation with nothing but the task that is being worked on, for a window that holds no more.
pub(crate) fn task_alone(messages: &[Message], window: &Window) -> Vec<Message> {
    let limit = (window.room() * CHARS_PER_TOKEN / 4).min(SHORTEST_RESULT);
    let task = messages.iter().rev().find_map(asked).unwrap_or_default();
    let text = format!(
        "[The conversation was too long for the model and is left out. Its last request was:]\n{}",
        shorten(&task, limit, "")
    );
    vec![Message::user(text)]
}

/// What a person asked in a message; of a summary, the request that it names.
fn asked(message: &Message) -> Option<String> {
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
    fn calls_stay_with_their_results_and_the_task_is_kept() {
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
    fn one_huge_message_can_be_cut_off_too() {
        let messages = vec![Message::user("x".repeat(100_000))];
        let at = cut(&messages, &WINDOW);
        assert_eq!(at, 1);
        let shorter = compacted(&messages, at, &mechanical(&messages, &WINDOW), &WINDOW);
        assert!(!WINDOW.is_full(&shorter), "{}", tokens(&shorter));
        assert!(told(&messages, &WINDOW).len() < 8_000 * 3);
    }

    #[test]
    fn what_is_left_out_is_said() {
        let short = shorten(&"ä".repeat(1_000), 90, "; ask for the rest");
        assert!(short.contains("[… 910 of 1000 characters left out; ask for the rest …]"), "{short}");
        assert_eq!(shorten("abc", 3, ""), "abc");
    }
}
