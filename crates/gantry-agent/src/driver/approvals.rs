//! Approvals of calls. Questions are recorded, published to listeners, and answered by a person or a timeout.

use std::path::Path;

use gantry_protocol::{AskedAction, GrantInfo, GrantReach};
use gantry_store::{DatabaseError, StoredGrant};
use gantry_tool::{Approval, Consent, FLOW_RULE};
use serde_json::json;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Done, Driver};
use crate::entry::{ApprovalDecision, Entry, GrantScope, Question};
use crate::grants;
use crate::sessions::{SessionError, is_operator, now_ms};
use crate::state::{ApprovalRequest, PendingCall, State};

const MINUTE_MS: i64 = 60_000;

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
        let grants = self.shared.grants.of_session(&self.key.agent, &self.key.key, now_ms()).await?;
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let exact =
            loaded.state.call(call).map(|call| call_fingerprint(call, &agent.workspace)).unwrap_or_default();
        let known = known_answer(&loaded.state, call, &approval, &exact, &grants);
        let question = match known {
            KnownAnswer::Gone => {
                let _ = consent.send(Consent::Denied("the run has ended".into()));
                return Ok(());
            }
            KnownAnswer::Answered(answer) => {
                let _ = consent.send(consent_of(&answer));
                return Ok(());
            }
            KnownAnswer::Granted(grant) => {
                let _ = consent.send(Consent::Granted(grant));
                return Ok(());
            }
            // The question is from before a restart. The new entry records that the call waits for it again.
            KnownAnswer::Open(question) => *question,
            KnownAnswer::New => Question {
                id: short_id(),
                call: call.to_owned(),
                offers: grants::offers(&approval, &grants, agent.always_hours),
                tool: approval.tool,
                rule: approval.rule,
                reason: {
                    let hidden = hidden_input_note(&approval.action, &self.key.key);
                    match &child {
                        Some(child) => {
                            format!("asked by the child agent {:?}: {}{hidden}", child.name, approval.reason)
                        }
                        None => format!("{}{hidden}", approval.reason),
                    }
                },
                input: approval.input,
                action: Some(Box::new(approval.action)),
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
        let answer = match self.with_grant(&question, answer, &by).await {
            Ok(answer) => answer,
            Err(SessionError::Store(err)) => return Err(err),
            Err(refused) => {
                let _ = done.send(Err(refused));
                return Ok(());
            }
        };
        let verb = if answer.allows() { "allowed" } else { "denied" };
        let text = format!("{by}: {verb} {}{}", question.tool, grant_note(&question, &answer));
        self.record_answer(question.id, answer, by).await?;
        let _ = done.send(Ok(text));
        Ok(())
    }

    /// Stores the grant of an "always". The grant is on disk before the answer is recorded.
    async fn with_grant(
        &self,
        question: &Question,
        answer: ApprovalDecision,
        by: &str,
    ) -> Result<ApprovalDecision, SessionError> {
        let ApprovalDecision::Always { scope, until, reach, .. } = answer else { return Ok(answer) };
        if let Some(why) = grants::refused(&scope, &question.rule) {
            return Err(SessionError::Refused(why));
        }
        if reach == GrantReach::Agent && !is_operator(by) {
            let message = "only the operator can give a grant for later sessions";
            return Err(SessionError::Refused(message.to_owned()));
        }
        let action = question.action();
        let info = GrantInfo {
            id: short_id(),
            agent: self.key.agent.clone(),
            session_key: self.key.key.clone(),
            reach,
            label: grants::label(&scope, &question.tool, &action),
            scope: scope.clone(),
            tool: question.tool.clone(),
            rule: question.rule.clone(),
            asked: grants::headline(&action),
            by: by.to_owned(),
            created: now_ms(),
            expires: until,
        };
        let grant = Some(info.id.clone());
        let (fingerprint, exact) = (question.fingerprint.clone(), question.exact.clone());
        match self.shared.grants.add(&StoredGrant { info, fingerprint, exact }).await {
            Ok(()) => Ok(ApprovalDecision::Always { scope, until, reach, grant }),
            Err(DatabaseError::Refused(why)) => Err(SessionError::Refused(why)),
            Err(err) => Err(SessionError::Store(err)),
        }
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
    /// Grants cover it.
    Granted(String),
}

/// Identifies a call as the model wrote it, independently of the rule that asks.
fn call_fingerprint(call: &PendingCall, workspace: &Path) -> String {
    let about = json!([workspace.to_string_lossy(), call.name, call.input]);
    blake3::hash(about.to_string().as_bytes()).to_hex().to_string()
}

/// Looks for the question in the journal: it may be open since before a restart, or covered by a grant.
fn known_answer(
    state: &State,
    call: &str,
    approval: &Approval,
    exact: &str,
    grants: &[StoredGrant],
) -> KnownAnswer {
    let Some(call) = state.call(call) else { return KnownAnswer::Gone };
    let flow_allowed = call.questions.iter().any(|asked| {
        asked.question.rule == FLOW_RULE && asked.answer.as_ref().is_some_and(ApprovalDecision::allows)
    });
    // The same call was approved by a stricter rule.
    if flow_allowed && approval.rule == grants::SUPERVISED {
        return KnownAnswer::Answered(ApprovalDecision::Yes);
    }
    let same = call.questions.iter().rev().find(|asked| asked.question.fingerprint == approval.fingerprint);
    // A grant that was revoked meanwhile does not answer the question again.
    let is_revoked = |asked: &&ApprovalRequest| match &asked.answer {
        Some(ApprovalDecision::Always { grant: Some(id), .. }) => {
            grants.iter().all(|grant| grant.info.id != *id)
        }
        _ => false,
    };
    match same.filter(|asked| !is_revoked(asked)) {
        Some(asked) => match &asked.answer {
            Some(answer) => KnownAnswer::Answered(answer.clone()),
            None => KnownAnswer::Open(Box::new(asked.question.clone())),
        },
        None if state.is_granted(approval, exact, now_ms()) => KnownAnswer::Answered(ApprovalDecision::Yes),
        None => match grants::covering(grants, approval, exact) {
            Some(grant) => KnownAnswer::Granted(grant),
            None => KnownAnswer::New,
        },
    }
}

/// Describes what a grant covers, and how long.
fn grant_note(question: &Question, answer: &ApprovalDecision) -> String {
    let ApprovalDecision::Always { scope, until, reach, grant } = answer else { return String::new() };
    let what = match scope {
        GrantScope::Tool => " with any arguments".to_owned(),
        GrantScope::Call => " with these arguments".to_owned(),
        scope => format!(", and {}", grants::label(scope, &question.tool, &question.action())),
    };
    let until = jiff::Timestamp::from_millisecond(*until).map_or(String::new(), |time| format!("{time:.0}"));
    let sessions = if *reach == GrantReach::Agent { " in all sessions of the agent" } else { "" };
    let grant = grant.as_ref().map_or(String::new(), |grant| format!(" (grant {grant})"));
    format!("{what}{sessions} until {until}{grant}")
}

fn short_id() -> String {
    Uuid::new_v4().simple().to_string()[..8].to_owned()
}

/// Says where to read the whole input, if a part of it is not shown. An approval covers all of it.
fn hidden_input_note(action: &AskedAction, key: &str) -> String {
    match action.not_shown() {
        0 => String::new(),
        count => format!(
            "; {count} characters of the call are not shown here, and a yes allows them too: `gantry sessions questions \
             {key}` shows the whole call"
        ),
    }
}

fn consent_of(answer: &ApprovalDecision) -> Consent {
    match answer {
        ApprovalDecision::Always { grant: Some(grant), .. } => Consent::Granted(grant.clone()),
        ApprovalDecision::Yes | ApprovalDecision::Always { .. } => Consent::Allowed,
        ApprovalDecision::No => Consent::Denied("the user said no".into()),
        ApprovalDecision::Expired => Consent::Denied("the user did not answer in time".into()),
    }
}
