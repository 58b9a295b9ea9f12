//! Denials that an agent's runtime decides at step 3, such as the label check's: they leave the same audit line and metric
//! as those of the policy.

use serde_json::Value;

use super::{Gate, Outcome};
use crate::call::Call;
use crate::policy::{Decision, Verdict};

impl Gate {
    /// Refuses a call by a rule that is not the policy's own.
    pub fn deny(&self, call: &Call, name: &str, input: &Value, rule: &str, reason: String) -> Outcome {
        let tools = self.tools_meant(call, name, input);
        let known = match tools.as_slice() {
            [only] => only.name(),
            // Several machines, or none of those that have it.
            _ if self.parts.registry.nodes_with(&call.scope, name).is_some() => name,
            _ => return self.refuse_unknown(call, name),
        };
        let verdict = Verdict { decision: Decision::Deny, rule: rule.to_owned(), reason, sensitive: false };
        self.refuse_denied(call, known, input, &verdict)
    }
}
