//! Questions before calls: written down, told to everybody who listens, answered by a human or by the clock.

use std::path::Path;

use gantry_store::DatabaseError;
use gantry_tool::{Approval, Consent};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Done, Driver};
use crate::entry::{Answer, Entry, GrantScope, Question};
use crate::flow;
use crate::sessions::{SessionError, now_ms};
use crate::state::{PendingCall, State};

const MINUTE_MS: i64 = 60_000;
/// The gate's own rule for agents that are supervised. Who has allowed the same call with its flow has been asked enough.
const SUPERVISED: &str = "supervised-agent";

impl Driver {
    /// The gate asks about a call of this session.
    pub(super) async fn ask(
        &mut self,
        call: &str,
        approval: Approval,
        consent: oneshot::Sender<Consent>,
    ) -> Result<(), DatabaseError> {
        let (agent, child) = (self.agent(), self.child_name());
        let minutes = agent.approval_minutes;
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let exact = loaded.state.call(call).map(|call| exactly(call, &agent.workspace)).unwrap_or_default();
        let known = known_answer(&loaded.state, call, &approval, &exact);
        let question = match known {
            Known::Gone => {
                let _ = consent.send(Consent::Denied("the run is over".into()));
                return Ok(());
            }
            Known::Answered(answer) => {
                let _ = consent.send(in_words(&answer));
                return Ok(());
            }
            // Asked before a restart, and now again: it is written down that the call waits for it.
            Known::Open(question) => *question,
            Known::New => Question {
                id: Uuid::new_v4().simple().to_string()[..8].to_owned(),
                call: call.to_owned(),
                tool: approval.tool,
                rule: approval.rule,
                reason: {
                    let unseen = unseen(&approval.input, &self.key.key);
                    match &child {
                        Some(child) => {
                            format!("asked by the child agent {:?}: {}{unseen}", child.name, approval.reason)
                        }
                        None => format!("{}{unseen}", approval.reason),
                    }
                },
                input: approval.input,
                fingerprint: approval.fingerprint,
                exact,
                expires: now_ms().saturating_add(i64::from(minutes) * MINUTE_MS),
                child,
            },
        };
        loaded.asking.entry(question.id.clone()).or_default().push(consent);
        self.append(vec![Entry::ApprovalAsked(question)]).await
    }

    /// Somebody answers a question: the one named, or the only one that is open.
    pub(super) async fn answer(
        &mut self,
        id: Option<String>,
        answer: Answer,
        by: String,
        done: Done<String>,
    ) -> Result<(), DatabaseError> {
        let Some(state) = self.state() else { return Ok(()) };
        let open: Vec<&Question> = state.open_questions().collect();
        let found = match (&id, open.as_slice()) {
            (Some(id), open) => open.iter().find(|question| question.id == *id).copied(),
            (None, [only]) => Some(*only),
            (None, _) => None,
        };
        let Some(question) = found.cloned() else {
            let ids: Vec<&str> = open.iter().map(|question| question.id.as_str()).collect();
            let which = if ids.is_empty() {
                "nothing is asked".to_owned()
            } else {
                format!("open are {}", ids.join(", "))
            };
            let message = match id {
                Some(id) => format!("no open question is called {id:?}; {which}"),
                None => format!("say which question; {which}"),
            };
            let _ = done.send(Err(SessionError::Refused(message)));
            return Ok(());
        };
        // A yes to what goes out with both labels is a yes to those very bytes.
        let widened =
            question.rule == flow::RULE && matches!(answer, Answer::Always { scope: GrantScope::Tool, .. });
        if widened {
            let message = "'always any' is not possible here: only this exact call can be allowed";
            let _ = done.send(Err(SessionError::Refused(message.into())));
            return Ok(());
        }
        let word = if answer.allows() { "allowed" } else { "denied" };
        let told = format!("{by}: {word} {}{}", question.tool, how_long(&answer));
        self.settle(question.id, answer, by).await?;
        let _ = done.send(Ok(told));
        Ok(())
    }

    pub(super) async fn expire_questions(&mut self) -> Result<(), DatabaseError> {
        let now = now_ms();
        let Some(state) = self.state() else { return Ok(()) };
        let expired = state.open_questions().filter(|question| question.expires <= now);
        let expired: Vec<String> = expired.map(|question| question.id.clone()).collect();
        for id in expired {
            self.settle(id, Answer::Expired, "the clock".to_owned()).await?;
        }
        Ok(())
    }

    async fn settle(&mut self, question: String, answer: Answer, by: String) -> Result<(), DatabaseError> {
        let consent = in_words(&answer);
        let entry = Entry::ApprovalAnswered { question: question.clone(), answer, by, at: now_ms() };
        self.append(vec![entry]).await?;
        let waiting = self.loaded.as_mut().and_then(|loaded| loaded.asking.remove(&question));
        for asking in waiting.into_iter().flatten() {
            let _ = asking.send(consent.clone());
        }
        Ok(())
    }
}

enum Known {
    /// There is no such call any more.
    Gone,
    New,
    Open(Box<Question>),
    Answered(Answer),
}

/// Tells a call as the model wrote it from every other.
fn exactly(call: &PendingCall, workspace: &Path) -> String {
    let about = json!([workspace.to_string_lossy(), call.name, call.input]);
    blake3::hash(about.to_string().as_bytes()).to_hex().to_string()
}

/// What the journal knows of a question: it may have been asked before a restart, or been answered for good.
fn known_answer(state: &State, call: &str, approval: &Approval, exact: &str) -> Known {
    let Some(call) = state.call(call) else { return Known::Gone };
    let flow_allowed = call
        .questions
        .iter()
        .any(|asked| asked.question.rule == flow::RULE && asked.answer.as_ref().is_some_and(Answer::allows));
    if flow_allowed && approval.rule == SUPERVISED {
        return Known::Answered(Answer::Yes);
    }
    let same = call.questions.iter().rev().find(|asked| asked.question.fingerprint == approval.fingerprint);
    match same {
        Some(asked) => match &asked.answer {
            Some(answer) => Known::Answered(answer.clone()),
            None => Known::Open(Box::new(asked.question.clone())),
        },
        None if state.is_granted(approval, exact, now_ms()) => Known::Answered(Answer::Yes),
        None => Known::New,
    }
}

fn how_long(answer: &Answer) -> String {
    let Answer::Always { scope, until } = answer else { return String::new() };
    let what = if *scope == GrantScope::Tool { "any arguments" } else { "these arguments" };
    let until = jiff::Timestamp::from_millisecond(*until).map_or(String::new(), |time| format!("{time:.0}"));
    format!(" with {what} until {until}")
}

/// A yes is one to all of the input. Where a part of it is not shown, it is said where to read that first.
fn unseen(input: &Value, key: &str) -> String {
    match not_shown(input) {
        0 => String::new(),
        count => format!(
            "; {count} characters of the input are not shown here, and a yes allows them too: `gantry sessions export {key}` \
             shows all of it"
        ),
    }
}

fn not_shown(input: &Value) -> u64 {
    match input {
        Value::Object(fields) => {
            let own = fields.get("charactersNotShown").and_then(Value::as_u64).unwrap_or(0);
            fields.values().map(not_shown).fold(own, u64::saturating_add)
        }
        Value::Array(items) => items.iter().map(not_shown).fold(0, u64::saturating_add),
        _ => 0,
    }
}

fn in_words(answer: &Answer) -> Consent {
    match answer {
        Answer::Yes | Answer::Always { .. } => Consent::Allowed,
        Answer::No => Consent::Denied("the user said no".into()),
        Answer::Expired => Consent::Denied("nobody answered in time".into()),
    }
}
