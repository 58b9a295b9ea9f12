//! Approvals of calls. Questions are recorded, published to listeners, and answered by a person or a timeout.

use std::path::Path;

use gantry_store::DatabaseError;
use gantry_tool::{Approval, Consent, ESCALATION_RULE, LABELS_RULE};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Done, Driver};
use crate::entry::{ApprovalDecision, Entry, GrantScope, Question};
use crate::sessions::{SessionError, now_ms};
use crate::state::{PendingCall, State};

const MINUTE_MS: i64 = 60_000;
/// The gate's rule for supervised agents. An approval of the same call by the flow rule also covers it.
const SUPERVISED: &str = "supervised-agent";

impl Driver {
    /// Asks for an approval of a call of this session.
    pub(super) async fn ask(
        &mut self,
        call: &str,
        approval: Approval,
        consent: oneshot::Sender<Consent>,
    ) -> Result<(), DatabaseError> {
        let (agent, child) = (self.agent(), self.child_name());
        let minutes = agent.approval_minutes;
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let exact =
            loaded.state.call(call).map(|call| call_fingerprint(call, &agent.workspace)).unwrap_or_default();
        let known = known_answer(&loaded.state, call, &approval, &exact);
        let question = match known {
            KnownAnswer::Gone => {
                let _ = consent.send(Consent::Denied("the run has ended".into()));
                return Ok(());
            }
            KnownAnswer::Answered(answer) => {
                let _ = consent.send(consent_of(&answer));
                return Ok(());
            }
            // The question is from before a restart. The new entry records that the call waits for it again.
            KnownAnswer::Open(question) => *question,
            KnownAnswer::New => Question {
                id: Uuid::new_v4().simple().to_string()[..8].to_owned(),
                call: call.to_owned(),
                tool: approval.tool,
                rule: approval.rule,
                reason: {
                    let hidden = hidden_input_note(&approval.input, &self.key.key);
                    match &child {
                        Some(child) => {
                            format!("asked by the child agent {:?}: {}{hidden}", child.name, approval.reason)
                        }
                        None => format!("{}{hidden}", approval.reason),
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

    /// Answers the named question, or the only open one.
    pub(super) async fn answer(
        &mut self,
        id: Option<String>,
        answer: ApprovalDecision,
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
            let message = match (id, ids.is_empty()) {
                (Some(id), true) => format!("unknown question {id:?}; no question is open"),
                (Some(id), false) => format!("unknown question {id:?}; open questions: {}", ids.join(", ")),
                (None, true) => "no question is open in this session".to_owned(),
                (None, false) => {
                    format!("several questions are open ({}); choose one by its id", ids.join(", "))
                }
            };
            let _ = done.send(Err(SessionError::Refused(message)));
            return Ok(());
        };
        // An approval by the flow rule covers exactly this call.
        let is_too_wide = question.rule == LABELS_RULE
            && matches!(answer, ApprovalDecision::Always { scope: GrantScope::Tool, .. });
        if is_too_wide {
            let message = "'always any' is not possible here: only this exact call can be allowed";
            let _ = done.send(Err(SessionError::Refused(message.into())));
            return Ok(());
        }
        if question.rule == ESCALATION_RULE && matches!(answer, ApprovalDecision::Always { .. }) {
            let message = "'always' is not possible here: leaving the sandbox is allowed once per call";
            let _ = done.send(Err(SessionError::Refused(message.into())));
            return Ok(());
        }
        let verb = if answer.allows() { "allowed" } else { "denied" };
        let text = format!("{by}: {verb} {}{}", question.tool, grant_note(&answer));
        self.record_answer(question.id, answer, by).await?;
        let _ = done.send(Ok(text));
        Ok(())
    }

    pub(super) async fn expire_questions(&mut self) -> Result<(), DatabaseError> {
        let now = now_ms();
        let Some(state) = self.state() else { return Ok(()) };
        let expired = state.open_questions().filter(|question| question.expires <= now);
        let expired: Vec<String> = expired.map(|question| question.id.clone()).collect();
        for id in expired {
            self.record_answer(id, ApprovalDecision::Expired, "the timeout".to_owned()).await?;
        }
        Ok(())
    }

    async fn record_answer(
        &mut self,
        question: String,
        answer: ApprovalDecision,
        by: String,
    ) -> Result<(), DatabaseError> {
        let consent = consent_of(&answer);
        let entry = Entry::ApprovalAnswered { question: question.clone(), answer, by, at: now_ms() };
        self.append(vec![entry]).await?;
        let waiting = self.loaded.as_mut().and_then(|loaded| loaded.asking.remove(&question));
        for asking in waiting.into_iter().flatten() {
            let _ = asking.send(consent.clone());
        }
        Ok(())
    }
}

/// What the journal knows about a question.
enum KnownAnswer {
    /// The call has ended.
    Gone,
    New,
    Open(Box<Question>),
    Answered(ApprovalDecision),
}

/// Identifies a call as the model wrote it, independently of the rule that asks.
fn call_fingerprint(call: &PendingCall, workspace: &Path) -> String {
    let about = json!([workspace.to_string_lossy(), call.name, call.input]);
    blake3::hash(about.to_string().as_bytes()).to_hex().to_string()
}

/// Looks for the question in the journal: it may be open since before a restart, or covered by a grant.
fn known_answer(state: &State, call: &str, approval: &Approval, exact: &str) -> KnownAnswer {
    let Some(call) = state.call(call) else { return KnownAnswer::Gone };
    let flow_allowed = call.questions.iter().any(|asked| {
        asked.question.rule == LABELS_RULE && asked.answer.as_ref().is_some_and(ApprovalDecision::allows)
    });
    if flow_allowed && approval.rule == SUPERVISED {
        return KnownAnswer::Answered(ApprovalDecision::Yes);
    }
    let same = call.questions.iter().rev().find(|asked| asked.question.fingerprint == approval.fingerprint);
    match same {
        Some(asked) => match &asked.answer {
            Some(answer) => KnownAnswer::Answered(answer.clone()),
            None => KnownAnswer::Open(Box::new(asked.question.clone())),
        },
        None if approval.rule != ESCALATION_RULE && state.is_granted(approval, exact, now_ms()) => {
            KnownAnswer::Answered(ApprovalDecision::Yes)
        }
        None => KnownAnswer::New,
    }
}

/// Describes how long and for which arguments a grant holds.
fn grant_note(answer: &ApprovalDecision) -> String {
    let ApprovalDecision::Always { scope, until } = answer else { return String::new() };
    let what = if *scope == GrantScope::Tool { "any arguments" } else { "these arguments" };
    let until = jiff::Timestamp::from_millisecond(*until).map_or(String::new(), |time| format!("{time:.0}"));
    format!(" with {what} until {until}")
}

/// Says where to read the whole input, if a part of it is not shown. An approval covers all of it.
fn hidden_input_note(input: &Value, key: &str) -> String {
    match hidden_chars(input) {
        0 => String::new(),
        count => format!(
            "; {count} characters of the input are not shown here, and a yes allows them too: `gantry sessions export {key}` \
             shows the whole input"
        ),
    }
}

fn hidden_chars(input: &Value) -> u64 {
    match input {
        Value::Object(fields) => {
            let own = fields.get("charactersNotShown").and_then(Value::as_u64).unwrap_or(0);
            fields.values().map(hidden_chars).fold(own, u64::saturating_add)
        }
        Value::Array(items) => items.iter().map(hidden_chars).fold(0, u64::saturating_add),
        _ => 0,
    }
}

fn consent_of(answer: &ApprovalDecision) -> Consent {
    match answer {
        ApprovalDecision::Yes | ApprovalDecision::Always { .. } => Consent::Allowed,
        ApprovalDecision::No => Consent::Denied("the user said no".into()),
        ApprovalDecision::Expired => Consent::Denied("the user did not answer in time".into()),
    }
}
