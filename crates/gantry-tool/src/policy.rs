//! Who may do what: ordered rules, first match wins, then the defaults. Pure: no files, no clock.

use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Autonomy, Call, PrincipalKind};
use crate::model_name::{folded, published_name};
use crate::registry::canonical_name;
use crate::sensitive::SensitivePaths;
use crate::tool::{Access, Tool, Toolset, Touch};

mod verdict;

use verdict::SUPERVISED;
pub use verdict::Verdict;

/// The stricter is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

/// One configured rule.
#[derive(Debug, Clone)]
pub struct Rule {
    name: String,
    /// The pattern as it stands, and with `__` for `::`.
    tool: [GlobMatcher; 2],
    principals: Vec<PrincipalKind>,
    agents: Vec<String>,
    touching: Option<Touching>,
    conditions: Vec<Condition>,
    decision: Decision,
    reason: String,
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
    #[error("a condition needs a path")]
    NoPath,
}

impl Rule {
    pub fn new(name: &str, tool_pattern: &str, decision: Decision, reason: &str) -> Result<Rule, RuleError> {
        let matcher = |pattern: &str| {
            // Only `*` is special, as the documentation says; everything else stands for itself.
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

    pub fn when(mut self, condition: Condition) -> Rule {
        self.conditions.push(condition);
        self
    }

    /// Whether the pattern matches the tool, by any spelling of its name or without its node. What an MCP server calls its
    /// tools is the server's choice, so no bare name speaks for them.
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

    /// Whether it can tell two calls of one tool by one caller apart.
    pub(crate) fn looks_at_inputs(&self) -> bool {
        self.touching.is_some() || !self.conditions.is_empty()
    }

    fn matches(&self, request: &Request<'_>, agent: &String, sensitive: bool) -> bool {
        self.is_about_subject(request.subject)
            && (self.principals.is_empty() || self.principals.contains(&request.call.principal.kind()))
            && (self.agents.is_empty() || self.agents.contains(agent))
            && (self.touching.is_none() || sensitive)
            && self.conditions.iter().all(|condition| condition.holds(request.input))
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

/// The configured rules and the defaults behind them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Arc<[Rule]>,
    sensitive: Arc<SensitivePaths>,
    /// Closed to every tool and every principal, whatever the rules say.
    closed: Arc<[std::path::PathBuf]>,
}

/// A tool, as far as rules and defaults look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) toolset: Toolset,
    /// It can change or reach things.
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
            let reason =
                format!("{} belongs to Gantry itself and is closed to every tool", touch.path.display());
            return Verdict::new(Decision::Deny, "closed-data-directory", reason);
        }
        let touched = request.touches.iter().find(|touch| self.sensitive.contains(&touch.path));
        let judge = |agent| {
            let by_rule = self.ruled(request, agent, touched.is_some());
            by_rule.unwrap_or_else(|| default_verdict(request.call, request.subject, touched))
        };
        // Who acts for another is bound by the rules of both.
        let verdict =
            request.call.policy_agents.iter().map(judge).fold(judge(&request.call.agent), Verdict::stricter);
        Verdict { sensitive: touched.is_some(), ..verdict }
    }

    /// What the first rule that matches says.
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

    /// The names of the rules that are about one node by its id: they do not follow it to another.
    pub fn rules_about_node(&self, node: &str) -> Vec<&str> {
        let prefix = format!("{node}__");
        let is_about = |rule: &&Rule| rule.tool.iter().any(|tool| tool.glob().glob().starts_with(&prefix));
        self.rules.iter().filter(is_about).map(|rule| rule.name.as_str()).collect()
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    fn is_closed(&self, touch: &Touch) -> bool {
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
        // Tokens that are worth more than the caller's: the sandbox keeps shells from it, too.
        let reason = format!("{} is another program's, and the operator's to read", touch.path.display());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Principal, Surface};
    use crate::testing::echo_tool;
    use crate::tool::Toolset;
    use serde_json::json;

    fn rule(tool: &str, decision: Decision) -> Rule {
        Rule::new(&format!("rule-{tool}"), tool, decision, "because").unwrap()
    }

    fn condition(path: &str, operator: Operator) -> Condition {
        Condition::new(path, operator).unwrap()
    }

    fn decide(
        policy: &Policy,
        principal: Principal,
        tool: &str,
        input: Value,
        touches: &[&str],
    ) -> (Decision, String) {
        let tool = echo_tool(tool, Toolset::Node);
        let call = Call::new(principal, Surface::Cli, "/w".into());
        let touches: Vec<_> = touches.iter().map(|path| Touch::read(path.into())).collect();
        let verdict = policy.decide(&Request {
            call: &call,
            subject: Subject::of(&tool),
            input: &input,
            touches: &touches,
        });
        (verdict.decision, verdict.rule)
    }

    fn agent() -> Principal {
        Principal::Agent { id: "a".into() }
    }

    #[test]
    fn the_first_match_wins_and_patterns_take_stars() {
        let policy = Policy::new(
            vec![
                rule("local__R*", Decision::Allow),
                rule("*", Decision::Deny),
                rule("local__Bash", Decision::Allow),
            ],
            SensitivePaths::default(),
            vec![],
        );
        assert_eq!(decide(&policy, Principal::Operator, "local__Read", json!({}), &[]).0, Decision::Allow);
        assert_eq!(decide(&policy, Principal::Operator, "local__Bash", json!({}), &[]).0, Decision::Deny);
    }

    #[test]
    fn a_rule_for_a_bare_node_tool_binds_every_node() {
        let policy = Policy::new(vec![rule("Bash", Decision::Deny)], SensitivePaths::default(), vec![]);
        assert_eq!(decide(&policy, Principal::Operator, "laptop__Bash", json!({}), &[]).0, Decision::Deny);
    }

    #[test]
    fn rules_that_name_a_node_are_known() {
        let rules = ["box__Bash", "box__*", "box::Read", "Bash", "boxes__Bash", "*", "my-box__Bash"];
        let rules = rules.map(|tool| rule(tool, Decision::Deny)).to_vec();
        let policy = Policy::new(rules, SensitivePaths::default(), vec![]);
        assert_eq!(policy.rules_about_node("box"), ["rule-box__Bash", "rule-box__*", "rule-box::Read"]);
        assert_eq!(policy.rules_about_node("my-box"), ["rule-my-box__Bash"]);
    }

    #[test]
    fn who_acts_for_another_is_bound_by_the_rules_of_both() {
        let of = |agent: &str, tool, decision| rule(tool, decision).for_agents(vec![agent.to_owned()]);
        let rules = vec![of("parent", "write", Decision::Deny), of("persona", "read", Decision::Ask)];
        let policy = Policy::new(rules, SensitivePaths::default(), vec![]);
        for (agent, policy_agents) in [("parent", "persona"), ("persona", "parent")] {
            let mut call = Call::new(Principal::Agent { id: agent.into() }, Surface::Agent, "/w".into());
            (call.autonomy, call.policy_agents) = (Autonomy::Guided, vec![policy_agents.into()]);
            let decide = |name: &str| {
                let tool = echo_tool(name, Toolset::Basic);
                policy
                    .decide(&Request {
                        call: &call,
                        subject: Subject::of(&tool),
                        input: &json!({}),
                        touches: &[],
                    })
                    .decision
            };
            assert_eq!((decide("write"), decide("read")), (Decision::Deny, Decision::Ask), "{agent}");
            assert_eq!(decide("exec"), Decision::Allow);
        }
    }

    #[test]
    fn a_bare_name_does_not_speak_for_what_a_server_calls_its_tools() {
        let allow = rule("Read", Decision::Allow);
        assert!(allow.is_about(&echo_tool("box__Read", Toolset::Node)));
        assert!(!allow.is_about(&echo_tool("evil__Read", Toolset::Mcp)));
        assert!(rule("evil__*", Decision::Deny).is_about(&echo_tool("evil__Read", Toolset::Mcp)));
    }

    #[test]
    fn a_rule_binds_a_tool_by_every_spelling_of_its_name() {
        let guarded = echo_tool("tool::file_read", Toolset::Guarded);
        for pattern in ["tool::file_read", "tool__file_read", "tool__*", "tool::file_*", "tool_*", "tool:*"] {
            assert!(rule(pattern, Decision::Deny).is_about(&guarded), "{pattern}");
        }
        let theirs = echo_tool("p__a::b", Toolset::Mcp);
        for pattern in ["p__a::b", "p__a__b", "p__a_*", "p__a:*", "p::a::b"] {
            assert!(rule(pattern, Decision::Deny).is_about(&theirs), "{pattern}");
        }
        let dotted = echo_tool("p__a.b", Toolset::Mcp);
        assert!(rule(&published_name("p__a.b"), Decision::Deny).is_about(&dotted), "as clients see it");
        for pattern in ["a__b", "p__a", "tool__file_write", "file_read"] {
            let rule = rule(pattern, Decision::Allow);
            assert!(![&guarded, &theirs, &dotted].iter().any(|tool| rule.is_about(tool)), "{pattern}");
        }
    }

    #[test]
    fn conditions_test_dotted_paths() {
        let cases = [
            (condition("command", Operator::Contains("rm ".into())), json!({"command": "rm -rf x"}), true),
            (condition("command", Operator::Contains("rm ".into())), json!({"command": "ls"}), false),
            (condition("env.A", Operator::Equals(json!("1"))), json!({"env": {"A": "1"}}), true),
            (condition("env.A", Operator::Equals(json!(1))), json!({"env": {"A": "1"}}), false),
            (condition("argv.0", Operator::StartsWith("gi".into())), json!({"argv": ["git", "x"]}), true),
            (
                condition("argv", Operator::Equals(json!("--force"))),
                json!({"argv": ["git", "--force"]}),
                true,
            ),
            (condition("command", Operator::regex("^sudo\\b").unwrap()), json!({"command": "sudo x"}), true),
            (condition("timeout", Operator::regex("^9").unwrap()), json!({"timeout": 900}), true),
            (condition("missing.deep", Operator::Contains(String::new())), json!({"missing": 1}), false),
        ];
        for (condition, input, expected) in cases {
            let policy = Policy::new(
                vec![rule("*", Decision::Deny).when(condition.clone())],
                SensitivePaths::default(),
                vec![],
            );
            let denied =
                decide(&policy, Principal::Operator, "local__Bash", input.clone(), &[]).0 == Decision::Deny;
            assert_eq!(denied, expected, "{condition:?} on {input}");
        }
        assert!(Operator::regex("(").is_err() && Condition::new("", Operator::Contains("x".into())).is_err());
    }

    #[test]
    fn the_data_directory_is_closed_before_any_rule() {
        let policy =
            Policy::new(vec![rule("*", Decision::Allow)], SensitivePaths::default(), vec!["/data".into()]);
        let (decision, rule) =
            decide(&policy, Principal::Operator, "local__Read", json!({}), &["/data/audit.key"]);
        assert_eq!((decision, rule.as_str()), (Decision::Deny, "closed-data-directory"));
        assert_eq!(
            decide(&policy, Principal::Operator, "local__Read", json!({}), &["/database"]).0,
            Decision::Allow
        );
    }

    #[test]
    fn sensitive_paths_ask_for_agents_and_mcp_clients_whichever_tool() {
        let policy = Policy::default();
        for principal in [agent(), Principal::Mcp { client: "c".into() }] {
            let (decision, rule) = decide(&policy, principal, "local__Read", json!({}), &["/h/.ssh/id_rsa"]);
            assert_eq!((decision, rule.as_str()), (Decision::Ask, "sensitive-paths"));
        }
        assert_eq!(
            decide(&policy, Principal::Operator, "x", json!({}), &["/h/.ssh/id_rsa"]).0,
            Decision::Allow
        );
    }

    #[test]
    fn what_other_programs_hold_is_the_operators_to_read() {
        let policy = Policy::default();
        let as_who = |principal, path| decide(&policy, principal, "local__Read", json!({}), &[path]);
        let client = || Principal::Client { token: "c".into() };
        let (decision, rule) = as_who(client(), "/proc/12/environ");
        assert_eq!((decision, rule.as_str()), (Decision::Deny, "other-programs"));
        assert_eq!(as_who(client(), "/h/.netrc").0, Decision::Allow);
        assert_eq!(as_who(Principal::Operator, "/proc/12/environ").0, Decision::Allow);
    }

    #[test]
    fn a_supervised_agent_is_asked_about_what_changes_things() {
        let destructive = echo_tool("local__Bash", Toolset::Node);
        let reading = echo_tool("local__Read", Toolset::Node).read_only();
        for (autonomy, tool, expected) in [
            (Autonomy::Supervised, &destructive, Decision::Ask),
            (Autonomy::Supervised, &reading, Decision::Allow),
            (Autonomy::Guided, &destructive, Decision::Allow),
            (Autonomy::Autonomous, &destructive, Decision::Allow),
        ] {
            let mut call = Call::new(agent(), Surface::Agent, "/w".into());
            call.autonomy = autonomy;
            let request =
                Request { call: &call, subject: Subject::of(tool), input: &json!({}), touches: &[] };
            assert_eq!(Policy::default().decide(&request).decision, expected, "{autonomy:?} {tool:?}");
        }
    }

    #[test]
    fn rules_can_be_limited_to_principals_and_agents() {
        let only_agents = rule("*", Decision::Deny).for_principals(vec![PrincipalKind::Agent]);
        let only_b = rule("*", Decision::Deny).for_agents(vec!["b".into()]);
        let policy = Policy::new(vec![only_b], SensitivePaths::default(), vec![]);
        assert_eq!(
            decide(&policy, Principal::Agent { id: "b".into() }, "x", json!({}), &[]).0,
            Decision::Deny
        );
        assert_eq!(decide(&policy, Principal::Operator, "x", json!({}), &[]).0, Decision::Allow);
        let policy = Policy::new(vec![only_agents], SensitivePaths::default(), vec![]);
        assert_eq!(decide(&policy, Principal::Operator, "x", json!({}), &[]).0, Decision::Allow);
    }
}
