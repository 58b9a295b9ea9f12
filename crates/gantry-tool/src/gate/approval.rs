//! Asking somebody before a call runs. The gate asks, whoever is on the other side of a surface answers, and everything but
//! a clear yes is a no.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::call::{Autonomy, Call};
use crate::policy::{Decision, Verdict};
use crate::text::mask::Masker;
use crate::text::redact;
use crate::tool::Tool;

/// How long somebody may think about it, unless the approver gives them more or less time.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// What somebody is asked to allow.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    pub tool: String,
    /// The rule that asks, and why.
    pub rule: String,
    pub reason: String,
    /// As it would be recorded: secrets masked, long values shortened.
    pub input: Value,
    /// Tells this call from every other, down to the last byte of its input.
    pub fingerprint: String,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    Allowed,
    /// Why not: somebody said no, or could not be asked.
    Denied(String),
}

pub type ConsentFuture = Pin<Box<dyn Future<Output = Consent> + Send>>;

/// Asks somebody. Dropping the future takes the question back.
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

    /// The same, with so much time for an answer.
    pub fn within(self, limit: Duration) -> Approver {
        Approver { limit, ..self }
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

/// The verdict on a call once somebody was asked about it, if its rule asks and there is somebody.
pub(crate) async fn settle(
    masker: &Masker,
    call: &Call,
    tool: &Tool,
    input: &Value,
    verdict: Verdict,
) -> Verdict {
    let asks = verdict.decision == Decision::Ask && call.autonomy != Autonomy::Autonomous;
    let Some(approver) = call.approver.as_ref().filter(|_| asks) else { return verdict };
    let approval = Approval {
        tool: tool.name().to_owned(),
        rule: verdict.rule.clone(),
        reason: verdict.reason.clone(),
        input: redact::asked(masker, input),
        fingerprint: fingerprint(call, tool, input, &verdict),
    };
    let until_deadline = call.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
    let limit = until_deadline.unwrap_or(approver.limit).min(approver.limit);
    let consent = tokio::select! {
        biased;
        () = call.cancel.cancelled() => Consent::Denied("the call was cancelled before anybody answered".into()),
        answered = tokio::time::timeout(limit, approver.ask(approval)) => {
            answered.unwrap_or_else(|_| Consent::Denied("nobody answered in time".into()))
        }
    };
    match consent {
        Consent::Allowed => {
            Verdict { decision: Decision::Allow, rule: format!("{} (approved)", verdict.rule), ..verdict }
        }
        Consent::Denied(why) => {
            Verdict { decision: Decision::Deny, reason: format!("{}; {why}", verdict.reason), ..verdict }
        }
    }
}

fn fingerprint(call: &Call, tool: &Tool, input: &Value, verdict: &Verdict) -> String {
    let asked = serde_json::json!([
        call.principal.to_string(),
        call.agent,
        call.workspace.to_string_lossy(),
        tool.name(),
        verdict.rule,
        input
    ]);
    blake3::hash(asked.to_string().as_bytes()).to_hex().to_string()
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
    async fn a_no_says_whose_and_by_which_rule() {
        let (answer, lines) =
            check(answering(Consent::Denied("the user said no".into())), Autonomy::Supervised).await;
        let error = answer.unwrap_err()["error"].clone();
        assert_eq!(error["code"], "denied");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("the user said no") && message.contains("(rule "), "{message}");
        assert_eq!(lines[0].0, Phase::Refused);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_forever_and_silence_is_no() {
        let silent = Some(Approver::new(|_| std::future::pending()));
        let (answer, _) = check(silent, Autonomy::Supervised).await;
        assert!(answer.unwrap_err().to_string().contains("nobody answered in time"));
    }

    #[tokio::test]
    async fn without_anybody_to_ask_and_for_autonomous_agents_it_is_denied() {
        let (answer, _) = check(None, Autonomy::Supervised).await;
        assert_eq!(answer.unwrap_err()["error"]["code"], "approval_needed");
    }
}
