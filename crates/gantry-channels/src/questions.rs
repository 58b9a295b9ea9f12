//! Questions of sessions in the owner's chat: approvals, and what agents ask their user. Answered questions are marked so.
//!
//! The journal is the truth: a question is stored in the outbox when its event is heard, and when the gateway starts.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_agent::{Question, SessionEvent, SessionKey, Status, UserAsked};
use gantry_protocol::{ApprovalDecision, ChatAnswer, ChatChoice, ChatQuestion, ChatQuestionKind};
use gantry_store::{DatabaseError, NewOutboxMessage};
use gantry_tool::QuestionText;
use tokio::sync::broadcast::error::RecvError;

use crate::address::Address;
use crate::chat_channel::{NOTICE, new_handle};
use crate::chats::{Chats, ReplyTo, chat_message, now_ms};

/// Work that starts by itself. Its questions go to the owner's last active conversation.
const BACKGROUND: [&str; 4] = ["cron:", "task:", "pipeline:", "step:"];

/// Follows the questions of all sessions. Never returns.
pub(crate) async fn follow(chats: Arc<Chats>) {
    let mut events = chats.parts.sessions.listen_to_all();
    // The questions that each session has asked since the start, to mark those that end without an answer.
    let mut open: HashMap<String, Vec<String>> = HashMap::new();
    ask_all(&chats).await;
    loop {
        let data = match events.recv().await {
            Ok(data) => data,
            Err(RecvError::Lagged(_)) => {
                ask_all(&chats).await;
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let done = match &data.event {
            SessionEvent::Approval { question, .. } => {
                open.entry(data.session_key.clone()).or_default().push(question.id.clone());
                ask(&chats, &data.session_key).await
            }
            SessionEvent::Asked { asked, .. } => {
                open.entry(data.session_key.clone()).or_default().push(asked.id.clone());
                ask(&chats, &data.session_key).await
            }
            SessionEvent::Final { .. } => {
                open.remove(&data.session_key);
                Ok(())
            }
            SessionEvent::Stopped { .. } | SessionEvent::Error { .. } | SessionEvent::Reset { .. } => {
                let mut marked = Ok(());
                for id in open.remove(&data.session_key).unwrap_or_default() {
                    marked = marked.and(mark(&chats, &id, "Closed without an answer: the run ended").await);
                }
                marked
            }
            SessionEvent::ApprovalAnswered { question, answer, by, .. } => {
                mark(&chats, question, &outcome(answer, by)).await
            }
            SessionEvent::AskedAnswered { question, answers, .. } => {
                let text = if answers.is_empty() { "Expired".to_owned() } else { answers.join(" · ") };
                mark(&chats, question, &text).await
            }
            _ => Ok(()),
        };
        if let Err(err) = done {
            tracing::warn!(sessionKey = data.session_key, error = %err, "question_not_sent");
        }
    }
}

/// Asks the open questions of all sessions. Known ones are not asked again.
async fn ask_all(chats: &Arc<Chats>) {
    let Ok(keys) = chats.parts.sessions.with_work().await else { return };
    for key in keys {
        if let Err(err) = ask(chats, &key).await {
            tracing::warn!(sessionKey = key, error = %err, "question_not_sent");
        }
    }
}

/// Asks the open questions of a session in the owner's chat.
async fn ask(chats: &Arc<Chats>, session: &str) -> Result<(), DatabaseError> {
    let sessions = &chats.parts.sessions;
    let Ok(key) = sessions.key(session, None) else { return Ok(()) };
    let Ok(status) = sessions.status(&key).await else { return Ok(()) };
    // The questions of a child belong to the run of its root.
    let root = match &status.child {
        Some(child) if child.root != session => match sessions.key(&child.root, None) {
            Ok(root) => sessions.status(&root).await.ok().map(|status| (root, status)),
            Err(_) => None,
        },
        _ => None,
    };
    let (about, run) = root.as_ref().map_or((&key, &status), |(root, status)| (root, status));
    let Some(place) = place(chats, about, run) else { return Ok(()) };
    let mut messages: Vec<NewOutboxMessage> = Vec::new();
    for question in &status.questions {
        messages.extend(approval(chats, &place, &key, question));
    }
    for asked in &status.asks {
        messages.extend(user_question(chats, &place, &key, asked));
    }
    if messages.is_empty() {
        return Ok(());
    }
    chats.parts.database.add_outbox(&messages, now_ms()).await?;
    chats.parts.outbox.wake();
    Ok(())
}

/// Where the questions of a run are asked.
struct Place {
    owner: Address,
    /// A chat of others that waits for the owner.
    waiting: Option<ReplyTo>,
    /// Whose run asks, unless it is the owner's own.
    asker: Option<String>,
}

fn place(chats: &Chats, key: &SessionKey, status: &Status) -> Option<Place> {
    let from_chat = status.addressees.iter().rev().find_map(|message| ReplyTo::from_value(&message.reply_to));
    if let Some(reply_to) = from_chat {
        if chats.people.is_owners(&reply_to.address) {
            let can_approve = chats
                .account_of(&reply_to.address)
                .is_some_and(|account| account.adapter.limits().may_approve);
            // A question that cannot be answered here is asked where it can.
            let elsewhere = (!can_approve).then(|| chats.approver_chat(&key.agent)).flatten();
            let owner = elsewhere.unwrap_or_else(|| reply_to.address.clone());
            return Some(Place { owner, waiting: None, asker: None });
        }
        let owner = chats.approver_chat(&key.agent)?;
        let asker = Some(chats.people.name_of(&reply_to.address));
        return Some(Place { owner, waiting: Some(reply_to), asker });
    }
    let is_background = |from: &str| BACKGROUND.iter().any(|prefix| from.starts_with(prefix));
    let by_itself = status.child.as_ref().is_some_and(|child| child.background.is_some())
        || status.addressees.iter().any(|message| is_background(&message.from));
    let owner = chats.approver_chat(&key.agent)?;
    by_itself.then(|| Place { owner, waiting: None, asker: Some(format!("background work ({})", key.key)) })
}

fn approval(chats: &Chats, place: &Place, key: &SessionKey, question: &Question) -> Vec<NewOutboxMessage> {
    let may_approve =
        chats.account_of(&place.owner).is_some_and(|account| account.adapter.limits().may_approve);
    let text = QuestionText::new(&question.action());
    let asker = place.asker.as_ref().map_or(String::new(), |asker| format!("For {}:\n", escaped(asker)));
    let mut markdown = format!("{asker}**{}**", escaped(&text.headline));
    if !text.body.is_empty() {
        markdown.push_str(&format!("\n\n{}", fenced(&text.body.join("\n"))));
    }
    markdown.push_str(&format!("\n\n{}", escaped(&question.reason)));
    if !may_approve {
        markdown.push_str(&format!(
            "\n\nThis cannot be answered here. Use another chat, or run `gantry sessions questions {}`.",
            key.key
        ));
    }
    let mut choices = vec![
        ChatChoice { label: "Allow once".to_owned(), answer: ChatAnswer::Yes },
        ChatChoice { label: "Deny".to_owned(), answer: ChatAnswer::No },
    ];
    choices.extend(question.offers.iter().filter_map(|offer| {
        let number = offer.key.parse().ok()?;
        let mut label = offer.label.clone();
        if let Some(first) = label.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        Some(ChatChoice { label, answer: ChatAnswer::Offer { number } })
    }));
    let choices = if may_approve { choices } else { Vec::new() };
    messages(chats, place, key, ChatQuestionKind::Approval, &question.id, markdown, choices)
}

fn user_question(chats: &Chats, place: &Place, key: &SessionKey, asked: &UserAsked) -> Vec<NewOutboxMessage> {
    let mut markdown =
        place.asker.as_ref().map_or(String::new(), |asker| format!("For {}:\n", escaped(asker)));
    for question in &asked.questions {
        if let Some(heading) = &question.heading {
            markdown.push_str(&format!("{heading}\n\n"));
        }
        markdown.push_str(&format!("**{}**\n", question.question));
        if asked.questions.len() > 1 && !question.options.is_empty() {
            markdown.push_str(&format!("{}\n", question.options.join(" · ")));
        }
    }
    let choice = |option: &String| ChatChoice {
        label: option.clone(),
        answer: ChatAnswer::Text { text: option.clone() },
    };
    let choices: Vec<ChatChoice> = match asked.questions.as_slice() {
        [only] => only.options.iter().map(choice).collect(),
        _ => Vec::new(),
    };
    if choices.is_empty() {
        let how = match asked.questions.len() {
            1 if place.asker.is_some() => "Reply to this message with your answer.".to_owned(),
            1 => "Write your answer here.".to_owned(),
            count if place.asker.is_some() => {
                format!("Reply to this message with the {count} answers, one a line.")
            }
            count => format!("Write the {count} answers here, one a line."),
        };
        markdown.push_str(&format!("\n{how}"));
    }
    messages(chats, place, key, ChatQuestionKind::Asked, &asked.id, markdown, choices)
}

/// The question to the owner, and a note to a chat that waits for the answer.
fn messages(
    chats: &Chats,
    place: &Place,
    key: &SessionKey,
    kind: ChatQuestionKind,
    id: &str,
    markdown: String,
    choices: Vec<ChatChoice>,
) -> Vec<NewOutboxMessage> {
    let mut asks = chat_message(&place.owner, &key.agent, question_key(id), markdown, None);
    asks.body.chat.get_or_insert_default().question = Some(ChatQuestion {
        handle: new_handle(),
        kind,
        session_key: key.key.clone(),
        question: id.to_owned(),
        choices,
    });
    let mut made = chats.parts.outbox.prepare(asks);
    if let Some(waiting) = &place.waiting {
        let text = "I need my owner's answer before I can go on.".to_owned();
        let reply_to = Some(waiting.message_id.clone());
        let mut note = chat_message(&waiting.address, &key.agent, format!("waiting:{id}"), text, reply_to);
        note.body.from = NOTICE.to_owned();
        made.push(note);
    }
    made
}

fn question_key(id: &str) -> String {
    format!("question:{id}")
}

/// Marks a question in the chat as answered.
async fn mark(chats: &Chats, id: &str, outcome: &str) -> Result<(), DatabaseError> {
    let key = question_key(id);
    let Some(asked) = chats.parts.database.outbox_message(&key).await? else { return Ok(()) };
    let Ok(address) = serde_json::from_str::<Address>(&asked.target) else { return Ok(()) };
    let text = format!("{}\n\n_{}_", asked.body.text, escaped(outcome));
    let mut edit = chat_message(&address, &asked.body.agent, format!("answered:{id}"), text, None);
    edit.body.chat.get_or_insert_default().edits = Some(key);
    chats.parts.database.add_outbox(&[edit], now_ms()).await?;
    chats.parts.outbox.wake();
    Ok(())
}

fn outcome(answer: &ApprovalDecision, by: &str) -> String {
    match answer {
        ApprovalDecision::Yes => format!("Allowed by {by}"),
        ApprovalDecision::Always { .. } => format!("Allowed by {by}, also for later calls"),
        ApprovalDecision::No => format!("Denied by {by}"),
        ApprovalDecision::Expired => "Expired without an answer, so it was denied".to_owned(),
    }
}

/// Text that Markdown must not change.
pub(crate) fn escaped(text: &str) -> String {
    let special = |c: char| matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Text in a code block that it cannot close.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_cannot_change_how_it_is_shown() {
        assert_eq!(escaped("*a* [x](y)"), "\\*a\\* \\[x\\](y)");
        assert_eq!(fenced("a\n````\nb"), "`````\na\n````\nb\n`````");
        assert_eq!(fenced("ls"), "```\nls\n```");
    }
}
