//! The list of tools, and scoped views of it. A registry can name and find tools; running one is the gate's.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use globset::GlobMatcher;

use crate::error::{Refusal, RefusalCode};
use crate::nearest::nearest;
use crate::tool::{Tool, Toolset};

/// Every registered tool, by name. Cheap to clone; clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    tools: Arc<RwLock<BTreeMap<String, Arc<Tool>>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("a tool named {0} is already registered")]
    Duplicate(String),
    #[error("{pattern:?} is neither a name, a glob nor a toolset: {reason}")]
    Selector { pattern: String, reason: String },
}

impl Registry {
    pub fn register(&self, tool: Tool) -> Result<(), RegistryError> {
        let mut tools = self.write();
        if tools.contains_key(tool.name()) {
            return Err(RegistryError::Duplicate(tool.name().to_owned()));
        }
        tools.insert(tool.name().to_owned(), Arc::new(tool));
        Ok(())
    }

    /// Registers the tool, in place of one with the same name if there is one, which is returned.
    pub fn replace(&self, tool: Tool) -> Option<Arc<Tool>> {
        self.write().insert(tool.name().to_owned(), Arc::new(tool))
    }

    pub fn find(&self, name: &str) -> Option<Arc<Tool>> {
        self.view(&ToolScope::default()).find(name)
    }

    pub fn registered(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// All tools, sorted by toolset, then name.
    pub fn entries(&self) -> Vec<Arc<Tool>> {
        self.view(&ToolScope::default()).entries()
    }

    /// The tools a scope lets through.
    pub fn view(&self, scope: &ToolScope) -> View {
        let tools = self.read();
        View {
            tools: tools
                .iter()
                .filter(|(_, tool)| scope.allows(tool))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<Tool>>> {
        self.tools.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Arc<Tool>>> {
        self.tools.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The tool of that name if the scope lets it through. The gate's way: it copies nothing.
    pub(crate) fn resolve(&self, scope: &ToolScope, name: &str) -> Option<Arc<Tool>> {
        lookup(&self.read(), name, |tool| scope.allows(tool))
    }
}

/// What one principal sees of the registry.
#[derive(Debug, Clone)]
pub struct View {
    tools: BTreeMap<String, Arc<Tool>>,
}

impl View {
    /// Finds a tool by its name, its `__` spelling, or without `{node}__` while only one node has it.
    pub fn find(&self, name: &str) -> Option<Arc<Tool>> {
        lookup(&self.tools, name, |_| true)
    }

    pub fn registered(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn entries(&self) -> Vec<Arc<Tool>> {
        let mut tools: Vec<_> = self.tools.values().cloned().collect();
        tools.sort_by(|a, b| (a.toolset(), a.name()).cmp(&(b.toolset(), b.name())));
        tools
    }

    /// What to say of a name that is not here, with the nearest ones that are.
    pub fn unknown(&self, name: &str) -> Refusal {
        let hint = match nearest(name, self.tools.keys().map(String::as_str)).as_slice() {
            [] => "`gantry tools` lists what there is".to_owned(),
            names => format!("did you mean {}?", names.join(", ")),
        };
        Refusal::new(RefusalCode::UnknownTool, format!("unknown tool \"{name}\"")).with_hint(hint)
    }
}

fn lookup(
    tools: &BTreeMap<String, Arc<Tool>>,
    name: &str,
    allows: impl Fn(&Tool) -> bool,
) -> Option<Arc<Tool>> {
    if let Some(tool) = tools.get(name).or_else(|| tools.get(&canonical_name(name))) {
        return allows(tool).then(|| tool.clone());
    }
    let mut on_nodes = tools.values().filter(|tool| bare_name(tool) == Some(name) && allows(tool));
    match (on_nodes.next(), on_nodes.next()) {
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}

/// `tool__file_read` is how surfaces without colons spell `tool::file_read`.
pub fn canonical_name(name: &str) -> String {
    match name.strip_prefix("tool__") {
        Some(rest) => format!("tool::{rest}"),
        None => name.to_owned(),
    }
}

fn bare_name(tool: &Tool) -> Option<&str> {
    (tool.toolset() == Toolset::Node).then(|| tool.name().split_once("__").map(|(_, bare)| bare)).flatten()
}

/// Which tools are visible: an allow list and a deny list of names, globs (`local__*`) and toolsets (`node`).
#[derive(Debug, Clone, Default)]
pub struct ToolScope {
    /// `None` lets every tool through.
    allow: Option<Vec<Selector>>,
    deny: Vec<Selector>,
}

#[derive(Debug, Clone)]
enum Selector {
    Toolset(Toolset),
    Name(String),
    Glob(GlobMatcher),
}

impl ToolScope {
    pub fn new(allow: Option<&[String]>, deny: &[String]) -> Result<ToolScope, RegistryError> {
        let parse =
            |texts: &[String]| texts.iter().map(|text| Selector::parse(text)).collect::<Result<Vec<_>, _>>();
        Ok(ToolScope { allow: allow.map(parse).transpose()?, deny: parse(deny)? })
    }

    pub fn allows(&self, tool: &Tool) -> bool {
        let listed = |selectors: &[Selector]| selectors.iter().any(|selector| selector.matches(tool));
        self.allow.as_deref().is_none_or(listed) && !listed(&self.deny)
    }
}

impl Selector {
    fn parse(text: &str) -> Result<Selector, RegistryError> {
        if let Some(toolset) = Toolset::ALL.into_iter().find(|toolset| toolset.name() == text) {
            return Ok(Selector::Toolset(toolset));
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
        match self {
            Selector::Toolset(toolset) => *toolset == tool.toolset(),
            Selector::Name(name) => name == tool.name() || bare_name(tool) == Some(name),
            Selector::Glob(glob) => {
                glob.is_match(tool.name()) || bare_name(tool).is_some_and(|bare| glob.is_match(bare))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::echo_tool;

    fn registry() -> Registry {
        let registry = Registry::default();
        for (name, toolset) in [
            ("local__Bash", Toolset::Node),
            ("local__Read", Toolset::Node),
            ("tool::file_read", Toolset::Guarded),
            ("read", Toolset::Basic),
        ] {
            registry.register(echo_tool(name, toolset)).unwrap();
        }
        registry
    }

    fn names(scope: &ToolScope) -> Vec<String> {
        registry().view(scope).entries().iter().map(|tool| tool.name().to_owned()).collect()
    }

    fn scope(allow: Option<&[&str]>, deny: &[&str]) -> ToolScope {
        let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        ToolScope::new(allow.map(owned).as_deref(), &owned(deny)).unwrap()
    }

    #[test]
    fn registers_once_and_replaces() {
        let registry = registry();
        assert!(registry.register(echo_tool("read", Toolset::Basic)).is_err());
        assert!(registry.replace(echo_tool("read", Toolset::Basic)).is_some());
        assert!(registry.replace(echo_tool("write", Toolset::Basic)).is_none());
        assert!(registry.registered("write") && !registry.registered("exec"));
    }

    #[test]
    fn finds_by_both_spellings_and_bare_node_names() {
        let registry = registry();
        for name in ["tool::file_read", "tool__file_read", "Bash", "local__Bash", "read"] {
            assert!(registry.registered(name), "{name}");
        }
        registry.register(echo_tool("laptop__Bash", Toolset::Node)).unwrap();
        assert!(!registry.registered("Bash"), "two nodes could answer");
    }

    #[test]
    fn scopes_take_names_globs_and_toolsets() {
        assert_eq!(names(&scope(Some(&["read", "Bash"]), &[])), ["local__Bash", "read"]);
        assert_eq!(names(&scope(Some(&["local__*"]), &["Bash"])), ["local__Read"]);
        assert_eq!(names(&scope(Some(&["guarded", "basic"]), &[])), ["tool::file_read", "read"]);
        assert_eq!(names(&scope(None, &["node", "tool__*"])), ["read"]);
        assert_eq!(names(&scope(Some(&[]), &[])), Vec::<String>::new());
    }

    #[test]
    fn a_selector_that_is_nothing_is_an_error() {
        assert!(ToolScope::new(None, &["local__{Bash".to_owned()]).is_err());
    }

    #[test]
    fn a_scope_hides_tools_from_resolve_too() {
        let registry = registry();
        let scope = scope(Some(&["read"]), &[]);
        assert!(registry.resolve(&scope, "read").is_some());
        for hidden in ["Bash", "local__Bash", "tool__file_read"] {
            assert!(registry.resolve(&scope, hidden).is_none(), "{hidden}");
        }
    }
}
