//! Arranges a conversation as every API requires it: the user begins, roles alternate, and each
//! call is answered by the message after it.

use std::borrow::Cow;

use crate::api_names::{IdRewriter, NameRewriter};
use crate::{Block, Message, Request, Role};

/// `ArrangedTurn` is the blocks of one side until the other side continues. Every API accepts the names and
/// ids of its calls.
#[derive(Debug)]
pub(crate) struct ArrangedTurn<'a> {
    pub(crate) role: Role,
    pub(crate) content: Vec<Cow<'a, Block>>,
    calls: Vec<OpenCall>,
}

#[derive(Debug, Clone)]
struct OpenCall {
    /// The id in the conversation, which its result also has.
    known_as: String,
    /// The id that is sent.
    id: String,
}

const NO_RESULT: &str = "no result of this call was recorded; whether it took effect is unknown";
const NO_CALL: &str = "Result of a call that is no longer part of the conversation:";

/// `keep` says which blocks can be sent to the provider. Blank text never can.
pub(crate) fn arranged(request: &Request, keep: impl Fn(&Block) -> bool) -> Vec<ArrangedTurn<'_>> {
    let mut arranged: Vec<ArrangedTurn> = Vec::new();
    let mut names = NameRewriter::new(request.tools.iter().map(|tool| tool.name.as_str()));
    let mut ids = IdRewriter::default();
    for mut turn in joined(&request.messages, keep) {
        let open = arranged.last().map(|before| before.calls.clone()).unwrap_or_default();
        match turn.role {
            Role::User => arranged.push(ArrangedTurn::answering(&open, turn.content)),
            Role::Assistant => {
                // Nobody answered the preceding calls, so answers are added.
                if !open.is_empty() {
                    arranged.push(ArrangedTurn::answering(&open, Vec::new()));
                }
                turn.name_calls(&mut names, &mut ids);
                arranged.push(turn);
            }
        }
    }
    let open = arranged.last().map(|last| last.calls.clone()).unwrap_or_default();
    if !open.is_empty() {
        arranged.push(ArrangedTurn::answering(&open, Vec::new()));
    }
    if arranged.first().is_none_or(|turn| turn.role == Role::Assistant) {
        arranged.insert(0, ArrangedTurn::new(Role::User, vec![Cow::Owned(Block::text("(continued)"))]));
    }
    arranged
}

/// Joins neighbouring messages of one role into one turn, without what cannot be sent.
fn joined<'a>(messages: &'a [Message], keep: impl Fn(&Block) -> bool) -> Vec<ArrangedTurn<'a>> {
    let mut turns: Vec<ArrangedTurn> = Vec::new();
    for message in messages {
        let fits = |block: &&Block| match block {
            Block::Text { text } => !text.trim().is_empty(),
            Block::Image { .. } | Block::ToolResult { .. } => message.role == Role::User,
            Block::ToolUse { .. } | Block::Thinking { .. } | Block::Provider { .. } => {
                message.role == Role::Assistant
            }
        };
        let kept = message.content.iter().filter(fits).filter(|block| keep(block)).map(Cow::Borrowed);
        let mut kept = kept.peekable();
        if kept.peek().is_none() {
            continue;
        }
        match turns.last_mut().filter(|turn| turn.role == message.role) {
            Some(turn) => turn.content.extend(kept),
            None => turns.push(ArrangedTurn::new(message.role, kept.collect())),
        }
    }
    turns
}

impl<'a> ArrangedTurn<'a> {
    fn new(role: Role, content: Vec<Cow<'a, Block>>) -> ArrangedTurn<'a> {
        ArrangedTurn { role, content, calls: Vec::new() }
    }

    /// Starts with one result per call, in the order of the calls, and then the rest. A result
    /// without a call is sent as text.
    fn answering(calls: &[OpenCall], mut rest: Vec<Cow<'a, Block>>) -> ArrangedTurn<'a> {
        let is_result_of = |block: &Block, call: &OpenCall| matches!(block, Block::ToolResult { id, .. } if *id == call.known_as);
        let mut content = Vec::with_capacity(calls.len() + rest.len());
        for call in calls {
            let result = match rest.iter().position(|block| is_result_of(block, call)) {
                Some(at) => rest.remove(at),
                None => Cow::Owned(Block::ToolResult {
                    id: call.id.clone(),
                    content: vec![Block::text(NO_RESULT)],
                    is_error: true,
                }),
            };
            content.push(with_id(result, &call.id));
        }
        for block in rest {
            match block.as_ref() {
                Block::ToolResult { content: result, .. } => {
                    content.push(Cow::Owned(Block::text(NO_CALL)));
                    let fits = result.iter().filter(|block| match block {
                        Block::Text { text } => !text.trim().is_empty(),
                        block => matches!(block, Block::Image { .. }),
                    });
                    content.extend(fits.cloned().map(Cow::Owned));
                }
                _ => content.push(block),
            }
        }
        ArrangedTurn::new(Role::User, content)
    }

    fn name_calls(&mut self, names: &mut NameRewriter, ids: &mut IdRewriter) {
        for block in &mut self.content {
            let Block::ToolUse { id, name, .. } = block.as_ref() else { continue };
            let call = OpenCall { known_as: id.clone(), id: ids.accept(id) };
            let accepted = names.accept(name);
            if *name != accepted
                && let Block::ToolUse { name, .. } = block.to_mut()
            {
                *name = accepted;
            }
            *block = with_id(std::mem::replace(block, Cow::Owned(Block::text(""))), &call.id);
            self.calls.push(call);
        }
    }
}

/// Returns a call or a result with this id; unchanged if it already has the id.
fn with_id<'a>(mut block: Cow<'a, Block>, wanted: &str) -> Cow<'a, Block> {
    let has_it = match block.as_ref() {
        Block::ToolUse { id, .. } | Block::ToolResult { id, .. } => id == wanted,
        _ => true,
    };
    if !has_it && let Block::ToolUse { id, .. } | Block::ToolResult { id, .. } = block.to_mut() {
        wanted.clone_into(id);
    }
    block
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

    /// Roles are u and a. c and r with an id are calls and results, `!` marks those that were
    /// added, t is text.
    fn check(messages: &[(Role, Vec<Block>)], expected: &str) {
        let messages: Vec<Message> = messages
            .iter()
            .map(|(role, content)| Message { role: *role, content: content.clone() })
            .collect();
        let request = Request { messages, ..Request::default() };
        let shown: Vec<String> = arranged(&request, |_| true)
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
    fn calls_with_equal_ids_get_distinct_ids() {
        use Role::{Assistant as A, User as U};
        check(
            &[
                (U, vec![Block::text("x")]),
                (A, vec![call("a:1"), call("a_1"), call("a:1")]),
                (U, vec![result("a:1"), result("a:1")]),
            ],
            "u:t a:ca_1,ca_1_2,ca_1_3 u:ra_1,ra_1_2!,ra_1_3",
        );
    }

    #[test]
    fn id_repeated_in_two_turns_is_sent_once() {
        use Role::{Assistant as A, User as U};
        let turn = || [(A, vec![call("c")]), (U, vec![result("c")])];
        let begins = [(U, vec![Block::text("x")])];
        let messages: Vec<_> = begins.into_iter().chain(turn()).chain(turn()).collect();
        check(&messages, "u:t a:cc u:rc a:cc_2 u:rc_2");
    }

    #[test]
    fn user_begins_and_roles_alternate() {
        use Role::{Assistant as A, User as U};
        let text = || Block::text("x");
        check(&[], "u:t");
        check(&[(A, vec![text()])], "u:t a:t");
        check(&[(U, vec![text()]), (U, vec![text()]), (A, vec![text()]), (A, vec![text()])], "u:t,t a:t,t");
        check(&[(U, vec![text()]), (A, vec![Block::text(" \n")]), (U, vec![text()])], "u:t,t");
    }
}
