//! `[policy]`: the rules that decide which calls run, and further sensitive paths.

use std::path::PathBuf;

use gantry_domain::ConfigSection;
use gantry_tool::{
    Condition, Decision, Operator, PrincipalKind, Rule, RuleError, Touching, Violation, parse_checked,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ConfigError, misplaced};

/// Who may do what, in order: the first rule that matches decides.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct PolicyConfig {
    pub(crate) rules: Vec<RuleConfig>,
    /// Absolute paths that count as sensitive, in addition to the built-in ones.
    pub(crate) sensitive_paths: Vec<PathBuf>,
    /// Absolute paths of files that others put there, such as downloads and vendored code. Agents read them as untrusted
    /// content.
    pub(crate) untrusted_paths: Vec<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RuleConfig {
    /// Shown in refusals and in the audit log; `rule-1`, `rule-2`, … when left out.
    name: Option<String>,
    /// A tool's name; `*` matches any text.
    tool: String,
    decision: Decision,
    #[serde(default)]
    reason: String,
    /// All must hold.
    #[serde(default)]
    when: Vec<ConditionConfig>,
    /// Only calls by these: operator, client, mcp, agent, scheduler.
    #[serde(default)]
    principals: Vec<PrincipalKind>,
    /// Only calls made as these agents.
    #[serde(default)]
    agents: Vec<String>,
    /// `sensitive`: only calls that touch a sensitive path.
    touches: Option<Touching>,
    /// Only calls that connect to these hosts, by exact name.
    #[serde(default)]
    hosts: Vec<String>,
    /// Only calls that touch these paths, or paths below them.
    #[serde(default)]
    paths: Vec<PathBuf>,
    /// An allowing rule for exact hosts or paths also counts in a conversation that holds untrusted and private content.
    #[serde(default)]
    even_labelled: bool,
}

/// A test on one value of the input. Give one of equals, contains, startsWith and regex.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ConditionConfig {
    /// Dotted path into the input: `command`, `env.PATH`, `argv.0`.
    path: String,
    equals: Option<Value>,
    contains: Option<String>,
    starts_with: Option<String>,
    regex: Option<String>,
}

impl PolicyConfig {
    /// Returns the errors of each rule of a raw list: of its shape, or else of its parts.
    pub(super) fn rule_violations(rules: &Value) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (index, rule) in rules.as_array().into_iter().flatten().enumerate() {
            let at = format!("policy.rules.{index}");
            match parse_checked::<RuleConfig>(rule.clone()).map(|rule| rule.build(index)) {
                Ok(Ok(_)) => {}
                Ok(Err(message)) => violations.push(Violation { path: at, message }),
                Err(found) => violations.extend(found.into_iter().map(|violation| {
                    let path = [at.as_str(), &violation.path].join(".");
                    Violation { path: path.trim_end_matches('.').to_owned(), ..violation }
                })),
            }
        }
        violations
    }

    /// Builds the rules, or returns the error of each invalid one.
    pub(crate) fn build_rules(&self) -> Result<Vec<Rule>, ConfigError> {
        let (mut rules, mut violations) = (Vec::new(), Vec::new());
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.build(index) {
                Ok(rule) => rules.push(rule),
                Err(message) => violations.push(Violation { path: format!("policy.rules.{index}"), message }),
            }
        }
        if violations.is_empty() { Ok(rules) } else { Err(ConfigError::Invalid { violations }) }
    }
}

impl RuleConfig {
    /// What the rule is about: its tool pattern and its agents.
    pub(crate) fn subjects(&self) -> (&str, &[String]) {
        (&self.tool, &self.agents)
    }

    /// The name in refusals and in the audit log.
    pub(crate) fn shown_name(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("rule-{}", index + 1))
    }

    /// Whether the rule does not depend on the input.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.when.is_empty() && self.touches.is_none()
    }

    /// Whether the rule is for all principals of the other rule.
    pub(crate) fn covers_principals(&self, other: &RuleConfig) -> bool {
        let has_all = || other.principals.iter().all(|kind| self.principals.contains(kind));
        self.principals.is_empty() || (!other.principals.is_empty() && has_all())
    }

    fn build(&self, index: usize) -> Result<Rule, String> {
        let words = |err: RuleError| err.to_string();
        let name = self.shown_name(index);
        let reason = match (&*self.reason, self.decision) {
            ("", Decision::Deny) => "the operator's policy forbids it",
            ("", Decision::Ask) => "the operator's policy requires approval",
            ("", Decision::Allow) => "the operator's policy allows it",
            (reason, _) => reason,
        };
        let mut rule = Rule::new(&name, &self.tool, self.decision, reason)
            .map_err(words)?
            .for_principals(self.principals.clone())
            .for_agents(self.agents.clone());
        if let Some(touching) = self.touches {
            rule = rule.touching(touching);
        }
        if let Some(pattern) = self.hosts.iter().find(|host| host.contains('*')) {
            return Err(format!("hosts must be exact names, not {pattern:?}"));
        }
        let hosts = self.hosts.iter().map(|host| host.to_lowercase()).collect();
        rule = rule.for_hosts(hosts).for_paths(self.paths.clone());
        if self.even_labelled {
            rule = rule.even_labelled().map_err(words)?;
        }
        for condition in &self.when {
            for operator in condition.operators()? {
                rule = rule.when(Condition::new(&condition.path, operator).map_err(words)?);
            }
        }
        Ok(rule)
    }
}

impl ConditionConfig {
    fn operators(&self) -> Result<Vec<Operator>, String> {
        let mut operators: Vec<Operator> = Vec::new();
        operators.extend(self.equals.clone().map(Operator::Equals));
        operators.extend(self.contains.clone().map(Operator::Contains));
        operators.extend(self.starts_with.clone().map(Operator::StartsWith));
        if let Some(pattern) = &self.regex {
            operators.push(Operator::regex(pattern).map_err(|err| err.to_string())?);
        }
        if operators.is_empty() {
            return Err(format!(
                "the condition on {:?} needs equals, contains, startsWith or regex",
                self.path
            ));
        }
        Ok(operators)
    }
}

impl ConfigSection for PolicyConfig {
    fn needs_restart(&self) -> bool {
        false
    }

    fn violations(&self, at: &str) -> Vec<Violation> {
        let mut violations = misplaced(&format!("{at}.sensitivePaths"), &self.sensitive_paths);
        violations.extend(misplaced(&format!("{at}.untrustedPaths"), &self.untrusted_paths));
        for (index, rule) in self.rules.iter().enumerate() {
            violations.extend(misplaced(&format!("{at}.rules.{index}.paths"), &rule.paths));
        }
        violations
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let rules = self.rules.iter_mut().flat_map(|rule| rule.paths.iter_mut());
        self.sensitive_paths.iter_mut().chain(&mut self.untrusted_paths).chain(rules).collect()
    }
}
