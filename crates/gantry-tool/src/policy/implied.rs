//! Implied calls. A transfer reads at one end and writes at the other, so the policy for that read and that write applies
//! to the transfer too.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::Call;
use crate::error::Refusal;
use crate::policy::{Decision, Policy, Request, Rule, Subject, Verdict};
use crate::tool::{Access, Crossing, Toolset, Touch};

/// A call of a tool for one path that another call implies.
#[derive(Debug, Clone, PartialEq)]
pub struct Implied {
    tool: String,
    toolset: Toolset,
    access: Access,
    input: Value,
    touches: Vec<Touch>,
    crossings: Vec<Crossing>,
}

/// A question about an implied call: the tool, and the rule that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpliedQuestion {
    pub tool: String,
    pub rule: String,
}

impl Implied {
    pub fn new(tool: impl Into<String>, toolset: Toolset, access: Access, path: &str) -> Implied {
        Implied {
            tool: tool.into(),
            toolset,
            access,
            input: json!({ "path": path }),
            touches: Vec::new(),
            crossings: Vec::new(),
        }
    }

    /// Adds a path that the call touches.
    pub fn touching(mut self, touch: Touch) -> Implied {
        self.crossings.extend(touch.outside.then(|| Crossing::Write(touch.path.clone())));
        self.touches.push(touch);
        self
    }

    pub(crate) fn tool(&self) -> &str {
        &self.tool
    }

    fn subject(&self) -> Subject<'_> {
        Subject { name: &self.tool, toolset: self.toolset, acts: self.access == Access::Write }
    }

    fn request<'a>(&'a self, call: &'a Call) -> Request<'a> {
        Request {
            call,
            subject: self.subject(),
            input: &self.input,
            touches: &self.touches,
            crossings: &self.crossings,
        }
    }
}

impl Policy {
    /// The verdict on a call that `call` implies.
    pub(crate) fn decide_implied(&self, call: &Call, implied: &Implied) -> Verdict {
        self.decide(&implied.request(call))
    }

    /// Returns the refusal of an implied call, unless it is allowed or approved.
    pub fn refuses(&self, call: &Call, implied: &Implied) -> Option<Refusal> {
        let verdict = self.decide_implied(call, implied);
        is_against(call, implied, &verdict).then(|| verdict.refusal(call))
    }

    /// As [`Policy::refuses`], by the configured rules alone. For the files of a directory that policy has decided on: the
    /// machine that walks it skips the sensitive ones.
    pub fn rules_refuse(&self, call: &Call, implied: &Implied) -> Option<Refusal> {
        let verdict = self.decide_by_rules(&implied.request(call))?;
        is_against(call, implied, &verdict).then(|| verdict.refusal_of_part(call))
    }

    /// Whether the rules could decide differently on two paths.
    pub fn tells_paths_apart(&self, implied: &Implied) -> bool {
        let depends = |rule: &Rule| rule.looks_at_inputs() && rule.is_about_subject(implied.subject());
        self.rules().iter().any(depends)
    }
}

fn is_against(call: &Call, implied: &Implied, verdict: &Verdict) -> bool {
    let is_approved =
        || call.approved.iter().any(|asked| asked.tool == implied.tool && asked.rule == verdict.rule);
    match verdict.decision {
        Decision::Allow => false,
        Decision::Ask => !is_approved(),
        Decision::Deny => true,
    }
}
