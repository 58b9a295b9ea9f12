//! The answer to a client of OpenAI's interface while a run waits for a person: the question, and how to answer it. The
//! interface has no way to ask questions, so the client would wait forever.

use gantry_protocol::SessionEvent;
use gantry_tool::{QuestionText, without_hidden};

use crate::entry::{Question, UserAsked};
use crate::key::SessionKey;
use crate::sessions::Sessions;

/// The question that a run waits for.
pub(super) enum Waiting {
    Approval(Question),
    Asked(UserAsked),
}

impl Waiting {
    /// Returns the question that an event asks.
    pub(super) fn of(event: &SessionEvent) -> Option<Waiting> {
        match event {
            SessionEvent::Approval { question, .. } => Some(Waiting::Approval(question.clone())),
            SessionEvent::Asked { asked, .. } => Some(Waiting::Asked(asked.clone())),
            _ => None,
        }
    }

    /// Returns an open question of a session.
    pub(super) async fn open(sessions: &Sessions, key: &SessionKey) -> Option<Waiting> {
        let status = sessions.status(key).await.ok()?;
        let approval = status.questions.into_iter().next().map(Waiting::Approval);
        approval.or_else(|| status.asks.into_iter().next().map(Waiting::Asked))
    }

    /// Returns the question as an assistant's message in Markdown. The agent's text is indented, so that clients show it
    /// verbatim.
    pub(super) fn message(&self, key: &SessionKey) -> String {
        let (asked, id, answer) = match self {
            Waiting::Approval(question) => (approval(question), &question.id, "yes` (or `no`)"),
            Waiting::Asked(asked) => (questions(asked), &asked.id, "ANSWER`"),
        };
        let key = &key.key;
        format!(
            "{asked}\n\nThe run waits for the answer. Give it with `gantry sessions answer {key} --question {id} {answer}, \
             or with POST /v1/sessions/{key}/answers. `gantry sessions show {key}` then shows the result. The \
             header `Gantry-Session: {key}` continues this conversation."
        )
    }
}

fn approval(question: &Question) -> String {
    let call = QuestionText::new(&question.action()).whole();
    let who = question.child.as_ref().map_or("The agent", |child| &child.name);
    format!(
        "{} asks for an approval to run {}:\n\n{}\n\nReason: {} (rule {}).",
        plain(who),
        question.tool,
        indented(&call),
        plain(&question.reason),
        question.rule
    )
}

fn questions(asked: &UserAsked) -> String {
    let who = asked.child.as_ref().map_or("The agent", |child| &child.name);
    let each = asked.questions.iter().map(|one| {
        let options = one.options.iter().map(|option| format!("\n- {option}"));
        indented(&format!("{}{}", one.question, options.collect::<String>()))
    });
    format!("{} asks:\n\n{}", plain(who), each.collect::<Vec<_>>().join("\n\n"))
}

fn plain(text: &str) -> String {
    without_hidden(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn indented(text: &str) -> String {
    let text = without_hidden(text);
    let lines = text.lines().map(|line| format!("    {}", line.replace(|c: char| c.is_control(), " ")));
    lines.collect::<Vec<_>>().join("\n")
}
