//! Explains a decision without making the call: nothing runs, nobody is asked and no audit line is written.

use std::path::PathBuf;

use serde_json::Value;

use super::Gate;
use crate::call::{Autonomy, Call};
use crate::error::{Refusal, RefusalCode, Violation};
use crate::policy::{Decision, Mismatch, Request, Subject, Verdict};
use crate::tool::{Access, Tool, Touch};

/// What policy would decide on a call of one tool, and why.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The resolved name.
    pub tool: String,
    /// What policy decides. For an autonomous caller [`Explanation::outcome`] may be stricter.
    pub verdict: Verdict,
    /// What would happen. A question to an autonomous caller is a denial.
    pub outcome: Decision,
    pub touches: Vec<ExplainedTouch>,
    /// The rules up to the one that applies, for each agent whose rules bind the call.
    pub rules: Vec<CheckedRule>,
}

/// A path that the call would touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedTouch {
    pub path: PathBuf,
    pub access: Access,
    pub sensitive: bool,
    /// The path belongs to Gantry and is closed to every tool.
    pub closed: bool,
}

/// A rule that was compared with the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedRule {
    pub rule: String,
    pub agent: String,
    /// `None` when the rule applies.
    pub mismatch: Option<Mismatch>,
}

impl Gate {
    /// Explains what would be decided on a call, for each node that it would run on. An unknown tool or an invalid input is
    /// refused as in a call.
    pub async fn explain(&self, call: &Call, name: &str, input: &Value) -> Result<Vec<Explanation>, Refusal> {
        let mut input = input.clone();
        let tools = self.meant(call, name, &mut input);
        if tools.is_empty() {
            return Err(self.parts.registry.view(&call.scope).unknown(name));
        }
        let mut explanations = Vec::new();
        for tool in tools {
            let (input, violations) = tool.checked(input.clone()).await;
            if !violations.is_empty() {
                return Err(invalid(&tool, violations));
            }
            let explained = self.explain_tool(call, &tool, &input).await;
            explanations.push(explained.map_err(|violation| invalid(&tool, vec![violation]))?);
        }
        Ok(explanations)
    }

    async fn explain_tool(&self, call: &Call, tool: &Tool, input: &Value) -> Result<Explanation, Violation> {
        let verdict = self.decide(call, tool, input).await?.verdict;
        // A call whose paths are unknown is denied, and the verdict has the reason.
        let touches = tool.touched_with_walk(call, input).await.unwrap_or_default();
        let outcome = match verdict.decision {
            Decision::Ask if call.autonomy == Autonomy::Autonomous => Decision::Deny,
            decision => decision,
        };
        Ok(Explanation {
            tool: tool.name().to_owned(),
            outcome,
            rules: self.checked_rules(call, tool, input, &touches),
            touches: touches.into_iter().map(|touch| self.explained_touch(touch)).collect(),
            verdict,
        })
    }

    fn explained_touch(&self, touch: Touch) -> ExplainedTouch {
        ExplainedTouch {
            sensitive: self.policy().sensitive().contains(&touch.path),
            closed: self.policy().is_closed(&touch),
            access: touch.access,
            path: touch.path,
        }
    }

    /// The rules in order, up to the first that applies. Closed paths are decided before any rule.
    fn checked_rules(&self, call: &Call, tool: &Tool, input: &Value, touches: &[Touch]) -> Vec<CheckedRule> {
        let policy = self.policy();
        if touches.iter().any(|touch| policy.is_closed(touch)) {
            return Vec::new();
        }
        let sensitive = touches.iter().any(|touch| policy.sensitive().contains(&touch.path));
        let crossings = tool.crossings(call, input, touches).unwrap_or_default();
        let request = Request { call, subject: Subject::of(tool), input, touches, crossings: &crossings };
        let mut checked = Vec::new();
        for agent in std::iter::once(&call.agent).chain(&call.policy_agents) {
            for rule in policy.rules() {
                let mismatch = rule.mismatch(&request, agent, sensitive);
                let applies = mismatch.is_none();
                checked.push(CheckedRule { rule: rule.name().to_owned(), agent: agent.clone(), mismatch });
                if applies {
                    break;
                }
            }
        }
        checked
    }
}

fn invalid(tool: &Tool, violations: Vec<Violation>) -> Refusal {
    let message = format!("the input of {} is invalid", tool.name());
    Refusal { violations, ..Refusal::new(RefusalCode::InvalidInput, message) }
        .with_hint(format!("`gantry tools {}` shows the schema", tool.name()))
}
