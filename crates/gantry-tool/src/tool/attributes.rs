//! Attributes that a tool declares, beyond its effects. Roles, default selections and agents read them, so that none of
//! them needs a list of names. The defaults are cautious: a tool is not offered, needs a machine, and is never called
//! twice for one step.

use crate::tool::Tool;
use crate::tool::effect::Effect;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    polls: bool,
    resumable: bool,
    offered_to_clients: bool,
    offered_to_agents: bool,
    collects: bool,
    without_machine: bool,
    without_owner_data: bool,
    bounds_depth: bool,
    errors_without_success: bool,
    recognised: bool,
    may_escalate: bool,
}

/// A property by which lists of tools may select, written `is:NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// MCP clients without a selection of tools see it.
    OfferedToClients,
    /// Agents without a list of tools offer it to their model.
    OfferedToAgents,
    /// It gathers information; the role `collector` has it.
    Collects,
    /// It starts child sessions on this gateway. Remote tools cannot.
    StartsChildren,
    /// As `StartsChildren`, without a limit on the depth.
    StartsUnboundedChildren,
    /// It works on data of the owner and of conversations. Children with isolated memory do not have it.
    HoldsOwnerData,
    /// It changes nothing.
    ReadOnly,
}

impl Property {
    const ALL: [Property; 7] = [
        Property::OfferedToClients,
        Property::OfferedToAgents,
        Property::Collects,
        Property::StartsChildren,
        Property::StartsUnboundedChildren,
        Property::HoldsOwnerData,
        Property::ReadOnly,
    ];

    pub(crate) const PREFIX: &str = "is:";

    fn name(self) -> &'static str {
        match self {
            Property::OfferedToClients => "offered_to_clients",
            Property::OfferedToAgents => "offered_to_agents",
            Property::Collects => "collects",
            Property::StartsChildren => "starts_children",
            Property::StartsUnboundedChildren => "starts_unbounded_children",
            Property::HoldsOwnerData => "holds_owner_data",
            Property::ReadOnly => "read_only",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Property> {
        Property::ALL.into_iter().find(|property| property.name() == name)
    }

    /// The property as an entry of a list of tools.
    pub fn selector(self) -> String {
        format!("{}{}", Property::PREFIX, self.name())
    }
}

impl Tool {
    /// The tool is called repeatedly until something has happened.
    pub fn polls(mut self) -> Self {
        self.attributes.polls = true;
        self
    }

    /// If the same step calls the tool again, it resumes its work and does nothing twice.
    pub fn resumable(mut self) -> Self {
        self.attributes.resumable = true;
        self
    }

    /// MCP clients without a selection of tools see the tool. One tool of each kind has this attribute.
    pub fn offered_to_clients(mut self) -> Self {
        self.attributes.offered_to_clients = true;
        self
    }

    /// Agents without a list of tools offer the tool to their model. The model may call the others too.
    pub fn offered_to_agents(mut self) -> Self {
        self.attributes.offered_to_agents = true;
        self
    }

    /// The tool gathers information: the role `collector` has it.
    pub fn collects(mut self) -> Self {
        self.attributes.collects = true;
        self
    }

    /// The tool works on data of the gateway (storage, memories, agents) and needs no machine.
    pub fn works_without_machine(mut self) -> Self {
        self.attributes.without_machine = true;
        self
    }

    /// The tool works without a machine, and has no access to data of the owner or of conversations.
    pub fn without_owner_data(mut self) -> Self {
        self.attributes.without_owner_data = true;
        self
    }

    /// The tool refuses to start children below a certain depth, so the children that it starts may have it.
    pub fn bounds_depth(mut self) -> Self {
        self.attributes.bounds_depth = true;
        self
    }

    /// The tool's errors have no `success` field, unlike those of its toolset.
    pub fn errors_without_success(mut self) -> Self {
        self.attributes.errors_without_success = true;
        self
    }

    /// The input may have the field [`crate::ESCALATION_FIELD`], which lets a command of an agent leave the sandbox.
    pub fn may_escalate(mut self) -> Self {
        self.attributes.may_escalate = true;
        self
    }

    pub(crate) fn has_escalation(&self) -> bool {
        self.attributes.may_escalate
    }

    pub fn is_polling(&self) -> bool {
        self.attributes.polls
    }

    pub fn is_resumable(&self) -> bool {
        self.attributes.resumable
    }

    /// Whether a gateway without a machine of its own cannot have the tool.
    pub fn needs_machine(&self) -> bool {
        !self.attributes.without_machine
    }

    pub(crate) fn has_errors_without_success(&self) -> bool {
        self.attributes.errors_without_success
    }

    /// Whether a node's tool has the name of one of this program's own tools.
    pub(crate) fn is_recognised(&self) -> bool {
        self.attributes.recognised
    }

    pub fn has_property(&self, property: Property) -> bool {
        let own = &self.attributes;
        let starts_children = !self.is_remote() && self.has_effect(Effect::StartsAgents);
        match property {
            Property::OfferedToClients => own.offered_to_clients,
            Property::OfferedToAgents => own.offered_to_agents,
            Property::Collects => own.collects,
            Property::StartsChildren => starts_children,
            Property::StartsUnboundedChildren => starts_children && !own.bounds_depth,
            Property::HoldsOwnerData => own.without_machine && !own.without_owner_data,
            Property::ReadOnly => self.is_read_only(),
        }
    }

    /// Gives a node's tool the attributes of `own`, this program's tool of the same name. A tool that runs commands still
    /// counts as having every effect, and so does one that is not read-only although `own` is.
    pub(crate) fn recognised_as(mut self, own: &Tool) -> Tool {
        let Attributes { polls, offered_to_clients, offered_to_agents, may_escalate, .. } = own.attributes;
        self.attributes = Attributes {
            polls,
            offered_to_clients,
            offered_to_agents,
            recognised: true,
            may_escalate,
            ..Attributes::default()
        };
        self.written_field = own.written_field;
        self.describe.clone_from(&own.describe);
        let exceeds = own.is_read_only() && !self.is_read_only();
        if exceeds || own.has_effect(Effect::RunsCommands) {
            return self;
        }
        let effects: Vec<Effect> = own.effect_list();
        self.effects(&effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::echo_tool;
    use crate::tool::Toolset;

    fn tool() -> Tool {
        echo_tool("new", Toolset::Assistant)
    }

    #[test]
    fn undeclared_attributes_get_the_cautious_reading() {
        let new = tool();
        assert!(new.needs_machine() && !new.is_polling() && !new.is_resumable());
        let has: Vec<_> = Property::ALL.into_iter().filter(|property| new.has_property(*property)).collect();
        // Its effects are unknown, so it counts as starting agents.
        assert_eq!(has, [Property::StartsChildren, Property::StartsUnboundedChildren]);
        assert!(tool().works_without_machine().has_property(Property::HoldsOwnerData));
        let declared = tool().works_without_machine().without_owner_data();
        assert!(!declared.has_property(Property::HoldsOwnerData));
        let bounded = tool().effects(&[Effect::StartsAgents]).bounds_depth();
        assert!(bounded.has_property(Property::StartsChildren));
        assert!(!bounded.has_property(Property::StartsUnboundedChildren));
    }

    #[test]
    fn selectors_name_every_property() {
        for property in Property::ALL {
            let selector = property.selector();
            let name = selector.strip_prefix(Property::PREFIX).unwrap();
            assert_eq!(Property::from_name(name), Some(property));
        }
        assert_eq!(Property::from_name("blue"), None);
    }
}
