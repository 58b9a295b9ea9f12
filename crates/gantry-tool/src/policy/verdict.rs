//! What policy comes to, and how it is told.

use super::Decision;
use crate::call::{Autonomy, Call};
use crate::error::{Refusal, RefusalCode};

/// A decision, the rule that made it and why. The rule's name goes to the audit log and into the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    pub rule: String,
    pub reason: String,
    /// Whether the call would touch a sensitive path.
    pub sensitive: bool,
}

/// The rule by which supervised agents are asked about what changes or reaches things.
pub(super) const SUPERVISED: &str = "supervised-agent";

impl Verdict {
    pub(super) fn new(decision: Decision, rule: impl Into<String>, reason: impl Into<String>) -> Verdict {
        Verdict { decision, rule: rule.into(), reason: reason.into(), sensitive: false }
    }

    pub(crate) fn stricter(self, other: Verdict) -> Verdict {
        if other.decision > self.decision { other } else { self }
    }

    /// One question in place of several: who says yes has heard of every rule. `None` when there is nothing to ask.
    pub(crate) fn of_all(asks: Vec<Verdict>) -> Option<Verdict> {
        let mut asked: Vec<Verdict> = Vec::new();
        for ask in asks {
            // That a call acts at all is plain from every other question about it.
            let is_plain = ask.rule == SUPERVISED && !asked.is_empty();
            if !is_plain && asked.iter().all(|known| known.rule != ask.rule) {
                asked.push(ask);
            }
        }
        let rules: Vec<&str> = asked.iter().map(|ask| ask.rule.as_str()).collect();
        // Rules that give no reason of their own have the same one.
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

    /// What a caller is told to whom nothing was allowed.
    pub(crate) fn refusal(&self, call: &Call) -> Refusal {
        let hint = "the operator can allow it with a policy rule in gantry.toml";
        self.refusal_unasked(call, "nobody can be asked", hint)
    }

    /// The same, where a question could have been asked for what was named, but not for this part of it.
    pub(crate) fn refusal_of_part(&self, call: &Call) -> Refusal {
        let hint = "ask for it by itself, or let the operator allow it with a policy rule in gantry.toml";
        self.refusal_unasked(call, "parts are not asked for", hint)
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
    fn of_several_questions_all_are_asked() {
        let ask = |rule: &str| Verdict::new(Decision::Ask, rule, format!("because of {rule}"));
        let both = Verdict::of_all(vec![ask("a"), ask("b"), ask("a"), ask(SUPERVISED)]).unwrap();
        assert_eq!((both.decision, &*both.rule), (Decision::Ask, "a, b"));
        assert_eq!(both.reason, "because of a; because of b");
        let same = |rule: &str| Verdict::new(Decision::Ask, rule, "the operator's policy says so");
        let told = Verdict::of_all(vec![same("a"), ask("b"), same("c")]).unwrap();
        assert_eq!(told.rule, "a, b, c");
        assert_eq!(told.reason, "the operator's policy says so; because of b", "each reason once");
        assert_eq!(Verdict::of_all(vec![ask(SUPERVISED)]).unwrap().rule, SUPERVISED);
        assert_eq!(Verdict::of_all(Vec::new()), None);
    }
}
