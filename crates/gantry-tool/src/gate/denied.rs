//! Denials by an agent's runtime, such as its label check. They get the same audit line and metric as those of policy.

use serde_json::Value;

use super::{Gate, Outcome};
use crate::call::Call;
use crate::policy::{Decision, Verdict};

impl Gate {
    /// Denies a call by a rule that is not part of the policy.
    pub fn deny(&self, call: &Call, name: &str, input: &Value, rule: &str, reason: String) -> Outcome {
        let tools = self.tools_meant(call, name, input);
        let known = match tools.as_slice() {
            [only] => only.name(),
            // The call names several nodes, or a node without the tool.
            _ if self.parts.registry.nodes_with(&call.scope, name).is_some() => name,
            _ => return self.refuse_unknown(call, name),
        };
        let verdict = Verdict { decision: Decision::Deny, rule: rule.to_owned(), reason, sensitive: false };
        self.refuse_denied(call, known, input, &verdict)
    }
}
