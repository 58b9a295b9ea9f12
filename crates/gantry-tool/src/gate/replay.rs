//! Decides again on a call from the audit log. The log masks secrets and shortens long values, so a decision that depends on
//! a hidden value is not made.

use serde_json::Value;

use super::Gate;
use crate::call::{Autonomy, Call};
use crate::policy::{Decision, Request, Subject, Verdict};
use crate::text::redact;
use crate::tool::{Tool, Touch};

/// The result of deciding again on a recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// The verdict of this policy. A question to an autonomous caller counts as a denial.
    Decided(Verdict),
    /// The tool does not exist here, or the caller's tools do not include it.
    UnknownTool,
    /// The decision depends on a value that the log does not have.
    HiddenInput,
    /// The tool does not accept the input any more.
    InvalidInput,
}

/// Two different texts for hidden values. A decision that differs between them depends on a hidden value.
const STAND_INS: [&str; 2] = ["gantry-hidden-a", "gantry-hidden-b"];

impl Gate {
    /// Decides again on a call with the input from the audit log. Nothing runs and no audit line is written.
    pub async fn replay(&self, call: &Call, name: &str, recorded: &Value) -> Replayed {
        let Some(tool) = self.parts.registry.resolve_for(call, name) else { return Replayed::UnknownTool };
        let is_lost = redact::is_only_a_digest(recorded);
        if is_lost && self.needs_input(&tool) {
            return Replayed::HiddenInput;
        }
        let mut hidden = Vec::new();
        let [first, second] = STAND_INS.map(|text| {
            hidden.clear();
            redact::with_stand_ins(recorded, text, &mut Vec::new(), &mut hidden)
        });
        if hidden.is_empty() {
            return self.decided(call, &tool, &first).await.map_or(Replayed::InvalidInput, Replayed::Decided);
        }
        let Ok(touches) = tool.touched_with_walk(call, &first).await else { return Replayed::HiddenInput };
        let same = tool.touched_with_walk(call, &second).await.is_ok_and(|others| others == touches);
        if !same || self.rules_look_at(call, &tool, &first, &touches, &hidden) {
            return Replayed::HiddenInput;
        }
        match (self.decided(call, &tool, &first).await, self.decided(call, &tool, &second).await) {
            (Some(verdict), Some(other)) if verdict == other => Replayed::Decided(verdict),
            _ => Replayed::HiddenInput,
        }
    }

    async fn decided(&self, call: &Call, tool: &Tool, input: &Value) -> Option<Verdict> {
        let verdict = self.decide(call, tool, input).await.ok()?.verdict;
        Some(match verdict.decision {
            Decision::Ask if call.autonomy == Autonomy::Autonomous => {
                Verdict { decision: Decision::Deny, ..verdict }
            }
            _ => verdict,
        })
    }

    /// Whether policy needs the input to decide on this tool.
    fn needs_input(&self, tool: &Tool) -> bool {
        tool.has_locations()
            || tool.has_crossings()
            || self.policy().rules().iter().any(|rule| rule.is_about(tool) && rule.looks_at_inputs())
    }

    /// Whether a rule that could decide has a condition on a hidden value.
    fn rules_look_at(
        &self,
        call: &Call,
        tool: &Tool,
        input: &Value,
        touches: &[Touch],
        hidden: &[Vec<String>],
    ) -> bool {
        let policy = self.policy();
        let sensitive = touches.iter().any(|touch| policy.sensitive().contains(&touch.path));
        let crossings = tool.crossings(call, input, touches).unwrap_or_default();
        let request = Request { call, subject: Subject::of(tool), input, touches, crossings: &crossings };
        for agent in std::iter::once(&call.agent).chain(&call.policy_agents) {
            for rule in policy.rules() {
                use crate::policy::Mismatch;
                let mismatch = rule.mismatch(&request, agent, sensitive);
                let depends = hidden.iter().any(|value| rule.looks_at(value));
                if depends && matches!(mismatch, None | Some(Mismatch::Condition(_))) {
                    return true;
                }
                if mismatch.is_none() {
                    break;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::AuditSink;
    use crate::call::{Principal, Surface};
    use crate::gate::{GateParts, GateSettings};
    use crate::policy::{Condition, Operator, Policy, Rule};
    use crate::testing::{MemoryAudit, MemoryResults, echo_tool};
    use crate::text::mask::Masker;
    use crate::tool::Toolset;
    use std::sync::Arc;

    fn gate(rules: Vec<Rule>) -> Gate {
        let audit: Arc<dyn AuditSink> = Arc::new(MemoryAudit::default());
        let parts = GateParts::new(audit, Arc::new(MemoryResults::default()));
        parts.registry.replace(echo_tool("T", Toolset::Basic));
        Gate::new(GateParts {
            settings: GateSettings::of(Policy::new(rules, Default::default(), Vec::new())),
            ..parts
        })
    }

    fn rule(name: &str, decision: Decision) -> Rule {
        Rule::new(name, "T", decision, "because").unwrap()
    }

    fn on_text(rule: Rule, part: &str) -> Rule {
        rule.when(Condition::new("text", Operator::Contains(part.into())).unwrap())
    }

    async fn replayed(gate: &Gate, input: Value) -> Replayed {
        let call = Call::new(Principal::Operator, Surface::Cli, "/w".into());
        let recorded = redact::input(&Masker::new(["hunter2-hunter2".to_owned()]), &input);
        gate.replay(&call, "T", &recorded).await
    }

    fn name_of(replayed: Replayed) -> String {
        match replayed {
            Replayed::Decided(verdict) => format!("{:?} {}", verdict.decision, verdict.rule),
            other => format!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn decision_that_depends_on_a_hidden_value_is_not_made() {
        let conditional = gate(vec![on_text(rule("r", Decision::Deny), "rm")]);
        let plain = gate(vec![rule("all", Decision::Deny)]);
        let late = gate(vec![rule("all", Decision::Ask), on_text(rule("r", Decision::Deny), "rm")]);
        let huge: serde_json::Map<String, Value> =
            (0..9_000).map(|number| (format!("field{number}"), json!(number))).collect();
        for (input, expected) in [
            (json!({"text": "rm x"}), ["Deny r", "Deny all", "Ask all"]),
            (json!({"text": "ls"}), ["Allow default", "Deny all", "Ask all"]),
            (json!({"text": "rm hunter2-hunter2"}), ["HiddenInput", "Deny all", "Ask all"]),
            (json!({"text": "x".repeat(600)}), ["HiddenInput", "Deny all", "Ask all"]),
            (json!({"other": "hunter2-hunter2", "text": "rm"}), ["Deny r", "Deny all", "Ask all"]),
            (Value::Object(huge), ["HiddenInput", "Deny all", "HiddenInput"]),
        ] {
            for (gate, expected) in [&conditional, &plain, &late].into_iter().zip(expected) {
                assert_eq!(name_of(replayed(gate, input.clone()).await), expected, "{input:.60}");
            }
        }
    }

    #[tokio::test]
    async fn unknown_tools_are_reported() {
        let call = Call::new(Principal::Operator, Surface::Cli, "/w".into());
        assert_eq!(gate(Vec::new()).replay(&call, "U", &json!({})).await, Replayed::UnknownTool);
    }
}
