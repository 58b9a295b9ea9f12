//! `Rule` is one configured rule: a pattern of tool names, conditions and a decision.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, Request, Subject};
use crate::call::PrincipalKind;
use crate::registry::canonical_name;
use crate::registry::model_name::{folded, published_name};
use crate::tool::{Crossing, Tool, Toolset};

mod mismatch;

pub use mismatch::Mismatch;

/// One configured rule.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) name: String,
    /// The pattern as written, and with `__` for `::`.
    pub(super) tool: [GlobMatcher; 2],
    principals: Vec<PrincipalKind>,
    agents: Vec<String>,
    touching: Option<Touching>,
    conditions: Vec<Condition>,
    /// Exact hosts. All hosts that the call connects to must be among them.
    hosts: Vec<String>,
    /// Every path that the call touches must be one of these, or below one.
    paths: Vec<PathBuf>,
    even_labelled: bool,
    pub(super) decision: Decision,
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Touching {
    Sensitive,
}

/// A test on one value of the input, named by a dotted path (`env.PATH`, `argv.0`).
#[derive(Debug, Clone)]
pub struct Condition {
    path: Vec<String>,
    operator: Operator,
}

#[derive(Debug, Clone)]
pub enum Operator {
    Equals(Value),
    Contains(String),
    StartsWith(String),
    Regex(Regex),
}

#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("tool pattern {pattern:?} is not valid: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("regex {pattern:?} is not valid: {reason}")]
    Regex { pattern: String, reason: String },
    #[error("the condition has no path; name a value of the input, such as \"command\"")]
    NoPath,
    #[error("evenLabelled needs decision = \"allow\" and a list of hosts or paths")]
    EvenLabelled,
}

impl Rule {
    pub fn new(name: &str, tool_pattern: &str, decision: Decision, reason: &str) -> Result<Rule, RuleError> {
        let matcher = |pattern: &str| {
            // Only `*` is special. All other characters match themselves.
            let escaped = pattern.split('*').map(globset::escape).collect::<Vec<_>>().join("*");
            let glob = GlobBuilder::new(&escaped).build().map_err(|err| RuleError::Pattern {
                pattern: tool_pattern.to_owned(),
                reason: err.to_string(),
            })?;
            Ok(glob.compile_matcher())
        };
        Ok(Rule {
            name: name.to_owned(),
            tool: [matcher(&canonical_name(tool_pattern))?, matcher(&folded(tool_pattern))?],
            principals: Vec::new(),
            agents: Vec::new(),
            touching: None,
            conditions: Vec::new(),
            hosts: Vec::new(),
            paths: Vec::new(),
            even_labelled: false,
            decision,
            reason: reason.to_owned(),
        })
    }

    /// Limits the rule to these kinds of principal.
    pub fn for_principals(mut self, principals: Vec<PrincipalKind>) -> Rule {
        self.principals = principals;
        self
    }

    /// Limits the rule to calls made as these agents.
    pub fn for_agents(mut self, agents: Vec<String>) -> Rule {
        self.agents = agents;
        self
    }

    pub fn touching(mut self, touching: Touching) -> Rule {
        self.touching = Some(touching);
        self
    }

    /// Limits the rule to calls that connect to these hosts only.
    pub fn for_hosts(mut self, hosts: Vec<String>) -> Rule {
        self.hosts = hosts;
        self
    }

    /// Limits the rule to calls that touch these paths, or paths below them, only.
    pub fn for_paths(mut self, paths: Vec<PathBuf>) -> Rule {
        self.paths = paths;
        self
    }

    /// Makes an allowing rule count in runs that hold both labels. The rule must name hosts or paths.
    pub fn even_labelled(mut self) -> Result<Rule, RuleError> {
        if self.decision != Decision::Allow || (self.hosts.is_empty() && self.paths.is_empty()) {
            return Err(RuleError::EvenLabelled);
        }
        self.even_labelled = true;
        Ok(self)
    }

    pub(super) fn lists_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    pub(super) fn counts_even_labelled(&self) -> bool {
        self.even_labelled
    }

    pub fn when(mut self, condition: Condition) -> Rule {
        self.conditions.push(condition);
        self
    }

    /// Whether the pattern matches the tool, by any spelling of its name or without its node. A server chooses the names of
    /// its tools, so patterns for bare names do not match MCP tools.
    pub fn is_about(&self, tool: &Tool) -> bool {
        self.is_about_subject(Subject::of(tool))
    }

    pub(crate) fn is_about_subject(&self, Subject { name, toolset, .. }: Subject<'_>) -> bool {
        let [own, spelled] = &self.tool;
        let bare = name.split_once("__").filter(|_| toolset != Toolset::Mcp);
        own.is_match(name)
            || bare.is_some_and(|(_, bare)| own.is_match(bare))
            || (name.contains("::") && spelled.is_match(folded(name)))
            || (toolset == Toolset::Mcp && spelled.is_match(published_name(name)))
    }

    /// Whether the rule depends on the input.
    pub(crate) fn looks_at_inputs(&self) -> bool {
        self.touching.is_some()
            || !self.conditions.is_empty()
            || !self.hosts.is_empty()
            || !self.paths.is_empty()
    }

    pub(super) fn matches(&self, request: &Request<'_>, agent: &String, sensitive: bool) -> bool {
        self.mismatch(request, agent, sensitive).is_none()
    }
}

impl Rule {
    fn names_hosts_of(&self, crossings: &[Crossing]) -> bool {
        !crossings.is_empty()
            && crossings.iter().all(|crossing| match crossing {
                Crossing::Host { host, .. } => self.hosts.contains(host),
                Crossing::Network
                | Crossing::Foreign
                | Crossing::Write(_)
                | Crossing::Change { .. }
                | Crossing::Message { .. } => false,
            })
    }

    fn names_paths_of(&self, request: &Request<'_>) -> bool {
        let is_named = |path: &Path| self.paths.iter().any(|named| path.starts_with(named));
        let reaches_elsewhere = |crossing: &Crossing| match crossing {
            Crossing::Write(path) => !is_named(path),
            Crossing::Host { .. }
            | Crossing::Network
            | Crossing::Foreign
            | Crossing::Change { .. }
            | Crossing::Message { .. } => true,
        };
        !request.touches.is_empty()
            && request.touches.iter().all(|touch| is_named(&touch.path))
            && !request.crossings.iter().any(reaches_elsewhere)
    }
}

impl Condition {
    pub fn new(path: &str, operator: Operator) -> Result<Condition, RuleError> {
        if path.is_empty() {
            return Err(RuleError::NoPath);
        }
        Ok(Condition { path: path.split('.').map(str::to_owned).collect(), operator })
    }

    /// False when the input has no value at the path. A list holds when one of its items does.
    fn holds(&self, input: &Value) -> bool {
        let value = self.path.iter().try_fold(input, |value, step| match value {
            Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            other => other.get(step),
        });
        match value {
            None => false,
            Some(value) if self.operator.holds(value) => true,
            Some(Value::Array(items)) => items.iter().any(|item| self.operator.holds(item)),
            Some(_) => false,
        }
    }
}

impl Operator {
    pub fn regex(pattern: &str) -> Result<Operator, RuleError> {
        Regex::new(pattern)
            .map(Operator::Regex)
            .map_err(|err| RuleError::Regex { pattern: pattern.to_owned(), reason: err.to_string() })
    }

    fn holds(&self, value: &Value) -> bool {
        let text = || match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        };
        match self {
            Operator::Equals(wanted) => wanted == value,
            Operator::Contains(part) => text().is_some_and(|text| text.contains(part.as_str())),
            Operator::StartsWith(start) => text().is_some_and(|text| text.starts_with(start.as_str())),
            Operator::Regex(regex) => text().is_some_and(|text| regex.is_match(&text)),
        }
    }
}
