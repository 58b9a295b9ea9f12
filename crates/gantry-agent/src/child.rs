//! [`Child`] holds the limits of a child session, which another session started. They are stored in its journal
//! and never exceed the rights of its parent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gantry_model::{Effort, Money, Thinking};
pub use gantry_protocol::ChildName;
use gantry_protocol::{BackgroundCall, BackgroundLimits, ChildBudget, ChildLimits, ChildTools, ThinkingMode};
use gantry_tool::{Autonomy, Property, ToolScope};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, FlowRule};
use crate::background::Background;
use crate::reset::ResetPolicy;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// Its name, for people.
    pub name: String,
    /// The session that started it, or the principal if no session did.
    pub parent: String,
    /// The first session of the family. The child's questions are asked there.
    pub root: String,
    /// The call of the parent that waits for it.
    pub step: String,
    /// The id of its first message.
    pub message: String,
    pub depth: u32,
    /// The child is stopped at this time.
    pub deadline: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The configured agent that it was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Agents whose rules and tool limits also apply to it.
    ///
    /// Journals hold it under its first name.
    #[serde(default, rename = "alsoAs", skip_serializing_if = "Vec::is_empty")]
    pub policy_agents: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Replaces its agent's prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// It may call the tools that every entry allows.
    pub tools: Vec<ToolLimits>,
    /// The tools that its model is offered, if they are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Vec<String>>,
    pub autonomy: Autonomy,
    pub workspace: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The account that is charged, below the account of its parent's run.
    pub account: String,
    /// Its own budget and those of the sessions above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<AccountBudget>,
    #[serde(default)]
    pub isolated_memory: bool,
    /// A session above it is autonomous, so calls that need an approval are denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// No call waits for it: the gateway started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
}

/// A selection of tools by names, globs, toolsets, effects and properties.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLimits {
    /// All tools when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// The highest amount that may be spent on an account and the accounts below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountBudget {
    pub account: String,
    pub limit: Money,
    /// Models without a known price count as free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_unpriced: bool,
}

impl AccountBudget {
    /// The budget of background work. Users of models without a known price did not choose it, so it does not stop them.
    pub fn background(account: &str, dollars: f64) -> AccountBudget {
        let limit = Money::from_dollars(dollars);
        AccountBudget { account: account.to_owned(), limit, allows_unpriced: true }
    }
}

/// The account that pays for a run. A run that an agent's message started is paid by the sender's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payer {
    pub account: String,
    /// The budgets of that account and those above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<AccountBudget>,
}

impl Child {
    /// Returns the agent of a child of `own`, with the current configuration. It never has more rights than `own`.
    pub(crate) fn limited(&self, own: Agent, agents: &BTreeMap<String, Agent>) -> Agent {
        let template = self.template.as_ref().and_then(|id| agents.get(id));
        let mut scope = own.scope.clone();
        let mut autonomy = least(own.autonomy, self.autonomy);
        let mut flow = own.flow;
        for id in &self.policy_agents {
            // An agent that is no longer configured allows nothing.
            scope = scope.within(agents.get(id).map_or_else(nothing, |agent| agent.scope.clone()));
            autonomy = agents.get(id).map_or(autonomy, |agent| least(autonomy, agent.autonomy));
            flow = if agents.get(id).is_some_and(|agent| agent.flow == FlowRule::Off) {
                flow
            } else {
                FlowRule::Ask
            };
        }
        for limits in &self.tools {
            scope = scope.within(limits.scope());
        }
        let shown = match (&self.shown, template) {
            (Some(names), _) => ToolLimits { allow: Some(names.clone()), deny: Vec::new() }.scope(),
            (None, Some(template)) => template.shown.clone(),
            (None, None) => own.shown.clone(),
        };
        Agent {
            model: self.model.clone(),
            thinking: self.thinking.unwrap_or(template.map_or(own.thinking, |template| template.thinking)),
            effort: self.effort.or(template.map_or(own.effort, |template| template.effort)),
            prompt: self
                .prompt
                .clone()
                .or_else(|| template.map_or(own.prompt, |template| template.prompt.clone())),
            autonomy,
            scope,
            shown,
            flow,
            workspace: self.workspace.clone(),
            node: template.and_then(|template| template.node.clone()).or(own.node),
            reset: ResetPolicy::Manual,
            max_requests: own.max_requests.min(self.max_turns.unwrap_or(u32::MAX)),
            approval_minutes: self
                .background
                .as_ref()
                .map_or(own.approval_minutes, |background| background.approval_minutes),
            always_hours: own.always_hours,
            // A child with limited tools must not search by another way.
            native_web_search: own.native_web_search
                && template.is_none_or(|template| template.native_web_search)
                && self.shown.is_none()
                && self.tools.is_empty(),
            // Every agent in `policy_agents` is checked when it writes.
            messages: own.messages,
            policy_agents: self.policy_agents.clone(),
            max_tokens: self.max_tokens,
        }
    }
}

/// The limits as the session's status reports them. The JSON is the same as the stored one.
impl From<Child> for ChildLimits {
    fn from(child: Child) -> ChildLimits {
        let thinking = |thinking| match thinking {
            Thinking::Off => ThinkingMode::Off,
            Thinking::Adaptive => ThinkingMode::Adaptive,
            Thinking::Budget(tokens) => ThinkingMode::Budget(tokens),
        };
        let effort = |effort| match effort {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        };
        let tools = |tools: ToolLimits| ChildTools { allow: tools.allow, deny: tools.deny };
        let budget = |own: AccountBudget| ChildBudget {
            account: own.account,
            limit: own.limit.nanos(),
            allows_unpriced: own.allows_unpriced,
        };
        ChildLimits {
            name: child.name,
            parent: child.parent,
            root: child.root,
            step: child.step,
            message: child.message,
            depth: child.depth,
            deadline: child.deadline,
            role: child.role,
            template: child.template,
            policy_agents: child.policy_agents,
            model: child.model,
            thinking: child.thinking.map(thinking),
            effort: child.effort.map(|value| effort(value).to_owned()),
            prompt: child.prompt,
            tools: child.tools.into_iter().map(tools).collect(),
            shown: child.shown,
            autonomy: child.autonomy.name().to_owned(),
            workspace: child.workspace.to_string_lossy().into_owned(),
            max_turns: child.max_turns,
            max_tokens: child.max_tokens,
            account: child.account,
            budgets: child.budgets.into_iter().map(budget).collect(),
            isolated_memory: child.isolated_memory,
            unattended: child.unattended,
            background: child.background.map(|background| BackgroundLimits {
                approval_minutes: background.approval_minutes,
                call: background.call.map(|call| BackgroundCall { tool: call.tool, input: call.input }),
            }),
        }
    }
}

impl ToolLimits {
    /// Selects all tools without this property.
    pub(crate) fn without(property: Property) -> ToolLimits {
        ToolLimits { allow: None, deny: vec![property.selector()] }
    }

    /// Returns the scope. An invalid list allows nothing.
    pub(crate) fn scope(&self) -> ToolScope {
        ToolScope::new(self.allow.as_deref(), &self.deny).unwrap_or_else(|_| nothing())
    }
}

pub(crate) fn nothing() -> ToolScope {
    ToolScope::new(Some(&[]), &[]).unwrap_or_default()
}

/// Returns the autonomy that asks more often.
pub(crate) fn least(one: Autonomy, other: Autonomy) -> Autonomy {
    let rank = |autonomy| match autonomy {
        Autonomy::Supervised => 0,
        Autonomy::Guided => 1,
        Autonomy::Autonomous => 2,
    };
    if rank(one) <= rank(other) { one } else { other }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) fn child() -> Child {
        Child {
            name: "scout".into(),
            parent: "agent:main:main".into(),
            root: "agent:main:main".into(),
            step: "s".into(),
            message: "m".into(),
            depth: 1,
            deadline: 0,
            role: None,
            template: None,
            policy_agents: Vec::new(),
            model: None,
            thinking: None,
            effort: None,
            prompt: None,
            tools: Vec::new(),
            shown: None,
            autonomy: Autonomy::Autonomous,
            workspace: "/w".into(),
            max_turns: None,
            max_tokens: None,
            account: "r".into(),
            budgets: Vec::new(),
            isolated_memory: false,
            unattended: false,
            background: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::Toolset;
    use gantry_tool::testing::echo_tool;

    use super::testing::child;
    use super::*;
    use crate::background::FixedCall;

    fn scope(allow: &[&str]) -> ToolScope {
        let allow: Vec<String> = allow.iter().map(|&name| name.to_owned()).collect();
        ToolScope::new(Some(&allow), &[]).unwrap()
    }

    fn agent(allow: &[&str], autonomy: Autonomy, flow: FlowRule) -> Agent {
        Agent { scope: scope(allow), autonomy, flow, ..Agent::default() }
    }

    fn allows(agent: &Agent) -> Vec<&'static str> {
        let all = ["read", "write", "exec"].into_iter();
        all.filter(|name| agent.scope.allows(&echo_tool(name, Toolset::Basic))).collect()
    }

    #[test]
    fn child_may_use_only_what_every_agent_in_its_policy_allows() {
        let own = agent(&["read", "write"], Autonomy::Guided, FlowRule::Off);
        let persona = agent(&["read", "exec"], Autonomy::Supervised, FlowRule::Ask);
        let agents = BTreeMap::from([("persona".to_owned(), persona)]);
        let plain = child().limited(own.clone(), &agents);
        assert_eq!(
            (allows(&plain), plain.autonomy, plain.flow),
            (vec!["read", "write"], Autonomy::Guided, FlowRule::Off)
        );
        let made = Child { policy_agents: vec!["persona".into()], ..child() };
        let both = made.limited(own.clone(), &agents);
        assert_eq!(
            (allows(&both), both.autonomy, both.flow),
            (vec!["read"], Autonomy::Supervised, FlowRule::Ask)
        );
        let gone = Child { policy_agents: vec!["gone".into()], ..child() }.limited(own.clone(), &agents);
        assert_eq!(allows(&gone), [""; 0]);
        let deny = ToolLimits { allow: None, deny: vec!["read".into()] };
        let broken = ToolLimits { allow: Some(vec!["[".into()]), deny: Vec::new() };
        assert_eq!(allows(&Child { tools: vec![deny], ..child() }.limited(own.clone(), &agents)), ["write"]);
        assert_eq!(allows(&Child { tools: vec![broken], ..child() }.limited(own, &agents)), [""; 0]);
    }

    #[test]
    fn status_reports_the_limits_as_they_are_stored() {
        let full = Child {
            role: Some("researcher".into()),
            template: Some("helper".into()),
            policy_agents: vec!["persona".into()],
            model: Some("balanced".into()),
            thinking: Some(Thinking::Budget(2_000)),
            effort: Some(Effort::High),
            prompt: Some("p".into()),
            tools: vec![ToolLimits::default(), ToolLimits { allow: Some(vec![]), deny: vec!["x".into()] }],
            shown: Some(vec!["Read".into()]),
            max_turns: Some(3),
            max_tokens: Some(100),
            budgets: vec![AccountBudget {
                account: "a".into(),
                limit: Money::from_dollars(0.5),
                allows_unpriced: true,
            }],
            isolated_memory: true,
            unattended: true,
            background: Some(Background {
                approval_minutes: 5,
                call: Some(FixedCall { tool: "Read".into(), input: serde_json::json!({"path": "a"}) }),
            }),
            ..child()
        };
        for child in [full, Child { thinking: Some(Thinking::Off), ..child() }, child()] {
            let stored = serde_json::to_string(&child).unwrap();
            let limits = ChildLimits::from(child);
            assert_eq!(serde_json::to_string(&limits).unwrap(), stored, "the wire format is unchanged");
            assert_eq!(serde_json::from_str::<ChildLimits>(&stored).unwrap(), limits);
        }
    }

    #[test]
    fn policy_agents_are_stored_under_their_first_name() {
        let made = Child { policy_agents: vec!["persona".into()], ..child() };
        let stored = serde_json::to_value(&made).unwrap();
        assert_eq!(stored["alsoAs"], serde_json::json!(["persona"]));
        assert_eq!(serde_json::from_value::<Child>(stored).unwrap(), made);
    }

    #[test]
    fn child_limits_never_exceed_those_of_the_parent() {
        let own = Agent { max_requests: 10, autonomy: Autonomy::Autonomous, ..Agent::default() };
        let turns =
            |max_turns| Child { max_turns, ..child() }.limited(own.clone(), &BTreeMap::new()).max_requests;
        assert_eq!((turns(Some(3)), turns(Some(99)), turns(None)), (3, 10, 10));
        let guided = Child { autonomy: Autonomy::Guided, ..child() };
        assert_eq!(guided.limited(own, &BTreeMap::new()).autonomy, Autonomy::Guided);
    }
}
