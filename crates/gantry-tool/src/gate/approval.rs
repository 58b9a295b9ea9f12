//! Approval before a call runs. The gate asks through the surface, a person answers, and anything but a clear yes denies
//! the call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::AskedAction;
use serde_json::Value;

use crate::call::{Autonomy, Call};
use crate::policy::{Decision, Verdict};
use crate::text::mask::Masker;
use crate::text::redact;
use crate::tool::{Tool, asked};

/// The time for an answer, unless the approver sets another.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// The time to describe a call. A description may read the file that the call changes.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(10);

/// The rule of questions about the connections of sandboxed commands. The input is the host and the port. A grant for a
/// call does not answer them, because one command may connect to many hosts.
pub const EGRESS_RULE: &str = "egress";
/// The rule of questions about an unknown host, or a write outside the workspace.
pub const BORDER_RULE: &str = "border";
/// The rule of questions about commands that have to leave the sandbox. No grant answers them.
pub const ESCALATION_RULE: &str = "escalation";
/// The rule of questions in a session that has read untrusted and private content. No grant answers them.
pub const FLOW_RULE: &str = "flow-labels";

/// The rule of questions about work that runs later without a person. No grant answers them.
pub const UNATTENDED_RULE: &str = "unattended";

/// The question: a call that needs approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    pub tool: String,
    /// The rule that requires approval.
    pub rule: String,
    pub reason: String,
    /// The input with secrets masked and long values shortened.
    pub input: Value,
    /// A hash over caller, tool, rule and the whole input. It identifies the call.
    pub fingerprint: String,
    /// What the call would do, for people: secrets are masked and long texts are shortened.
    pub action: AskedAction,
    /// As `action`, with nothing masked or shortened. Grants are compared with it; it is never shown.
    pub whole: AskedAction,
}

impl Approval {
    /// Describes a call that `rule` asks about. The fingerprint covers the caller, the rule and the whole input.
    pub fn new(
        masker: &Masker,
        call: &Call,
        tool: &str,
        rule: &str,
        reason: &str,
        input: &Value,
    ) -> Approval {
        let (principal, workspace) = (call.principal.to_string(), call.workspace.to_string_lossy());
        let about = serde_json::json!([principal, call.agent, workspace, tool, rule, input]);
        Approval {
            tool: tool.to_owned(),
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            input: redact::asked(masker, input),
            fingerprint: blake3::hash(about.to_string().as_bytes()).to_hex().to_string(),
            action: redact::asked_action(masker, &asked::other(tool, input)),
            whole: asked::other(tool, input),
        }
    }

    /// Describes the call as `action`, in place of its input.
    pub fn about(self, masker: &Masker, action: AskedAction) -> Approval {
        Approval { action: redact::asked_action(masker, &action), whole: action, ..self }
    }

    /// Describes the call as its tool declares it. The input is shown if the tool takes too long.
    pub(crate) async fn described_by(
        self,
        masker: &Masker,
        call: &Call,
        tool: &Tool,
        input: &Value,
    ) -> Approval {
        match tokio::time::timeout(DESCRIBE_LIMIT, tool.described(masker, call, input)).await {
            Ok(action) => self.about(masker, action),
            Err(_) => self,
        }
    }
}

/// A connection of a command that needs approval.
pub struct AskedConnection<'a> {
    pub host: &'a str,
    pub port: u16,
    /// The host as the person reads it.
    pub place: &'a str,
    /// The session has read untrusted and private content.
    pub labelled: bool,
    /// The command that opens it, if it is known.
    pub command: Option<&'a str>,
}

impl AskedConnection<'_> {
    /// Describes the connection for the person who decides. `tool` started the command.
    pub fn approval(&self, masker: &Masker, call: &Call, tool: &str) -> Approval {
        let AskedConnection { host, port, place, labelled, command } = *self;
        let input = serde_json::json!({"host": host, "port": port});
        // No grant answers a question of the flow rule.
        let (rule, also) = match labelled {
            false => (EGRESS_RULE, ""),
            true => (FLOW_RULE, ", and the session has read untrusted and private content"),
        };
        let reason = format!("a command wants to connect to {place}{also}");
        let (host, command) = (host.to_owned(), command.map(str::to_owned));
        let action = AskedAction::Connection { host, port, command };
        Approval::new(masker, call, tool, rule, &reason, &input).about(masker, action)
    }
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    Allowed,
    /// The grant with this id covers the call.
    Granted(String),
    /// The reason: a person said no, or no user could be asked.
    Denied(String),
}

pub type ConsentFuture = Pin<Box<dyn Future<Output = Consent> + Send>>;

/// Asks for approval. Dropping the future withdraws the question.
#[derive(Clone)]
pub struct Approver {
    ask: Arc<dyn Fn(Approval) -> ConsentFuture + Send + Sync>,
    limit: Duration,
}

impl Approver {
    pub fn new<F, Fut>(ask: F) -> Approver
    where
        F: Fn(Approval) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Consent> + Send + 'static,
    {
        Approver { ask: Arc::new(move |approval| Box::pin(ask(approval))), limit: ANSWER_LIMIT }
    }

    /// Sets the time for an answer.
    pub fn within(self, limit: Duration) -> Approver {
        Approver { limit, ..self }
    }

    /// The time for an answer.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    pub fn ask(&self, approval: Approval) -> ConsentFuture {
        (self.ask)(approval)
    }
}

impl std::fmt::Debug for Approver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Approver")
    }
}

/// Asks for approval if the verdict requires it and there is an approver. Returns the verdict after the answer.
pub(crate) async fn settle(
    masker: &Masker,
    call: &Call,
    tool: &Tool,
    input: &Value,
    verdict: Verdict,
) -> Verdict {
    let asks = verdict.decision == Decision::Ask && call.autonomy != Autonomy::Autonomous;
    let Some(approver) = call.approver.as_ref().filter(|_| asks) else { return verdict };
    let approval = Approval::new(masker, call, tool.name(), &verdict.rule, &verdict.reason, input);
    let approval = approval.described_by(masker, call, tool, input).await;
    let until_deadline = call.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
    let limit = until_deadline.unwrap_or(approver.limit).min(approver.limit);
    let consent = tokio::select! {
        biased;
        () = call.cancel.cancelled() => Consent::Denied("the call was cancelled before anyone answered".into()),
        answered = tokio::time::timeout(limit, approver.ask(approval)) => {
            answered.unwrap_or_else(|_| Consent::Denied("the user did not answer in time".into()))
        }
    };
    match consent {
        Consent::Allowed => {
            Verdict { decision: Decision::Allow, rule: format!("{} (approved)", verdict.rule), ..verdict }
        }
        Consent::Granted(grant) => Verdict {
            decision: Decision::Allow,
            rule: format!("{} (grant {grant})", verdict.rule),
            ..verdict
        },
        Consent::Denied(why) => {
            Verdict { decision: Decision::Deny, reason: format!("{}; {why}", verdict.reason), ..verdict }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::Phase;
    use crate::call::{Principal, Surface};
    use crate::testing::{call_as, echo_tool, gate};
    use crate::tool::Toolset;

    /// A supervised agent is asked about a tool that may destroy; gives what it gets, and the lines of the audit log.
    async fn check(
        approver: Option<Approver>,
        autonomy: Autonomy,
    ) -> (Result<Value, Value>, Vec<(Phase, String)>) {
        let (gate, audit) = gate([echo_tool("write", Toolset::Basic)]);
        let mut call = Call::new(Principal::Agent { id: "a".into() }, Surface::Mcp, "/w".into());
        (call.autonomy, call.approver) = (autonomy, approver);
        let answer = call_as(&gate, call, "write", json!({"text": "x"})).await;
        let lines = audit.records().into_iter().map(|(line, _)| (line.phase, line.rule.unwrap_or_default()));
        (answer, lines.collect())
    }

    fn answering(consent: Consent) -> Option<Approver> {
        Some(Approver::new(move |approval| {
            assert_eq!((&*approval.tool, &approval.input), ("write", &json!({"text": "x"})));
            std::future::ready(consent.clone())
        }))
    }

    #[tokio::test]
    async fn a_yes_lets_the_call_run_and_is_recorded() {
        let (answer, lines) = check(answering(Consent::Allowed), Autonomy::Supervised).await;
        assert_eq!(answer, Ok(json!({"text": "x"})));
        assert_eq!(lines[0].0, Phase::Begin);
        assert!(lines[0].1.ends_with("(approved)"), "{lines:?}");
    }

    #[tokio::test]
    async fn a_grant_is_named_in_the_audit_log() {
        let (answer, lines) = check(answering(Consent::Granted("3f2a".into())), Autonomy::Supervised).await;
        assert_eq!(answer, Ok(json!({"text": "x"})));
        assert_eq!(lines[0], (Phase::Begin, "supervised-agent (grant 3f2a)".into()));
    }

    #[tokio::test]
    async fn denial_names_the_reason_and_the_rule() {
        let (answer, lines) =
            check(answering(Consent::Denied("the user said no".into())), Autonomy::Supervised).await;
        let error = answer.unwrap_err()["error"].clone();
        assert_eq!(error["code"], "denied");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("the user said no") && message.contains("(rule "), "{message}");
        assert_eq!(lines[0].0, Phase::Refused);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_answer_denies_after_the_timeout() {
        let silent = Some(Approver::new(|_| std::future::pending()));
        let (answer, _) = check(silent, Autonomy::Supervised).await;
        assert!(answer.unwrap_err().to_string().contains("the user did not answer in time"));
    }

    #[tokio::test]
    async fn call_without_an_approver_is_refused() {
        let (answer, _) = check(None, Autonomy::Supervised).await;
        assert_eq!(answer.unwrap_err()["error"]["code"], "approval_needed");
    }
}
