//! `Verdict` is the result of policy, and makes the refusal that a caller gets.

use super::Decision;
use crate::call::{Autonomy, Call};
use crate::error::{Refusal, RefusalCode};

/// A decision, the rule that made it and the reason. The audit log and the refusal name the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    pub rule: String,
    pub reason: String,
    /// Whether the call would touch a sensitive path.
    pub sensitive: bool,
}

/// The rule that requires approval for calls of supervised agents.
pub(super) const SUPERVISED: &str = "supervised-agent";

impl Verdict {
    pub(super) fn new(decision: Decision, rule: impl Into<String>, reason: impl Into<String>) -> Verdict {
        Verdict { decision, rule: rule.into(), reason: reason.into(), sensitive: false }
    }

    pub(crate) fn stricter(self, other: Verdict) -> Verdict {
        if other.decision > self.decision { other } else { self }
    }

    /// Combines several questions into one that names every rule. `None` when there is nothing to ask.
    pub(crate) fn of_all(asks: Vec<Verdict>) -> Option<Verdict> {
        let mut asked: Vec<Verdict> = Vec::new();
        for ask in asks {
            // Any other question already implies that the call needs approval.
            let is_plain = ask.rule == SUPERVISED && !asked.is_empty();
            if !is_plain && asked.iter().all(|known| known.rule != ask.rule) {
                asked.push(ask);
            }
        }
        let rules: Vec<&str> = asked.iter().map(|ask| ask.rule.as_str()).collect();
        // Rules without a reason of their own share the default reason.
        let mut reasons: Vec<&str> = Vec::new();
        for ask in &asked {
            if !reasons.contains(&ask.reason.as_str()) {
                reasons.push(&ask.reason);
            }
        }
        let first = asked.first()?;
        Some(Verdict {
            decision: first.decision,
            rule: rules.join(", "),
            reason: reasons.join("; "),
            sensitive: asked.iter().any(|ask| ask.sensitive),
        })
    }

    /// The refusal of a call that is denied or was not approved.
    pub(crate) fn refusal(&self, call: &Call) -> Refusal {
        let hint = "the operator can allow it with a policy rule in gantry.toml";
        self.refusal_unasked(call, "no user can be asked here", hint)
    }

    /// As [`Verdict::refusal`], for one file of a directory: approval is asked for the directory, not for its parts.
    pub(crate) fn refusal_of_part(&self, call: &Call) -> Refusal {
        let hint =
            "request this path by itself, or let the operator allow it with a policy rule in gantry.toml";
        self.refusal_unasked(call, "parts of a directory cannot be approved", hint)
    }

    fn refusal_unasked(&self, call: &Call, why: &str, hint: &str) -> Refusal {
        let because = format!("{} (rule {})", self.reason, self.rule);
        match self.decision {
            Decision::Ask if call.autonomy != Autonomy::Autonomous => {
                let message = format!("approval needed, and {why}: {because}");
                Refusal::new(RefusalCode::ApprovalNeeded, message).with_hint(hint)
            }
            _ => Refusal::new(RefusalCode::Denied, format!("denied: {because}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_questions_become_one_that_names_all_rules() {
        let ask = |rule: &str| Verdict::new(Decision::Ask, rule, format!("because of {rule}"));
        let both = Verdict::of_all(vec![ask("a"), ask("b"), ask("a"), ask(SUPERVISED)]).unwrap();
        assert_eq!((both.decision, &*both.rule), (Decision::Ask, "a, b"));
        assert_eq!(both.reason, "because of a; because of b");
        let same = |rule: &str| Verdict::new(Decision::Ask, rule, "the operator's policy requires approval");
        let combined = Verdict::of_all(vec![same("a"), ask("b"), same("c")]).unwrap();
        assert_eq!(combined.rule, "a, b, c");
        assert_eq!(
            combined.reason, "the operator's policy requires approval; because of b",
            "each reason once"
        );
        assert_eq!(Verdict::of_all(vec![ask(SUPERVISED)]).unwrap().rule, SUPERVISED);
        assert_eq!(Verdict::of_all(Vec::new()), None);
    }
}
