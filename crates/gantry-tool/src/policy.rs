//! `Policy` decides whether a call runs: closed paths, then ordered rules (the first match wins), then defaults. It reads
//! no files and no clock.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Autonomy, Call, PrincipalKind};
use crate::registry::LOCAL_NODE;
use crate::tool::{Access, Crossing, Label, Tool, Toolset, Touch};

mod border;
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
    pub(crate) crossings: &'a [Crossing],
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
            by_rule.unwrap_or_else(|| default_verdict(request, touched))
        };
        // A call on behalf of another agent obeys the rules of both.
        let verdict =
            request.call.policy_agents.iter().map(judge).fold(judge(&request.call.agent), Verdict::stricter);
        let verdict = border::labelled(self, request, verdict, touched.is_some());
        Verdict { sensitive: touched.is_some(), ..verdict }
    }

    /// The verdict of the first rule that matches.
    fn ruled(&self, request: &Request<'_>, agent: &String, sensitive: bool) -> Option<Verdict> {
        let rule = self.matching(request, agent, sensitive)?;
        Some(Verdict::new(rule.decision, &rule.name, &rule.reason))
    }

    /// The decision of the operator's rules on a connection of a command: only rules that list hosts count.
    pub fn host_decision(&self, call: &Call, tool: &str, host: &str) -> Option<Decision> {
        let name = format!("{LOCAL_NODE}__{tool}");
        let subject = Subject { name: &name, toolset: Toolset::Node, acts: true };
        let crossings = [Crossing::Host { host: host.to_owned(), known: false }];
        let request = Request { call, subject, input: &Value::Null, touches: &[], crossings: &crossings };
        let labelled = Label::BOTH.iter().all(|label| call.labels.contains(label));
        let decide = |agent| {
            let matching = |rule: &&Rule| rule.lists_hosts() && rule.matches(&request, agent, false);
            let rule = self.rules.iter().find(matching)?;
            let is_open = rule.decision == Decision::Allow && labelled && !rule.counts_even_labelled();
            (!is_open).then_some(rule.decision)
        };
        // A call on behalf of another agent obeys the rules of both.
        let agents = std::iter::once(&call.agent).chain(&call.policy_agents);
        let decisions: Vec<Option<Decision>> = agents.map(decide).collect();
        match decisions.iter().flatten().max() {
            Some(Decision::Allow) if decisions.contains(&None) => None,
            strictest => strictest.copied(),
        }
    }

    fn matching(&self, request: &Request<'_>, agent: &String, sensitive: bool) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(request, agent, sensitive))
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
        let request = Request { call, subject: Subject::of(tool), input, touches: &[], crossings: &[] };
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

fn default_verdict(request: &Request<'_>, sensitive: Option<&Touch>) -> Verdict {
    let Request { call, subject, .. } = *request;
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
    if border::applies(call) && call.autonomy == Autonomy::Supervised && subject.acts {
        let reason = format!("{} asks before every command and change (autonomy: supervised)", call.agent);
        return Verdict::new(Decision::Ask, SUPERVISED, reason);
    }
    if let Some(verdict) = border::verdict(request) {
        return verdict;
    }
    Verdict::new(Decision::Allow, "default", "allowed by default")
}
