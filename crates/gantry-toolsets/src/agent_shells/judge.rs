//! `SessionJudge` decides about the connections of one session: the preset, the operator's list,
//! then a question to a person. Every connection becomes an audit line.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gantry_net::{
    ConnectionRecord, EgressDecision, EgressJudge, EgressOutcome, NetworkPolicy, PresetKind, Wanted, preset,
};
use gantry_tool::{
    Approval, AskedConnection, AuditRecord, AuditSink, Autonomy, Consent, Decision, Durability, EGRESS_RULE,
    Live, Masker, Phase,
};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::shell_session::{Attributed, Ledger};
use crate::machine::MachineSettings;

/// How many answers a session remembers. Then it forgets them, and asks again.
const MAX_REMEMBERED: usize = 1_000;

pub(super) struct SessionJudge {
    policy: NetworkPolicy,
    ledger: Arc<Ledger>,
    settings: Live<MachineSettings>,
    audit: Arc<dyn AuditSink>,
    masker: Masker,
    state: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// The open connections.
    open: Vec<Open>,
    /// Answers of this session.
    answers: HashMap<Subject, EgressDecision>,
    /// Open questions. One question serves all connections that wait for it.
    questions: HashMap<Subject, Weak<Question>>,
}

struct Open {
    wanted: Wanted,
    by: Attributed,
    /// The rule that let it pass, for the audit log.
    rule: String,
}

/// `Answer` is an answer to a question, with the grant that gave it.
#[derive(Debug, Clone)]
struct Answer {
    decision: EgressDecision,
    grant: Option<String>,
}

impl Answer {
    const ALLOWED: Answer = Answer { decision: EgressDecision::Allow, grant: None };

    fn denied(reason: String) -> Answer {
        Answer { decision: EgressDecision::Deny { reason }, grant: None }
    }
}

/// `Subject` is what a question is about. A yes that was given before the session held both labels
/// does not count afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    host: String,
    /// Only for services on the loopback. Other hosts have two ports, which one answer covers.
    port: Option<u16>,
    labelled: bool,
}

impl Subject {
    fn of(wanted: &Wanted, labelled: bool) -> Subject {
        let port = wanted.loopback_service.then_some(wanted.port);
        Subject { host: wanted.host.clone(), port, labelled }
    }
}

/// `Question` is asked while at least one connection waits for it.
struct Question {
    answer: watch::Receiver<Option<Answer>>,
    asking: JoinHandle<()>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl SessionJudge {
    pub(super) fn new(
        policy: NetworkPolicy,
        ledger: Arc<Ledger>,
        settings: Live<MachineSettings>,
        audit: Arc<dyn AuditSink>,
        masker: Masker,
    ) -> SessionJudge {
        SessionJudge { policy, ledger, settings, audit, masker, state: Arc::default() }
    }

    /// Reports whether a connection passes without a question.
    fn passes(&self, wanted: &Wanted, labelled: bool) -> bool {
        match self.policy {
            // The proxy has compared the host with the list. Nothing else applies.
            NetworkPolicy::AllowList(_) => return true,
            NetworkPolicy::DenyAll => return false,
            NetworkPolicy::AllowAll => {}
        }
        let known = if wanted.loopback_service { None } else { preset(&wanted.host) };
        match known {
            Some(PresetKind::PullOnly) => true,
            _ if labelled => false,
            Some(PresetKind::TwoWay) => true,
            None => self.settings.get().egress.allow.iter().any(|host| host.matches(wanted)),
        }
    }

    /// Returns the decision of the operator's rules, if one names the host.
    fn ruled(&self, wanted: &Wanted, by: &Attributed) -> Option<Decision> {
        let policy = by.call.policy.as_ref().filter(|_| !wanted.loopback_service);
        policy?.host_decision(&by.call, by.tool, &wanted.host)
    }

    async fn ask(&self, wanted: &Wanted, by: &Attributed) -> Answer {
        let subject = Subject::of(wanted, by.is_labelled());
        if let Some(known) = self.known().answers.get(&subject) {
            return Answer { decision: known.clone(), grant: None };
        }
        let why = match () {
            () if by.call.autonomy == Autonomy::Autonomous => "the agent is autonomous, so nobody is asked",
            () if !by.is_running => "no call of the session is running that could ask",
            () if by.call.connection_approver().is_none() => "nobody can be asked",
            () => return self.answer(subject, wanted, by).await,
        };
        Answer::denied(format!("{why}; {}", self.remedy(wanted, by.is_labelled())))
    }

    /// Waits for the answer to the question about the host, and asks it if nobody did.
    async fn answer(&self, subject: Subject, wanted: &Wanted, by: &Attributed) -> Answer {
        let question = {
            let mut known = self.known();
            known.questions.retain(|_, question| question.strong_count() > 0);
            let open = known.questions.get(&subject).and_then(Weak::upgrade);
            open.unwrap_or_else(|| {
                let question = Arc::new(self.question(subject.clone(), wanted, by));
                known.questions.insert(subject, Arc::downgrade(&question));
                question
            })
        };
        let mut answer = question.answer.clone();
        let answered = answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answered.unwrap_or_else(|| Answer::denied("the question was withdrawn".into()))
    }

    fn question(&self, subject: Subject, wanted: &Wanted, by: &Attributed) -> Question {
        let (answered, answer) = watch::channel(None);
        let asked = by.call.connection_approver().map(|approver| approver.ask(self.approval(wanted, by)));
        let remedy = self.remedy(wanted, subject.labelled);
        let (state, ledger, call) = (self.state.clone(), self.ledger.clone(), by.call.clone());
        let asking = tokio::spawn(async move {
            let consent = match asked {
                Some(asked) => asked.await,
                None => Consent::Denied("nobody can be asked".into()),
            };
            let answer = match consent {
                Consent::Allowed => Answer { decision: EgressDecision::Allow, grant: None },
                Consent::Granted(grant) => Answer { decision: EgressDecision::Allow, grant: Some(grant) },
                Consent::Denied(why) => Answer::denied(format!("{why}; {remedy}")),
            };
            // A call that has ended was not answered by a person.
            let is_answer = ledger.is_running(&call) && !call.cancel.is_cancelled();
            // A grant is looked up each time, because it may be revoked.
            if answer.grant.is_none() && (answer.decision == EgressDecision::Allow || is_answer) {
                let answers = &mut lock(&state).answers;
                if answers.len() >= MAX_REMEMBERED {
                    answers.clear();
                }
                answers.insert(subject, answer.decision.clone());
            }
            answered.send_replace(Some(answer));
        });
        Question { answer, asking }
    }

    fn approval(&self, wanted: &Wanted, by: &Attributed) -> Approval {
        let Wanted { host, port, .. } = wanted;
        let place = match wanted.loopback_service {
            true => format!("port {port} of this machine's loopback"),
            false => format!("{host} (port {port})"),
        };
        let command = by.command.as_deref();
        AskedConnection { host, port: *port, place: &place, labelled: by.is_labelled(), command }.approval(
            &self.masker,
            &by.call,
            by.tool,
        )
    }

    /// Says how to allow the connection.
    fn remedy(&self, wanted: &Wanted, labelled: bool) -> String {
        let own = match wanted.loopback_service {
            true => format!("{}:{}", wanted.host, wanted.port),
            false => wanted.host.clone(),
        };
        if labelled
            && (preset(&wanted.host).is_some()
                || self.settings.get().egress.allow.iter().any(|host| host.matches(wanted)))
        {
            return "the session has read untrusted and private content, so a person must allow each host"
                .to_owned();
        }
        let hosts: Vec<String> =
            self.settings.get().egress.allow.iter().map(ToString::to_string).chain([own]).collect();
        format!("to allow it: gantry config set egress.allow '{}'", json!(hosts))
    }

    /// Adds a warning to the call, because many clients do not show why a proxy refused them.
    fn warn(&self, by: &Attributed, wanted: &Wanted, reason: &str) {
        let mut text = format!("no connection to {}:{}: {reason}", wanted.host, wanted.port);
        self.masker.mask_text(&mut text);
        by.call.findings.warn_once(&text);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<Known>) -> MutexGuard<'_, Known> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EgressJudge for SessionJudge {
    fn decide(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = EgressDecision> + Send + '_>> {
        Box::pin(async move {
            let by = self.ledger.current();
            let rule = EGRESS_RULE.to_owned();
            self.known().open.push(Open { wanted: wanted.clone(), by: by.clone(), rule });
            let Answer { decision, grant } = match self.ruled(&wanted, &by) {
                Some(Decision::Deny) => {
                    Answer::denied("a rule of the operator's policy forbids this host".to_owned())
                }
                Some(Decision::Allow) if self.policy.allows(&wanted.host) => Answer::ALLOWED,
                None if self.passes(&wanted, by.is_labelled()) => Answer::ALLOWED,
                Some(Decision::Allow | Decision::Ask) | None => self.ask(&wanted, &by).await,
            };
            match &decision {
                EgressDecision::Allow => self.ledger.connected(),
                EgressDecision::Deny { reason } => self.warn(&by, &wanted, reason),
            }
            if let Some(grant) = grant {
                let same = |open: &&mut Open| open.wanted == wanted && open.by.call.id == by.call.id;
                for open in self.known().open.iter_mut().filter(same) {
                    open.rule = format!("{EGRESS_RULE} (grant {grant})");
                }
            }
            decision
        })
    }

    fn ended(&self, record: ConnectionRecord) {
        let open = {
            let mut known = self.known();
            let same = known.open.iter().position(|open| record.wanted.as_ref() == Some(&open.wanted));
            same.map(|position| known.open.swap_remove(position))
        };
        let (by, rule) = match open {
            Some(open) => (open.by, open.rule),
            None => (self.ledger.current(), EGRESS_RULE.to_owned()),
        };
        let (status, error) = match &record.outcome {
            EgressOutcome::Finished => ("success", None),
            EgressOutcome::Denied { reason } | EgressOutcome::Refused { reason } => {
                ("denied", Some(reason.clone()))
            }
            outcome => ("failure", Some(outcome.reason().to_owned())),
        };
        if let (EgressOutcome::Refused { reason }, Some(wanted)) = (&record.outcome, &record.wanted) {
            self.warn(&by, wanted, reason);
        }
        let masked = |mut text: String| {
            self.masker.mask_text(&mut text);
            text
        };
        let wanted = record.wanted.as_ref();
        let line = AuditRecord {
            call: by.call.id.clone(),
            phase: Phase::Connection,
            principal: by.call.principal.name(),
            agent: by.call.agent.clone(),
            surface: by.call.surface.name().into(),
            tool: by.tool.to_owned(),
            input: Some(json!({
                "host": wanted.map(|wanted| masked(wanted.host.clone())),
                "port": wanted.map(|wanted| wanted.port),
                "bytesUp": record.bytes_up,
                "bytesDown": record.bytes_down,
            })),
            rule: Some(rule),
            status: Some(status.into()),
            error: error.map(masked),
            duration_ms: Some((record.duration.as_secs_f64() * 1e6).round() / 1e3),
        };
        // If this fails, the gate cannot record the next call either, and refuses it.
        let _ = self.audit.append(line, Durability::Soon);
    }
}

#[cfg(test)]
mod tests;
