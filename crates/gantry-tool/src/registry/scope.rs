//! `ToolScope` selects the tools that a caller sees.

use std::sync::Arc;

use globset::GlobMatcher;

use super::RegistryError;
use super::names::{bare_name, canonical_name, is_published_as};
use crate::tool::attributes::Property;
use crate::tool::effect::Effect;
use crate::tool::{Tool, Toolset};

/// Which tools are visible: an allow list and a deny list of names, globs (`local__*`), toolsets (`node`), effects
/// (`effect:runs_commands`) and properties (`is:offered_to_agents`).
#[derive(Debug, Clone, Default)]
pub struct ToolScope {
    /// `None` allows every tool.
    allow: Option<Vec<Selector>>,
    deny: Vec<Selector>,
    /// Only tools that change nothing.
    read_only: bool,
    /// A further scope that must allow the tool too.
    within: Option<Arc<ToolScope>>,
}

#[derive(Debug, Clone)]
enum Selector {
    Toolset(Toolset),
    Effect(Effect),
    Property(Property),
    Name(String),
    Glob(GlobMatcher),
}

impl ToolScope {
    pub fn new(allow: Option<&[String]>, deny: &[String]) -> Result<ToolScope, RegistryError> {
        let parse =
            |texts: &[String]| texts.iter().map(|text| Selector::parse(text)).collect::<Result<Vec<_>, _>>();
        Ok(ToolScope { allow: allow.map(parse).transpose()?, deny: parse(deny)?, ..ToolScope::default() })
    }

    pub fn read_only(self) -> ToolScope {
        ToolScope { read_only: true, ..self }
    }

    /// Allows only what both scopes allow.
    pub fn within(self, other: ToolScope) -> ToolScope {
        let inner = self.within.as_deref().cloned();
        let within = inner.map_or_else(|| other.clone(), |inner| inner.within(other.clone()));
        ToolScope { within: Some(Arc::new(within)), ..self }
    }

    /// Adds a tool to the allow list. A deny list still applies.
    pub fn including(self, name: &str) -> ToolScope {
        let within = self.within.as_deref().cloned().map(|within| Arc::new(within.including(name)));
        let allow = self.allow.map(|mut allow| {
            allow.push(Selector::Name(canonical_name(name)));
            allow
        });
        ToolScope { allow, within, ..self }
    }

    /// Whether the scope has an allow list.
    pub fn is_listed(&self) -> bool {
        self.allow.is_some() || self.within.as_ref().is_some_and(|within| within.is_listed())
    }

    /// Whether the scope could allow a node tool of that bare name, judging by the name alone. `standard` is this program's
    /// own tool of that name.
    pub(super) fn may_allow(&self, node: &str, bare: &str, standard: Option<&Tool>) -> bool {
        let name = format!("{node}__{bare}");
        let listed = |selectors: &[Selector]| {
            let matches = |selector: &Selector| {
                selector.names(Toolset::Node, &name, Some(bare))
                    || standard.is_some_and(|own| selector.declares(own))
            };
            selectors.iter().any(matches)
        };
        self.allow.as_deref().is_none_or(listed)
            && !listed(&self.deny)
            && self.within.as_ref().is_none_or(|within| within.may_allow(node, bare, standard))
    }

    pub fn allows(&self, tool: &Tool) -> bool {
        let listed = |selectors: &[Selector]| selectors.iter().any(|selector| selector.matches(tool));
        self.allow.as_deref().is_none_or(listed)
            && !listed(&self.deny)
            && (!self.read_only || tool.is_read_only())
            && self.within.as_ref().is_none_or(|within| within.allows(tool))
    }
}

impl Selector {
    fn parse(text: &str) -> Result<Selector, RegistryError> {
        if let Some(toolset) = Toolset::ALL.into_iter().find(|toolset| toolset.name() == text) {
            return Ok(Selector::Toolset(toolset));
        }
        let unknown = |reason: String| RegistryError::Selector { pattern: text.to_owned(), reason };
        if let Some(name) = text.strip_prefix(Effect::PREFIX) {
            let names = || Effect::ALL.map(Effect::name).join(", ");
            let effect = Effect::from_name(name).map(Selector::Effect);
            return effect.ok_or_else(|| unknown(format!("unknown effect; the effects are {}", names())));
        }
        if let Some(name) = text.strip_prefix(Property::PREFIX) {
            let property = Property::from_name(name).map(Selector::Property);
            return property.ok_or_else(|| unknown("unknown property".into()));
        }
        let name = canonical_name(text);
        if !text.contains(['*', '?', '[', ']', '{', '}']) {
            return Ok(Selector::Name(name));
        }
        let glob = globset::Glob::new(&name);
        let glob = glob
            .map_err(|err| RegistryError::Selector { pattern: text.to_owned(), reason: err.to_string() })?;
        Ok(Selector::Glob(glob.compile_matcher()))
    }

    fn matches(&self, tool: &Tool) -> bool {
        self.names(tool.toolset(), tool.name(), bare_name(tool))
            || self.declares(tool)
            || matches!(self, Selector::Name(name) if is_published_as(tool, name))
    }

    /// Whether the tool declares the effect or property.
    fn declares(&self, tool: &Tool) -> bool {
        match self {
            Selector::Effect(effect) => tool.has_effect(*effect),
            Selector::Property(property) => tool.has_property(*property),
            Selector::Toolset(_) | Selector::Name(_) | Selector::Glob(_) => false,
        }
    }

    fn names(&self, set: Toolset, name: &str, bare: Option<&str>) -> bool {
        match self {
            Selector::Toolset(toolset) => *toolset == set,
            // A name alone has no effects and no properties.
            Selector::Effect(_) | Selector::Property(_) => false,
            Selector::Name(own) => own == name || bare == Some(own),
            Selector::Glob(glob) => glob.is_match(name) || bare.is_some_and(|bare| glob.is_match(bare)),
        }
    }
}
