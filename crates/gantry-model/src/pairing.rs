//! A conversation as every API wants it: the user begins, roles alternate, and each call is answered by the message after it.

use std::borrow::Cow;

use crate::{Block, Message, Role};

/// The blocks of one side until the other one speaks.
#[derive(Debug, PartialEq)]
pub(crate) struct Turn<'a> {
    pub(crate) role: Role,
    pub(crate) content: Vec<Cow<'a, Block>>,
}

const NO_RESULT: &str = "no result of this call was recorded; whether it took effect is unknown";

/// `keep` says which blocks the provider can be sent; blank text never can.
pub(crate) fn arranged<'a>(messages: &'a [Message], keep: impl Fn(&Block) -> bool) -> Vec<Turn<'a>> {
    let mut arranged: Vec<Turn> = Vec::new();
    for turn in joined(messages, keep) {
        let calls = arranged.last().map(calls_of).unwrap_or_default();
        match turn.role {
            Role::User => arranged.push(answering(&calls, turn)),
            // Nobody answered the calls before it, so somebody has to.
            Role::Assistant if !calls.is_empty() => {
                arranged.push(answering(&calls, Turn { role: Role::User, content: Vec::new() }));
                arranged.push(turn);
            }
            Role::Assistant => arranged.push(turn),
        }
    }
    let open = arranged.last().map(calls_of).unwrap_or_default();
    if !open.is_empty() {
        arranged.push(answering(&open, Turn { role: Role::User, content: Vec::new() }));
    }
    if arranged.first().is_none_or(|turn| turn.role == Role::Assistant) {
        arranged.insert(0, Turn { role: Role::User, content: vec![Cow::Owned(Block::text("(continued)"))] });
    }
    arranged
}

/// Neighbours of one role as one turn, without what cannot be sent.
fn joined<'a>(messages: &'a [Message], keep: impl Fn(&Block) -> bool) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn> = Vec::new();
    for message in messages {
        let fits = |block: &&Block| match block {
            Block::Text { text } => !text.trim().is_empty(),
            Block::ToolUse { .. } => message.role == Role::Assistant,
            Block::ToolResult { .. } => message.role == Role::User,
            Block::Image { .. } | Block::Thinking { .. } | Block::Provider { .. } => true,
        };
        let kept = message.content.iter().filter(fits).filter(|block| keep(block)).map(Cow::Borrowed);
        let mut kept = kept.peekable();
        if kept.peek().is_none() {
            continue;
        }
        match turns.last_mut().filter(|turn| turn.role == message.role) {
            Some(turn) => turn.content.extend(kept),
            None => turns.push(Turn { role: message.role, content: kept.collect() }),
        }
    }
    turns
}

fn calls_of(turn: &Turn) -> Vec<String> {
    let ids = turn.content.iter().filter_map(|block| match block.as_ref() {
        Block::ToolUse { id, .. } => Some(id.clone()),
        _ => None,
    });
    ids.collect()
}

/// First one result a call, in the calls' order, then the rest. What answers no call is still told, as text.
fn answering<'a>(calls: &[String], turn: Turn<'a>) -> Turn<'a> {
    let is_result_of =
        |block: &Block, call: &str| matches!(block, Block::ToolResult { id, .. } if id == call);
    let mut rest = turn.content;
    let mut content = Vec::with_capacity(calls.len() + rest.len());
    for call in calls {
        content.push(match rest.iter().position(|block| is_result_of(block, call)) {
            Some(at) => rest.remove(at),
            None => Cow::Owned(Block::ToolResult {
                id: call.clone(),
                content: vec![Block::text(NO_RESULT)],
                is_error: true,
            }),
        });
    }
    for block in rest {
        match block.as_ref() {
            Block::ToolResult { content: told, .. } => {
                content.push(Cow::Owned(Block::text(
                    "Result of a call that is no longer part of the conversation:",
                )));
                content.extend(told.iter().cloned().map(Cow::Owned));
            }
            _ => content.push(block),
        }
    }
    Turn { role: Role::User, content }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> Block {
        Block::ToolUse { id: id.into(), name: "t".into(), input: json!({}), malformed: None }
    }

    fn result(id: &str) -> Block {
        Block::ToolResult { id: id.into(), content: vec![Block::text(format!("of {id}"))], is_error: false }
    }

    /// Roles as u and a; c and r with an id are calls and results, `!` those that had to be made up, t is text.
    fn check(messages: &[(Role, Vec<Block>)], expected: &str) {
        let messages: Vec<Message> = messages
            .iter()
            .map(|(role, content)| Message { role: *role, content: content.clone() })
            .collect();
        let shown: Vec<String> = arranged(&messages, |_| true)
            .iter()
            .map(|turn| {
                let role = if turn.role == Role::User { "u" } else { "a" };
                let blocks: Vec<String> = turn
                    .content
                    .iter()
                    .map(|block| match block.as_ref() {
                        Block::ToolUse { id, .. } => format!("c{id}"),
                        Block::ToolResult { id, is_error, .. } => {
                            format!("r{id}{}", if *is_error { "!" } else { "" })
                        }
                        _ => "t".into(),
                    })
                    .collect();
                format!("{role}:{}", blocks.join(","))
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn calls_and_results_stay_together() {
        use Role::{Assistant as A, User as U};
        let text = || Block::text("x");
        check(
            &[
                (U, vec![text()]),
                (A, vec![call("1"), call("2")]),
                (U, vec![result("2"), text(), result("1")]),
            ],
            "u:t a:c1,c2 u:r1,r2,t",
        );
        check(
            &[(U, vec![text()]), (A, vec![call("1"), call("2")]), (U, vec![result("2")])],
            "u:t a:c1,c2 u:r1!,r2",
        );
        check(&[(U, vec![text()]), (A, vec![call("1")])], "u:t a:c1 u:r1!");
        check(&[(U, vec![text()]), (A, vec![call("1")]), (U, vec![text()])], "u:t a:c1 u:r1!,t");
        check(&[(U, vec![result("9"), text()])], "u:t,t,t");
        check(
            &[(U, vec![text()]), (A, vec![call("1")]), (U, vec![result("1")]), (U, vec![result("1")])],
            "u:t a:c1 u:r1,t,t",
        );
    }

    #[test]
    fn the_user_begins_and_roles_alternate() {
        use Role::{Assistant as A, User as U};
        let text = || Block::text("x");
        check(&[], "u:t");
        check(&[(A, vec![text()])], "u:t a:t");
        check(&[(U, vec![text()]), (U, vec![text()]), (A, vec![text()]), (A, vec![text()])], "u:t,t a:t,t");
        check(&[(U, vec![text()]), (A, vec![Block::text(" \n")]), (U, vec![text()])], "u:t,t");
    }
}
