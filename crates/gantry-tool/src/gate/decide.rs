//! Step 3 of a call: policy decides on it, and on every call that it implies.

use serde_json::Value;

use super::Gate;
use crate::call::Call;
use crate::error::Violation;
use crate::policy::{Decision, Request, Subject, Verdict};
use crate::policy::{Implied, ImpliedQuestion};
use crate::registry::ToolScope;
use crate::tool::{Tool, Unjudged};

/// The result of step 3.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Whether the reason names paths.
    pub(super) names_paths: bool,
    /// The questions about implied calls. One approval covers all of them.
    pub(super) asked: Option<Vec<ImpliedQuestion>>,
    /// The tool writes in the workspace only, as far as its paths show now.
    pub(super) writes_inside: bool,
}

impl Judged {
    fn unknown(reason: &str) -> Judged {
        let verdict = Verdict {
            decision: Decision::Deny,
            rule: "unknown-touches".into(),
            sensitive: false,
            reason: format!("cannot determine which paths the call touches: {reason}"),
        };
        Judged { verdict, names_paths: true, asked: None, writes_inside: false }
    }
}

impl Gate {
    /// Step 3. A call whose paths are unknown is denied. An error is a value that the schema accepts and the tool's type
    /// rejects.
    pub(super) async fn decide(&self, call: &Call, tool: &Tool, input: &Value) -> Result<Judged, Violation> {
        let touches = match tool.touched_with_walk(call, input).await {
            Ok(touches) => touches,
            Err(Unjudged::Invalid(violation)) => return Err(violation),
            Err(Unjudged::Unknown(reason)) => return Ok(Judged::unknown(&reason)),
        };
        let crossings = tool.crossings(call, input, &touches)?;
        let subject = Subject::of(tool);
        let request = Request { call, subject, input, touches: &touches, crossings: &crossings };
        let verdict = self.decide_escalation(&request, tool, self.policy().decide(&request))?;
        let names_paths = !touches.is_empty();
        let writes_inside =
            touches.iter().any(|touch| touch.judged) && !touches.iter().any(|touch| touch.outside);
        Ok(match tool.implied(input).transpose()? {
            None => Judged { verdict, names_paths, asked: None, writes_inside },
            Some(implied) => self.decide_implied(call, tool, verdict, &implied),
        })
    }

    /// A call may do no more than the calls it implies: the strictest verdict applies, and every question is asked.
    fn decide_implied(&self, call: &Call, tool: &Tool, own: Verdict, implied: &[Implied]) -> Judged {
        let policy = self.policy();
        let verdict_of = |implied: &Implied| match self.is_out_of_scope(call, implied) {
            true => Verdict {
                decision: Decision::Deny,
                rule: "tool-scope".into(),
                reason: format!("{} needs {}, which is not available here", tool.name(), implied.tool()),
                sensitive: false,
            },
            false => policy.decide_implied(call, implied),
        };
        let mut asks = Vec::from_iter(Some(own.clone()).filter(|own| own.decision == Decision::Ask));
        let (mut strictest, mut asked) = (own, Vec::new());
        for implied in implied {
            let verdict = verdict_of(implied);
            if verdict.decision == Decision::Ask {
                asked.push(ImpliedQuestion { tool: implied.tool().to_owned(), rule: verdict.rule.clone() });
                asks.push(verdict.clone());
            }
            strictest = strictest.stricter(verdict);
        }
        let question = Verdict::of_all(asks).filter(|_| strictest.decision == Decision::Ask);
        Judged {
            verdict: question.unwrap_or(strictest),
            names_paths: true,
            asked: Some(asked),
            writes_inside: false,
        }
    }

    fn is_out_of_scope(&self, call: &Call, implied: &Implied) -> bool {
        let registry = &self.parts.registry;
        registry.resolve(&call.scope, implied.tool()).is_none()
            && registry.resolve(&ToolScope::default(), implied.tool()).is_some()
    }
}
