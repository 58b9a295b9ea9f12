//! A child: a session that another one began, within limits of its own. They are in its journal, so that a restart finds
//! them, and none of them gives it more than its parent has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gantry_model::{Effort, Money, Thinking};
pub use gantry_protocol::ChildName;
use gantry_tool::{Autonomy, Property, ToolScope};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, FlowRule};
use crate::reset::ResetPolicy;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// For people.
    pub name: String,
    /// The session that began it; who did, if it was none.
    pub parent: String,
    /// The first of the family: what the child asks is asked there.
    pub root: String,
    /// The call of the parent that waits for it.
    pub step: String,
    /// The message that it was begun with.
    pub message: String,
    pub depth: u32,
    /// From then on it takes too long.
    pub deadline: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The configured agent that it is made after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Agents whose rules and tools bind it, beside its own.
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
    /// In place of its agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// It may call what all of them let through.
    pub tools: Vec<ToolLimits>,
    /// What its model is told of, where that is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Vec<String>>,
    pub autonomy: Autonomy,
    pub workspace: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What it spends is written down here, beneath the account of its parent's run.
    pub account: String,
    /// Of it and of those above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<AccountBudget>,
    #[serde(default)]
    pub isolated_memory: bool,
    /// Somebody above it works alone, so nobody is there to be asked: what needs a yes is denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
}

/// Names, globs, toolsets, effects and properties.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLimits {
    /// Without one, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// What may be spent on an account and those beneath it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountBudget {
    pub account: String,
    pub limit: Money,
}

/// Who pays for a run that a message of an agent began: the run that the message was written in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payer {
    pub account: String,
    /// Of that account and those above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<AccountBudget>,
}

impl Child {
    /// The agent that a child of `own` is: never more than that, as it is configured now.
    pub(crate) fn limited(&self, own: Agent, agents: &BTreeMap<String, Agent>) -> Agent {
        let template = self.template.as_ref().and_then(|id| agents.get(id));
        let mut scope = own.scope.clone();
        let mut autonomy = least(own.autonomy, self.autonomy);
        let mut flow = own.flow;
        for id in &self.policy_agents {
            // One that is configured no more may do nothing.
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
            approval_minutes: own.approval_minutes,
            always_hours: own.always_hours,
            // Whoever may use some tools only is not to search by another way.
            native_web_search: own.native_web_search
                && template.is_none_or(|template| template.native_web_search)
                && self.shown.is_none()
                && self.tools.is_empty(),
            // Asked of each agent that binds it, when it writes.
            messages: own.messages,
            policy_agents: self.policy_agents.clone(),
            max_tokens: self.max_tokens,
        }
    }
}

impl ToolLimits {
    /// All tools but those with this property.
    pub(crate) fn without(property: Property) -> ToolLimits {
        ToolLimits { allow: None, deny: vec![property.selector()] }
    }

    /// A list that cannot be read lets nothing through.
    pub(crate) fn scope(&self) -> ToolScope {
        ToolScope::new(self.allow.as_deref(), &self.deny).unwrap_or_else(|_| nothing())
    }
}

fn nothing() -> ToolScope {
    ToolScope::new(Some(&[]), &[]).unwrap_or_default()
}

/// The one that asks more.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::Toolset;
    use gantry_tool::testing::echo_tool;

    use super::testing::child;
    use super::*;

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
    fn a_child_has_what_all_that_bind_it_have_in_common() {
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
    fn agents_that_bind_a_child_keep_their_name_in_the_journal() {
        let made = Child { policy_agents: vec!["persona".into()], ..child() };
        let stored = serde_json::to_value(&made).unwrap();
        assert_eq!(stored["alsoAs"], serde_json::json!(["persona"]));
        assert_eq!(serde_json::from_value::<Child>(stored).unwrap(), made);
    }

    #[test]
    fn limits_only_get_tighter() {
        let own = Agent { max_requests: 10, autonomy: Autonomy::Autonomous, ..Agent::default() };
        let turns =
            |max_turns| Child { max_turns, ..child() }.limited(own.clone(), &BTreeMap::new()).max_requests;
        assert_eq!((turns(Some(3)), turns(Some(99)), turns(None)), (3, 10, 10));
        let guided = Child { autonomy: Autonomy::Guided, ..child() };
        assert_eq!(guided.limited(own, &BTreeMap::new()).autonomy, Autonomy::Guided);
    }
}
