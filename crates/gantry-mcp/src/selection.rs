//! Which tools a client is offered: by default one of each kind, so that a model does not get five ways to read a file.

use gantry_tool::{Property, Registry, RegistryError, ToolScope, Toolset, nearest};

use crate::backend::Names;

/// Reads the rest of shortened results. It is offered with every selection.
pub const RESULT_READ: &str = "result_read";

/// Reads files of the agent's workspace, for resources and prompts.
pub(crate) const READ_FILE: &str = "gsv__ReadFile";

#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("unknown toolset {name:?}; {}the toolsets are {}", suggestion(name), known_toolsets())]
    Toolset { name: String },
    #[error(transparent)]
    Selector(#[from] RegistryError),
}

fn suggestion(name: &str) -> String {
    let near = nearest(name, Toolset::ALL.map(Toolset::name));
    near.first().map(|near| format!("did you mean {near:?}? ")).unwrap_or_default()
}

fn known_toolsets() -> String {
    Toolset::ALL.map(Toolset::name).join(", ")
}

/// `Selection` is a client's choice of tools.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Names, globs and toolsets. An empty list means the default.
    chosen: Vec<String>,
    read_only: bool,
    names: Names,
}

impl Selection {
    /// Selects toolsets, and tools by name or glob. Two empty lists mean the default.
    pub fn new(toolsets: &[String], tools: &[String]) -> Result<Selection, SelectionError> {
        if let Some(name) = toolsets.iter().find(|name| Toolset::from_name(name).is_none()) {
            return Err(SelectionError::Toolset { name: name.clone() });
        }
        let chosen: Vec<String> = toolsets.iter().chain(tools).cloned().collect();
        ToolScope::new(Some(&chosen), &[])?;
        Ok(Selection { chosen, ..Selection::default() })
    }

    /// Adapts the default for a token or agent with its own list of tools: then the whole list is offered.
    pub fn for_listed(self, listed: bool) -> Selection {
        let chosen = if listed && self.is_default() { vec!["*".to_owned()] } else { self.chosen };
        Selection { chosen, ..self }
    }

    pub fn read_only(self) -> Selection {
        Selection { read_only: true, ..self }
    }

    pub fn namespaced(self) -> Selection {
        Selection { names: Names::Namespaced, ..self }
    }

    pub fn names(&self) -> Names {
        self.names
    }

    pub fn is_default(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Returns the scope of the selected tools.
    pub fn scope(&self) -> Result<ToolScope, RegistryError> {
        let mut allow = match self.is_default() {
            true => vec![Property::OfferedToClients.selector()],
            false => self.chosen.clone(),
        };
        allow.push(RESULT_READ.to_owned());
        let scope = ToolScope::new(Some(&allow), &[])?;
        Ok(if self.read_only { scope.read_only() } else { scope })
    }

    /// Describes each part of the selection that matches no tool, with the nearest names.
    pub fn unmatched(&self, registry: &Registry) -> Vec<String> {
        let missing = |chosen: &&String| {
            let scope = ToolScope::new(Some(std::slice::from_ref(*chosen)), &[]);
            scope.is_ok_and(|scope| registry.view(&scope).entries().is_empty())
        };
        let entries = registry.entries();
        let describe = |chosen: &String| {
            let plain: String = chosen.chars().filter(|c| !"*?[]{}".contains(*c)).collect();
            match nearest(&plain, entries.iter().map(|tool| tool.name())).as_slice() {
                [] => format!("no tool matches {chosen:?}; `gantry tools` lists the tools"),
                near => format!("no tool matches {chosen:?}; did you mean {}?", near.join(", ")),
            }
        };
        self.chosen.iter().filter(missing).map(describe).collect()
    }

    /// Returns how many names, globs and toolsets were chosen.
    pub fn chosen(&self) -> usize {
        self.chosen.len()
    }

    /// Returns the scope for resources and prompts. A client that chose tools by name gets nothing beyond its choice.
    pub fn resource_scope(&self) -> Result<ToolScope, RegistryError> {
        let reading = ToolScope::new(Some(&[READ_FILE.to_owned(), RESULT_READ.to_owned()]), &[])?;
        Ok(if self.is_default() { reading } else { reading.within(self.scope()?) })
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::echo_tool;

    use super::*;

    fn names_in(scope: &ToolScope) -> String {
        let registry = Registry::default();
        for (name, toolset) in [
            ("local__Read", Toolset::Node),
            ("local__Bash", Toolset::Node),
            ("read", Toolset::Basic),
            ("tool::file_read", Toolset::Guarded),
            ("tool::web_fetch", Toolset::Guarded),
            (READ_FILE, Toolset::Native),
            (RESULT_READ, Toolset::Gantry),
        ] {
            let tool = echo_tool(name, toolset);
            let is_default = matches!(name, "local__Read" | "local__Bash" | "tool::web_fetch" | RESULT_READ);
            let tool = if is_default { tool.offered_to_clients() } else { tool };
            registry.replace(if name == "local__Bash" { tool } else { tool.read_only() });
        }
        let names = registry.view(scope).entries();
        names.iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>().join(" ")
    }

    fn chosen(toolsets: &[&str], tools: &[&str]) -> Selection {
        let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        Selection::new(&owned(toolsets), &owned(tools)).unwrap()
    }

    #[test]
    fn default_selection_has_one_tool_of_each_kind() {
        let selection = Selection::default();
        assert_eq!(
            names_in(&selection.scope().unwrap()),
            "local__Bash local__Read tool::web_fetch result_read"
        );
        assert_eq!(names_in(&selection.resource_scope().unwrap()), "gsv__ReadFile result_read");
        assert_eq!(
            names_in(&selection.read_only().scope().unwrap()),
            "local__Read tool::web_fetch result_read"
        );
    }

    #[test]
    fn only_chosen_tools_are_offered() {
        assert_eq!(
            names_in(&chosen(&["basic"], &["tool::file_*"]).scope().unwrap()),
            "tool::file_read read result_read"
        );
        let narrow = chosen(&[], &["Read"]);
        assert_eq!(names_in(&narrow.scope().unwrap()), "local__Read result_read");
        assert_eq!(names_in(&narrow.resource_scope().unwrap()), "result_read");
        assert_eq!(
            names_in(&chosen(&["native"], &[]).resource_scope().unwrap()),
            "gsv__ReadFile result_read"
        );
        let listed = Selection::default().for_listed(true);
        assert!(names_in(&listed.scope().unwrap()).contains("tool::file_read"));
        assert!(!names_in(&listed.read_only().scope().unwrap()).contains("Bash"));
        assert_eq!(
            names_in(&narrow.for_listed(true).scope().unwrap()),
            "local__Read result_read",
            "the choice has precedence"
        );
    }

    #[test]
    fn unmatched_choices_are_reported_with_suggestions() {
        let registry = Registry::default();
        registry.replace(echo_tool("local__Read", Toolset::Node));
        registry.replace(echo_tool("tool::web_fetch", Toolset::Guarded));
        let reports = |toolsets: &[&str], tools: &[&str]| chosen(toolsets, tools).unmatched(&registry);
        assert_eq!(reports(&["node"], &["Read", "tool__web_*", "local__*"]), Vec::<String>::new());
        assert_eq!(reports(&[], &["Raed"]), ["no tool matches \"Raed\"; did you mean local__Read?"]);
        assert_eq!(reports(&[], &["Read", "x*"]), ["no tool matches \"x*\"; `gantry tools` lists the tools"]);
        assert_eq!(reports(&["basic"], &[]).len(), 1, "a toolset without tools");
    }

    #[test]
    fn unknown_toolset_is_rejected() {
        let err = Selection::new(&["nodes".to_owned()], &[]).unwrap_err();
        assert!(err.to_string().contains("did you mean \"node\"? the toolsets are node, native"), "{err}");
    }
}
