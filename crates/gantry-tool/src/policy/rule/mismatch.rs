//! `Mismatch` is the first reason why a rule does not apply to a call.

use std::fmt;

use super::Rule;
use crate::policy::{Decision, Request};

/// Why a rule does not apply to a call. The parts of a rule are checked in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The rule is for other tools.
    Tool,
    /// The rule is for other kinds of principal.
    Principal,
    /// The rule is for other agents.
    Agent,
    /// The rule is for sensitive paths, and the call touches none.
    NotSensitive,
    /// The rule is for other hosts.
    Host,
    /// The rule is for other paths.
    Path,
    /// The condition on this value of the input does not hold.
    Condition(String),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Tool => f.write_str("it is for other tools"),
            Mismatch::Principal => f.write_str("it is for other callers"),
            Mismatch::Agent => f.write_str("it is for other agents"),
            Mismatch::NotSensitive => f.write_str("the call touches no sensitive path"),
            Mismatch::Host => f.write_str("it is for other hosts"),
            Mismatch::Path => f.write_str("it is for other paths"),
            Mismatch::Condition(path) => write!(f, "its condition on `{path}` does not hold"),
        }
    }
}

impl Rule {
    /// Returns why the rule does not apply to a call as this agent. `None` when it applies.
    pub(crate) fn mismatch(
        &self,
        request: &Request<'_>,
        agent: &String,
        sensitive: bool,
    ) -> Option<Mismatch> {
        if !self.is_about_subject(request.subject) {
            return Some(Mismatch::Tool);
        }
        if !self.principals.is_empty() && !self.principals.contains(&request.call.principal.kind()) {
            return Some(Mismatch::Principal);
        }
        if !self.agents.is_empty() && !self.agents.contains(agent) {
            return Some(Mismatch::Agent);
        }
        if self.touching.is_some() && !sensitive {
            return Some(Mismatch::NotSensitive);
        }
        if !self.hosts.is_empty() && !self.names_hosts_of(request.crossings) {
            return Some(Mismatch::Host);
        }
        if !self.paths.is_empty() && !self.names_paths_of(request) {
            return Some(Mismatch::Path);
        }
        let failed = self.conditions.iter().find(|condition| !condition.holds(request.input))?;
        Some(Mismatch::Condition(failed.path.join(".")))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn decision(&self) -> Decision {
        self.decision
    }

    /// Whether a condition of the rule looks at this value of the input, at a part of it or at what contains it.
    pub(crate) fn looks_at(&self, value: &[String]) -> bool {
        self.conditions.iter().any(|condition| condition.path.iter().zip(value).all(|(a, b)| a == b))
    }
}
