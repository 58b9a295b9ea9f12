//! `Policy` decides whether a call runs: closed paths, then ordered rules (the first match wins), then defaults. It reads
//! no files and no clock.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Autonomy, Call, PrincipalKind};
use crate::tool::{Access, Tool, Toolset, Touch};

mod implied;
mod rule;
pub(crate) mod sensitive;
#[cfg(test)]
mod tests;
mod verdict;

pub use implied::{Implied, ImpliedQuestion};
pub use rule::{Condition, Mismatch, Operator, Rule, RuleError, Touching};
use sensitive::SensitivePaths;
use verdict::SUPERVISED;
pub use verdict::Verdict;

/// Ordered by strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

/// The configured rules and the defaults behind them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Arc<[Rule]>,
    sensitive: Arc<SensitivePaths>,
    /// Paths that are closed to every tool and every principal. No rule can open them.
    closed: Arc<[std::path::PathBuf]>,
}

/// The properties of a tool that rules and defaults use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) toolset: Toolset,
    /// Whether the tool can change something or reach the network.
    pub(crate) acts: bool,
}

impl<'a> Subject<'a> {
    pub(crate) fn of(tool: &'a Tool) -> Subject<'a> {
        let acts = tool.is_destructive() || tool.is_open_world();
        Subject { name: tool.name(), toolset: tool.toolset(), acts }
    }
}

pub(crate) struct Request<'a> {
    pub(crate) call: &'a Call,
    pub(crate) subject: Subject<'a>,
    pub(crate) input: &'a Value,
    pub(crate) touches: &'a [Touch],
}

impl Policy {
    pub fn new(rules: Vec<Rule>, sensitive: SensitivePaths, closed: Vec<std::path::PathBuf>) -> Policy {
        Policy { rules: rules.into(), sensitive: Arc::new(sensitive), closed: closed.into() }
    }

    pub fn sensitive(&self) -> &SensitivePaths {
        &self.sensitive
    }

    /// Closed paths, then the configured rules in order, then the defaults.
    pub(crate) fn decide(&self, request: &Request<'_>) -> Verdict {
        if let Some(touch) = request.touches.iter().find(|touch| self.is_closed(touch)) {
            let reason = format!("{} belongs to Gantry and is closed to every tool", touch.path.display());
            return Verdict::new(Decision::Deny, "closed-data-directory", reason);
        }
        let touched = request.touches.iter().find(|touch| self.sensitive.contains(&touch.path));
        let judge = |agent| {
            let by_rule = self.ruled(request, agent, touched.is_some());
            by_rule.unwrap_or_else(|| default_verdict(request.call, request.subject, touched))
        };
        // A call on behalf of another agent obeys the rules of both.
        let verdict =
            request.call.policy_agents.iter().map(judge).fold(judge(&request.call.agent), Verdict::stricter);
        Verdict { sensitive: touched.is_some(), ..verdict }
    }

    /// The verdict of the first rule that matches.
    fn ruled(&self, request: &Request<'_>, agent: &String, sensitive: bool) -> Option<Verdict> {
        let rule = self.rules.iter().find(|rule| rule.matches(request, agent, sensitive))?;
        Some(Verdict::new(rule.decision, &rule.name, &rule.reason))
    }

    /// As [`Policy::decide`], but by the configured rules alone.
    pub(crate) fn decide_by_rules(&self, request: &Request<'_>) -> Option<Verdict> {
        let sensitive = request.touches.iter().any(|touch| self.sensitive.contains(&touch.path));
        let agents = std::iter::once(&request.call.agent).chain(&request.call.policy_agents);
        agents.filter_map(|agent| self.ruled(request, agent, sensitive)).reduce(Verdict::stricter)
    }

    /// The names of the rules that name this node by its id. They do not follow a node that is renamed.
    pub fn rules_about_node(&self, node: &str) -> Vec<&str> {
        let prefix = format!("{node}__");
        let is_about = |rule: &&Rule| rule.tool.iter().any(|tool| tool.glob().glob().starts_with(&prefix));
        self.rules.iter().filter(is_about).map(|rule| rule.name.as_str()).collect()
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(crate) fn is_closed(&self, touch: &Touch) -> bool {
        self.closed.iter().any(|closed| touch.path.starts_with(closed))
    }

    /// Whether a call of this tool by this caller would be allowed to touch sensitive paths.
    pub(crate) fn allows_sensitive(&self, call: &Call, tool: &Tool, input: &Value) -> bool {
        let request = Request { call, subject: Subject::of(tool), input, touches: &[] };
        let decide = |agent| match self.rules.iter().find(|rule| rule.matches(&request, agent, true)) {
            Some(rule) => rule.decision,
            None => default_decision(call.principal.kind(), true),
        };
        std::iter::once(&call.agent).chain(&call.policy_agents).all(|agent| decide(agent) == Decision::Allow)
    }
}

fn default_decision(principal: PrincipalKind, sensitive: bool) -> Decision {
    match principal {
        PrincipalKind::Operator | PrincipalKind::Client => Decision::Allow,
        PrincipalKind::Mcp | PrincipalKind::Agent | PrincipalKind::Scheduler if sensitive => Decision::Ask,
        PrincipalKind::Mcp | PrincipalKind::Agent | PrincipalKind::Scheduler => Decision::Allow,
    }
}

fn default_verdict(call: &Call, subject: Subject<'_>, sensitive: Option<&Touch>) -> Verdict {
    let principal = call.principal.kind();
    if let Some(touch) = sensitive
        && principal == PrincipalKind::Client
        && SensitivePaths::is_of_a_process(&touch.path)
    {
        // Such a file may hold tokens with more rights than the caller's. The sandbox hides it from shells too.
        let reason =
            format!("{} belongs to another program, and only the operator may read it", touch.path.display());
        return Verdict::new(Decision::Deny, "other-programs", reason);
    }
    if let Some(touch) = sensitive
        && default_decision(principal, true) == Decision::Ask
    {
        let act = match touch.access {
            Access::Read => "reading",
            Access::Write => "writing",
        };
        let reason = format!("{act} {}, which may hold keys or credentials", touch.path.display());
        return Verdict::new(Decision::Ask, "sensitive-paths", reason);
    }
    let acts_alone = matches!(principal, PrincipalKind::Agent | PrincipalKind::Scheduler);
    if acts_alone && call.autonomy == Autonomy::Supervised && subject.acts && !call.autonomy_judged {
        let reason = format!("{} asks before every command and change (autonomy: supervised)", call.agent);
        return Verdict::new(Decision::Ask, SUPERVISED, reason);
    }
    Verdict::new(Decision::Allow, "default", "allowed by default")
}
