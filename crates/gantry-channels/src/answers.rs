//! Answers of the owner in a chat: presses of buttons, numbers, and plain texts.

use gantry_agent::{ApprovalDecision, LastingApproval, SessionError};
use gantry_protocol::{ChatAnswer, ChatQuestion, ChatQuestionKind, OutboxMessage, OutboxState};

use crate::address::Address;
use crate::chat_channel::part_key;
use crate::chats::{Chats, account_id, now_ms};
use crate::people::address_json;

/// Questions of this time can be answered by text.
const RECENT_MS: i64 = 24 * 3600 * 1000;
/// The most parts of a held message.
const MAX_PARTS: usize = 64;

/// Takes a press of a button in the owner's chat. Returns the sentence to show.
pub(crate) async fn by_press(
    chats: &Chats,
    address: &Address,
    handle: &str,
    by: &str,
) -> Result<String, String> {
    const GONE: &str = "This question is not open any more.";
    let mut words = handle.split(':');
    let (Some("q"), Some(handle), Some(number), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Ok(GONE.to_owned());
    };
    let message = chats.parts.database.outbox_question(handle).await.map_err(|err| err.to_string())?;
    // A handle is a name, not a right: the question must have been asked in this very chat.
    let message = message.filter(|message| message.target == address_json(address));
    let question = message.and_then(|message| message.body.chat.and_then(|chat| chat.question));
    let choice = number.parse::<usize>().ok();
    let chosen = question.as_ref().zip(choice).and_then(|(question, number)| question.choices.get(number));
    match (&question, chosen) {
        (Some(question), Some(choice)) => answer(chats, question, &choice.answer, by).await,
        _ => Ok(GONE.to_owned()),
    }
}

/// A text of the owner that may answer a question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) text: &'a str,
    /// The text of the message that it answers.
    pub(crate) quoted: Option<&'a str>,
    /// When it was written, by the provider's clock.
    pub(crate) at: i64,
    /// The session of this chat.
    pub(crate) own_session: &'a str,
}

/// How far the provider's clock may be behind.
const SKEW_MS: i64 = 5_000;

/// Takes a text in the owner's chat as an answer. It means the question that it quotes, otherwise the newest one that was
/// asked here. Approvals need a number or the words of a choice; free text answers only what the chat's own conversation
/// asks. Returns the sentence to show, or `None` if the text is a message.
pub(crate) async fn by_text(
    chats: &Chats,
    address: &Address,
    said: Said<'_>,
    by: &str,
) -> Result<Option<String>, String> {
    let channel = account_id(&address.channel, &address.account);
    let since = now_ms().saturating_sub(RECENT_MS);
    let asked = chats.parts.database.outbox_questions_of(&channel, &address_json(address), since).await;
    let asked = asked.map_err(|err| err.to_string())?;
    // What was written before a question was asked does not answer it.
    let mut asked = asked.into_iter().filter(|message| said.at <= 0 || message.created <= said.at + SKEW_MS);
    let message = match said.quoted {
        Some(quoted) => asked.find(|message| quotes(&message.body.text, quoted)),
        None => asked.next(),
    };
    let question = message.and_then(|message| message.body.chat.and_then(|chat| chat.question));
    let Some(question) = question else { return Ok(None) };
    let given = given(&question, said);
    if !is_open(chats, &question).await {
        // A number can only be meant as an answer.
        let is_answer = !matches!(given, None | Some(ChatAnswer::Text { .. }));
        let gone =
            "That question is not open any more. To answer an older one, use its button or reply to it.";
        return Ok(is_answer.then(|| gone.to_owned()));
    }
    match given {
        Some(given) => answer(chats, &question, &given, by).await.map(Some),
        None => Ok(None),
    }
}

/// The answer that a text gives to a question.
fn given(question: &ChatQuestion, said: Said<'_>) -> Option<ChatAnswer> {
    let text = said.text;
    let number = text.trim_end_matches('.').parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let chosen = number.and_then(|number| question.choices.get(number));
    let named = || question.choices.iter().find(|choice| choice.label.eq_ignore_ascii_case(text));
    if let Some(choice) = chosen.or_else(named) {
        return Some(choice.answer.clone());
    }
    match (question.kind, text.to_lowercase().as_str()) {
        (ChatQuestionKind::Asked, _) => {
            let is_meant = said.quoted.is_some() || question.session_key == said.own_session;
            is_meant.then(|| ChatAnswer::Text { text: text.to_owned() })
        }
        (_, "yes" | "y") => Some(ChatAnswer::Yes),
        (_, "no" | "n") => Some(ChatAnswer::No),
        _ => None,
    }
}

/// Whether a quoted text is that of a question, which services show without its marks and may cut.
fn quotes(question: &str, quoted: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).take(60).collect::<String>();
    let (question, quoted) = (letters(question), letters(quoted));
    quoted.len() >= 8 && (question.starts_with(&quoted) || quoted.starts_with(&question))
}

/// Whether a question still waits for its answer.
async fn is_open(chats: &Chats, question: &ChatQuestion) -> bool {
    if question.kind == ChatQuestionKind::HeldMessage {
        let held = chats.parts.database.outbox_message(&question.question).await;
        return held.is_ok_and(|held| held.is_some_and(|held| held.state == OutboxState::Held));
    }
    let Ok(key) = chats.parts.sessions.key(&question.session_key, None) else { return false };
    chats.parts.sessions.status(&key).await.is_ok_and(|status| {
        status.questions.iter().any(|open| open.id == question.question)
            || status.asks.iter().any(|open| open.id == question.question)
    })
}

async fn answer(
    chats: &Chats,
    question: &ChatQuestion,
    answer: &ChatAnswer,
    by: &str,
) -> Result<String, String> {
    if question.kind == ChatQuestionKind::HeldMessage {
        return held(chats, &question.question, matches!(answer, ChatAnswer::Yes)).await;
    }
    let sessions = &chats.parts.sessions;
    let key = match sessions.key(&question.session_key, None) {
        Ok(key) => key,
        Err(err) => return Ok(err.to_string()),
    };
    let id = Some(question.question.clone());
    let answered = match (question.kind, answer) {
        (ChatQuestionKind::Asked, ChatAnswer::Text { text }) => {
            let count = sessions.status(&key).await.ok().and_then(|status| {
                status.asks.iter().find(|open| open.id == question.question).map(|open| open.questions.len())
            });
            let answers: Vec<String> = match count {
                // Several questions are answered line by line.
                Some(count) if count > 1 => {
                    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
                }
                _ => vec![text.clone()],
            };
            if let Some(count) = count.filter(|count| *count != answers.len()) {
                return Ok(format!("Please answer the {count} questions on {count} lines, one each."));
            }
            sessions.reply(&key, id, answers, by).await.map(|_| "Thank you.".to_owned())
        }
        (_, ChatAnswer::Yes) => {
            sessions.answer(&key, id, ApprovalDecision::Yes, by).await.map(|_| "Allowed.".to_owned())
        }
        (_, ChatAnswer::No) => {
            sessions.answer(&key, id, ApprovalDecision::No, by).await.map(|_| "Denied.".to_owned())
        }
        (_, ChatAnswer::Offer { number }) => {
            let always = LastingApproval { offer: Some(number.to_string()), ..LastingApproval::default() };
            sessions.answer_always(&key, id, always, by).await
        }
        (_, ChatAnswer::Text { .. }) => return Ok("Please choose one of the answers.".to_owned()),
    };
    match answered {
        Ok(text) => Ok(text),
        Err(err @ (SessionError::Stopping | SessionError::Store(_))) => Err(err.to_string()),
        Err(err) => Ok(err.to_string()),
    }
}

/// Sends or drops a held message with all its parts.
async fn held(chats: &Chats, dedupe: &str, send: bool) -> Result<String, String> {
    let database = &chats.parts.database;
    let to = if send { OutboxState::Queued } else { OutboxState::Dropped };
    let mut changed = 0;
    for number in 0..MAX_PARTS {
        let part: Option<OutboxMessage> =
            database.outbox_message(&part_key(dedupe, number)).await.map_err(|err| err.to_string())?;
        let Some(part) = part else { break };
        let decided = database.decide_outbox(&part.id, &[OutboxState::Held], to, now_ms()).await;
        changed += usize::from(decided.map_err(|err| err.to_string())?);
    }
    chats.parts.outbox.wake();
    Ok(match (changed, send) {
        (0, _) => "This question is not open any more.".to_owned(),
        (_, true) => "It is sent.".to_owned(),
        (_, false) => "It is not sent.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use gantry_protocol::ChatChoice;

    use super::*;

    fn question(kind: ChatQuestionKind) -> ChatQuestion {
        let choices = vec![
            ChatChoice { label: "Allow once".to_owned(), answer: ChatAnswer::Yes },
            ChatChoice { label: "Deny".to_owned(), answer: ChatAnswer::No },
        ];
        let choices = if kind == ChatQuestionKind::Asked { Vec::new() } else { choices };
        let session_key = "agent:main:main".to_owned();
        ChatQuestion { handle: "h".to_owned(), kind, session_key, question: "q".to_owned(), choices }
    }

    fn said<'a>(text: &'a str, quoted: Option<&'a str>, own_session: &'a str) -> Said<'a> {
        Said { text, quoted, at: 0, own_session }
    }

    #[test]
    fn approvals_need_a_number_or_a_word() {
        let asked = question(ChatQuestionKind::Approval);
        for (text, expected) in [
            ("1", Some(ChatAnswer::Yes)),
            ("2.", Some(ChatAnswer::No)),
            ("allow once", Some(ChatAnswer::Yes)),
            ("YES", Some(ChatAnswer::Yes)),
            ("3", None),
            ("ok, and then?", None),
        ] {
            assert_eq!(given(&asked, said(text, None, "agent:main:main")), expected, "{text}");
        }
    }

    #[test]
    fn free_text_answers_only_the_chats_own_conversation_or_what_it_quotes() {
        let asked = question(ChatQuestionKind::Asked);
        let text = Some(ChatAnswer::Text { text: "4711".to_owned() });
        assert_eq!(given(&asked, said("4711", None, "agent:main:main")), text);
        assert_eq!(given(&asked, said("4711", None, "agent:main:irc:dm:bob")), None);
        assert_eq!(given(&asked, said("4711", Some("Which one?"), "agent:main:irc:dm:bob")), text);
    }

    #[test]
    fn a_quote_is_recognised_without_its_marks() {
        let asked = "**Run on local?**\n\n```\n$ cargo test\n```";
        assert!(quotes(asked, "Run on local?\n$ cargo test"));
        assert!(quotes(asked, "Run on local?"));
        assert!(!quotes(asked, "Shall I order lunch?"));
        assert!(!quotes(asked, "?"));
    }
}
