//! Questions of the agent to its user. They are recorded, published to listeners, and answered with text.

use gantry_store::DatabaseError;
use gantry_tool::{UserAnswers, UserQuestion};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Done, Driver};
use crate::entry::{Entry, UserAsked};
use crate::sanitize_markdown;
use crate::sessions::{SessionError, now_ms};

/// The time until a question expires.
const ASK_MS: i64 = 24 * 3600 * 1000;
const MAX_ANSWER_CHARS: usize = 20_000;

impl Driver {
    /// A call of this session asks the user.
    pub(super) async fn ask_user(
        &mut self,
        call: &str,
        questions: Vec<UserQuestion>,
        answers: oneshot::Sender<UserAnswers>,
    ) -> Result<(), DatabaseError> {
        let child = self.child_name();
        let questions = match self.filter_reason() {
            Some(why) => questions.into_iter().map(|asked| sanitized(asked, &why)).collect(),
            None => questions,
        };
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let Some(pending) = loaded.state.call(call) else {
            let _ = answers.send(None);
            return Ok(());
        };
        // After a restart the call asks again: the same question stays open, or has an answer.
        let known = pending.asks.iter().find(|ask| ask.asked.questions == questions);
        if let Some(given) = known.and_then(|ask| ask.answers.clone()) {
            let _ = answers.send((!given.is_empty()).then_some(given));
            return Ok(());
        }
        let (id, entry) = match known {
            Some(ask) => (ask.asked.id.clone(), None),
            None => {
                let id = Uuid::new_v4().simple().to_string()[..8].to_owned();
                let expires = now_ms().saturating_add(ASK_MS);
                let asked = UserAsked { id: id.clone(), call: call.to_owned(), questions, expires, child };
                (id, Some(Entry::UserAsked(asked)))
            }
        };
        loaded.asking_user.entry(id).or_default().push(answers);
        match entry {
            Some(entry) => self.append(vec![entry]).await,
            None => Ok(()),
        }
    }

    /// Answers the named question, or the only open one.
    pub(super) async fn reply(
        &mut self,
        id: Option<String>,
        answers: Vec<String>,
        by: String,
        done: Done<String>,
    ) -> Result<(), DatabaseError> {
        let Some(state) = self.state() else { return Ok(()) };
        let open: Vec<&UserAsked> = state.open_asks().collect();
        let found = match (&id, open.as_slice()) {
            (Some(id), open) => open.iter().find(|asked| asked.id == *id).copied(),
            (None, [only]) => Some(*only),
            (None, _) => None,
        };
        let refused = match found {
            None => Some(format!("unknown question; {} are open", open.len())),
            Some(asked) if asked.questions.len() != answers.len() => {
                Some(format!("{} answers are needed, not {}", asked.questions.len(), answers.len()))
            }
            Some(_)
                if answers
                    .iter()
                    .any(|answer| answer.trim().is_empty() || answer.chars().count() > MAX_ANSWER_CHARS) =>
            {
                Some(format!("an answer must have 1 to {MAX_ANSWER_CHARS} characters"))
            }
            Some(_) => None,
        };
        let (Some(asked), None) = (found.map(|asked| asked.id.clone()), &refused) else {
            let _ = done.send(Err(SessionError::Refused(refused.unwrap_or_default())));
            return Ok(());
        };
        self.settle_ask(asked, answers, by).await?;
        let _ = done.send(Ok("answered".into()));
        Ok(())
    }

    pub(super) async fn expire_asks(&mut self) -> Result<(), DatabaseError> {
        let now = now_ms();
        let Some(state) = self.state() else { return Ok(()) };
        let expired: Vec<String> =
            state.open_asks().filter(|asked| asked.expires <= now).map(|asked| asked.id.clone()).collect();
        for id in expired {
            self.settle_ask(id, Vec::new(), "the timeout".to_owned()).await?;
        }
        Ok(())
    }

    async fn settle_ask(
        &mut self,
        id: String,
        answers: Vec<String>,
        by: String,
    ) -> Result<(), DatabaseError> {
        let given = (!answers.is_empty()).then(|| answers.clone());
        let entry = Entry::UserAnswered { question: id.clone(), answers, by, at: now_ms() };
        self.append(vec![entry]).await?;
        let waiting = self.loaded.as_mut().and_then(|loaded| loaded.asking_user.remove(&id));
        for asking in waiting.into_iter().flatten() {
            let _ = asking.send(given.clone());
        }
        Ok(())
    }
}

/// Sanitizes the Markdown of a question. The run holds both labels.
fn sanitized(asked: UserQuestion, why: &str) -> UserQuestion {
    let clean = |text: String| sanitize_markdown::whole(&text, why);
    UserQuestion {
        question: clean(asked.question),
        heading: asked.heading.map(clean),
        header: asked.header.map(clean),
        options: asked.options.into_iter().map(clean).collect(),
    }
}
