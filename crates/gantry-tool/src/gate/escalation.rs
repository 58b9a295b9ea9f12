//! Commands of agents that leave the sandbox. A person is asked about each of them, unless a rule of the operator allows it.

use serde_json::Value;

use super::Gate;
use super::approval::ESCALATION_RULE;
use crate::call::{Autonomy, Call, PrincipalKind};
use crate::error::Violation;
use crate::policy::{Decision, Request, Verdict};
use crate::tool::Tool;

/// The field of the input with the reason for leaving the sandbox.
pub const ESCALATION_FIELD: &str = "escalate";

const MAX_REASON_CHARS: usize = 500;

/// Whether an allowed call runs outside the sandbox. The operator's commands are not in it.
pub(super) fn leaves_sandbox(call: &Call, tool: &Tool, input: &Value) -> bool {
    call.principal.is_own_agent() && escalation(tool, input).is_some()
}

impl Tool {
    /// Whether a call with this input asks to leave the sandbox.
    pub fn asks_to_leave_sandbox(&self, input: &Value) -> bool {
        escalation(self, input).is_some()
    }
}

/// The value of the field, if the tool has it and the call sets it.
fn escalation<'a>(tool: &Tool, input: &'a Value) -> Option<&'a Value> {
    input.get(ESCALATION_FIELD).filter(|value| tool.has_escalation() && !value.is_null())
}

impl Gate {
    /// Applies the rule about leaving the sandbox to the verdict of policy. An error is a reason that is empty or too long.
    pub(super) fn decide_escalation(
        &self,
        request: &Request<'_>,
        tool: &Tool,
        verdict: Verdict,
    ) -> Result<Verdict, Violation> {
        let Some(escalation) = escalation(tool, request.input) else { return Ok(verdict) };
        let reason = checked_reason(escalation)?;
        let call = request.call;
        match call.principal.kind() {
            PrincipalKind::Operator => return Ok(verdict),
            PrincipalKind::Client | PrincipalKind::Mcp => {
                let reason = format!(
                    "only Gantry's own agents can leave the sandbox with {ESCALATION_FIELD}; leave the field out"
                );
                return Ok(verdict.stricter(about(Decision::Deny, reason)));
            }
            PrincipalKind::Agent | PrincipalKind::Scheduler => {}
        }
        // On a node, the gateway has asked. The node's own rules still apply.
        if verdict.decision == Decision::Deny || call.escalated || self.rules_allow_escalation(request) {
            return Ok(verdict);
        }
        if call.autonomy == Autonomy::Autonomous {
            let reason = "the agent is autonomous, and leaving the sandbox needs a person's approval";
            return Ok(about(Decision::Deny, reason.into()));
        }
        if call.has_both_labels() {
            let reason = "this conversation or its workspace holds untrusted content, so its commands stay in the sandbox; start \
                 a new conversation (/new), or let the operator clear the marks of files (/trust PATH)";
            return Ok(about(Decision::Deny, reason.into()));
        }
        let reason =
            format!("{} wants to leave the sandbox and run this with your rights: {reason}", call.agent);
        let asked = about(Decision::Ask, reason);
        let (decision, sensitive) = (verdict.decision, verdict.sensitive);
        let asks = [Some(asked.clone()), (decision == Decision::Ask).then_some(verdict)];
        let asked = Verdict::of_all(asks.into_iter().flatten().collect()).unwrap_or(asked);
        Ok(Verdict { rule: ESCALATION_RULE.into(), sensitive, ..asked })
    }

    /// Whether, for every agent that binds the call, the rule that decides allows it and has a condition on the field.
    fn rules_allow_escalation(&self, request: &Request<'_>) -> bool {
        let policy = self.policy();
        let sensitive = request.touches.iter().any(|touch| policy.sensitive().contains(&touch.path));
        let field = [ESCALATION_FIELD.to_owned()];
        std::iter::once(&request.call.agent).chain(&request.call.policy_agents).all(|agent| {
            let decides = |rule: &&crate::policy::Rule| rule.mismatch(request, agent, sensitive).is_none();
            let rule = policy.rules().iter().find(decides);
            rule.is_some_and(|rule| rule.decision() == Decision::Allow && rule.looks_at(&field))
        })
    }
}

fn about(decision: Decision, reason: String) -> Verdict {
    Verdict { decision, rule: ESCALATION_RULE.into(), reason, sensitive: false }
}

fn checked_reason(escalation: &Value) -> Result<&str, Violation> {
    let invalid = |message: String| Violation { path: format!("{ESCALATION_FIELD}.reason"), message };
    let reason = escalation["reason"].as_str().unwrap_or_default();
    if reason.trim().is_empty() {
        return Err(invalid("must say why the command needs to leave the sandbox".into()));
    }
    match reason.chars().count() {
        count if count > MAX_REASON_CHARS => {
            Err(invalid(format!("must have at most {MAX_REASON_CHARS} characters, not {count}")))
        }
        _ => Ok(reason),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::call::{Ctx, Principal, Surface};
    use crate::error::ToolError;
    use crate::gate::approval::{Approver, Consent};
    use crate::gate::{GateParts, GateSettings};
    use crate::policy::{Condition, Operator, Policy, Rule};
    use crate::testing::{MemoryAudit, MemoryResults, call_as};
    use crate::tool::{Label, Toolset};

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Input {
        #[expect(dead_code, reason = "only rules look at it")]
        command: String,
        #[expect(dead_code, reason = "only the gate looks at it")]
        escalate: Option<Value>,
    }

    #[derive(Debug, Serialize, JsonSchema)]
    struct Output {
        escalated: bool,
    }

    async fn run(ctx: Ctx<()>, _: Input) -> Result<Output, ToolError> {
        Ok(Output { escalated: ctx.call.escalated })
    }

    fn gate(rules: Vec<Rule>) -> Gate {
        let parts = GateParts::new(Arc::new(MemoryAudit::default()), Arc::new(MemoryResults::default()));
        parts.registry.replace(Tool::new("Bash", Toolset::Node, &Arc::new(()), run).may_escalate());
        parts.registry.replace(Tool::new("other", Toolset::Node, &Arc::new(()), run));
        Gate::new(GateParts {
            settings: GateSettings::of(Policy::new(rules, Default::default(), Vec::new())),
            ..parts
        })
    }

    fn agent(autonomy: Autonomy) -> Call {
        let mut call = Call::new(Principal::Agent { id: "a".into() }, Surface::Agent, "/w".into());
        call.autonomy = autonomy;
        call.approver = Some(Approver::new(|approval| {
            assert_eq!(approval.rule, ESCALATION_RULE);
            assert!(approval.reason.contains("because I need it"), "{}", approval.reason);
            std::future::ready(Consent::Allowed)
        }));
        call
    }

    fn input() -> Value {
        json!({"command": "apt install jq", "escalate": {"reason": "because I need it"}})
    }

    async fn escalated(gate: &Gate, call: Call, input: Value) -> Result<bool, String> {
        let answer = call_as(gate, call, "Bash", input).await;
        answer.map(|answer| answer["escalated"] == true).map_err(|err| err.to_string())
    }

    #[tokio::test]
    async fn approved_command_leaves_the_sandbox() {
        let gate = gate(Vec::new());
        for autonomy in [Autonomy::Guided, Autonomy::Supervised] {
            assert_eq!(escalated(&gate, agent(autonomy), input()).await, Ok(true));
        }
        assert_eq!(escalated(&gate, agent(Autonomy::Guided), json!({"command": "x"})).await, Ok(false));
        assert_eq!(
            escalated(&gate, agent(Autonomy::Guided), json!({"command": "x", "escalate": null})).await,
            Ok(false)
        );
        let answer = call_as(&gate, agent(Autonomy::Guided), "other", input()).await.unwrap();
        assert_eq!(answer["escalated"], false, "other tools have no such field");
    }

    #[tokio::test]
    async fn command_is_refused_without_an_approval() {
        let gate = gate(Vec::new());
        let mut no = agent(Autonomy::Guided);
        no.approver = Some(Approver::new(|_| std::future::ready(Consent::Denied("the user said no".into()))));
        assert!(escalated(&gate, no, input()).await.unwrap_err().contains("the user said no"));
        let mut alone = agent(Autonomy::Guided);
        alone.approver = None;
        assert!(escalated(&gate, alone, input()).await.unwrap_err().contains("approval_needed"));
        let autonomous = escalated(&gate, agent(Autonomy::Autonomous), input()).await.unwrap_err();
        assert!(autonomous.contains("the agent is autonomous"), "{autonomous}");
        for (labels, refused) in [
            (vec![Label::Untrusted], false),
            (vec![Label::Private], false),
            (vec![Label::Private, Label::Untrusted], true),
        ] {
            let mut call = agent(Autonomy::Guided);
            call.labels = labels;
            assert_eq!(escalated(&gate, call, input()).await.is_err(), refused);
        }
    }

    #[tokio::test]
    async fn other_callers_have_no_sandbox_to_leave() {
        let gate = gate(Vec::new());
        let operator = Call::new(Principal::Operator, Surface::Cli, "/w".into());
        assert_eq!(escalated(&gate, operator, input()).await, Ok(false));
        for principal in [Principal::Mcp { client: "c".into() }, Principal::Client { token: "t".into() }] {
            let mut call = Call::new(principal, Surface::Mcp, "/w".into());
            call.approver = agent(Autonomy::Guided).approver;
            let error = escalated(&gate, call, input()).await.unwrap_err();
            assert!(error.contains("only Gantry's own agents"), "{error}");
        }
    }

    #[tokio::test]
    async fn reason_must_be_short_and_not_empty() {
        let gate = gate(Vec::new());
        for (reason, valid) in [
            (json!(""), false),
            (json!(" \n"), false),
            (json!("x".repeat(501)), false),
            (json!("ö".repeat(500)), true),
        ] {
            let mut call = agent(Autonomy::Guided);
            call.approver = Some(Approver::new(|_| std::future::ready(Consent::Allowed)));
            let found = escalated(&gate, call, json!({"command": "x", "escalate": {"reason": reason}})).await;
            assert_eq!(found.is_ok(), valid, "{found:?}");
            assert!(valid || found.unwrap_err().contains("invalid_input"));
        }
    }

    fn rule(decision: Decision, conditions: &[(&str, &str)]) -> Rule {
        let rule = Rule::new("own", "Bash", decision, "mine").unwrap();
        conditions.iter().fold(rule, |rule, (path, part)| {
            rule.when(Condition::new(path, Operator::Contains((*part).into())).unwrap())
        })
    }

    #[tokio::test]
    async fn only_rules_about_escalation_allow_it() {
        let on_field = [("escalate.reason", "need"), ("command", "apt")];
        let mut labelled = agent(Autonomy::Autonomous);
        labelled.labels = vec![Label::Private, Label::Untrusted];
        let allowed = gate(vec![rule(Decision::Allow, &on_field)]);
        assert_eq!(escalated(&allowed, labelled.clone(), input()).await, Ok(true));
        let no_condition = gate(vec![rule(Decision::Allow, &[("command", "apt")])]);
        assert!(escalated(&no_condition, labelled.clone(), input()).await.is_err());
        let mut also = labelled.clone();
        also.policy_agents = vec!["b".into()];
        let for_one = gate(vec![rule(Decision::Allow, &on_field).for_agents(vec!["a".into()])]);
        assert_eq!(escalated(&for_one, labelled, input()).await, Ok(true));
        assert!(escalated(&for_one, also, input()).await.is_err(), "every agent's rules have to allow it");
        let denied = gate(vec![rule(Decision::Deny, &on_field)]);
        let error = escalated(&denied, agent(Autonomy::Guided), input()).await.unwrap_err();
        assert!(error.contains("rule own"), "{error}");
    }

    #[tokio::test]
    async fn node_accepts_what_the_gateway_approved_unless_its_own_rules_deny_it() {
        let mut approved = agent(Autonomy::Guided);
        (approved.escalated, approved.autonomy_judged, approved.approver) = (true, true, None);
        assert_eq!(escalated(&gate(Vec::new()), approved.clone(), input()).await, Ok(true));
        assert_eq!(
            escalated(&gate(Vec::new()), approved.clone(), json!({"command": "x"})).await,
            Ok(false),
            "only a call that asks for it leaves the sandbox"
        );
        let denied = gate(vec![rule(Decision::Deny, &[("escalate.reason", "need")])]);
        assert!(escalated(&denied, approved, input()).await.is_err());
    }
}
