//! Which tools a client is shown: a few by default, so that a model is never offered five ways to read a file.

use gantry_tool::{Property, Registry, RegistryError, ToolScope, Toolset, nearest};

use crate::backend::Names;

/// Reads what was too long to show: whoever is shown tools has it.
pub const RESULT_READ: &str = "result_read";

/// Reads files of the agent's workspace; resources and prompts are made of it.
pub(crate) const READ_FILE: &str = "gsv__ReadFile";

#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("unknown toolset {name:?}; {}there are {}", meant(name), known_toolsets())]
    Toolset { name: String },
    #[error(transparent)]
    Selector(#[from] RegistryError),
}

fn meant(name: &str) -> String {
    let near = nearest(name, Toolset::ALL.map(Toolset::name));
    near.first().map(|near| format!("did you mean {near:?}? ")).unwrap_or_default()
}

fn known_toolsets() -> String {
    Toolset::ALL.map(Toolset::name).join(", ")
}

/// What somebody chose to be shown.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Names, globs and toolsets; none means the default.
    chosen: Vec<String>,
    read_only: bool,
    names: Names,
}

impl Selection {
    /// Whole toolsets, and tools by name or glob. Nothing at all means the default.
    pub fn new(toolsets: &[String], tools: &[String]) -> Result<Selection, SelectionError> {
        if let Some(name) = toolsets.iter().find(|name| Toolset::from_name(name).is_none()) {
            return Err(SelectionError::Toolset { name: name.clone() });
        }
        let chosen: Vec<String> = toolsets.iter().chain(tools).cloned().collect();
        ToolScope::new(Some(&chosen), &[])?;
        Ok(Selection { chosen, ..Selection::default() })
    }

    /// For somebody whose tools are listed beneath, or not: who has a list and chose nothing is shown the list.
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

    /// The tools that are shown, and no others.
    pub fn scope(&self) -> Result<ToolScope, RegistryError> {
        let mut allow = match self.is_default() {
            true => vec![Property::OfferedToClients.selector()],
            false => self.chosen.clone(),
        };
        allow.push(RESULT_READ.to_owned());
        let scope = ToolScope::new(Some(&allow), &[])?;
        Ok(if self.read_only { scope.read_only() } else { scope })
    }

    /// What was chosen and is not there, each in words with the nearest names.
    pub fn unmatched(&self, registry: &Registry) -> Vec<String> {
        let missing = |chosen: &&String| {
            let scope = ToolScope::new(Some(std::slice::from_ref(*chosen)), &[]);
            scope.is_ok_and(|scope| registry.view(&scope).entries().is_empty())
        };
        let entries = registry.entries();
        let told = |chosen: &String| {
            let plain: String = chosen.chars().filter(|c| !"*?[]{}".contains(*c)).collect();
            match nearest(&plain, entries.iter().map(|tool| tool.name())).as_slice() {
                [] => format!("no tool is called {chosen:?}; `gantry tools` lists what there is"),
                near => format!("no tool is called {chosen:?}; did you mean {}?", near.join(", ")),
            }
        };
        self.chosen.iter().filter(missing).map(told).collect()
    }

    /// How many names, globs and toolsets were chosen.
    pub fn chosen(&self) -> usize {
        self.chosen.len()
    }

    /// What resources and prompts may be read with. Who chose tools by name is shown no more than was chosen.
    pub fn resource_scope(&self) -> Result<ToolScope, RegistryError> {
        let reading = ToolScope::new(Some(&[READ_FILE.to_owned(), RESULT_READ.to_owned()]), &[])?;
        Ok(if self.is_default() { reading } else { reading.within(self.scope()?) })
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::echo_tool;

    use super::*;

    fn shown(scope: &ToolScope) -> String {
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
    fn the_default_is_one_of_each() {
        let selection = Selection::default();
        assert_eq!(shown(&selection.scope().unwrap()), "local__Bash local__Read tool::web_fetch result_read");
        assert_eq!(shown(&selection.resource_scope().unwrap()), "gsv__ReadFile result_read");
        assert_eq!(shown(&selection.read_only().scope().unwrap()), "local__Read tool::web_fetch result_read");
    }

    #[test]
    fn what_is_chosen_is_shown_and_no_more() {
        assert_eq!(
            shown(&chosen(&["basic"], &["tool::file_*"]).scope().unwrap()),
            "tool::file_read read result_read"
        );
        let narrow = chosen(&[], &["Read"]);
        assert_eq!(shown(&narrow.scope().unwrap()), "local__Read result_read");
        assert_eq!(shown(&narrow.resource_scope().unwrap()), "result_read");
        assert_eq!(shown(&chosen(&["native"], &[]).resource_scope().unwrap()), "gsv__ReadFile result_read");
        let listed = Selection::default().for_listed(true);
        assert!(shown(&listed.scope().unwrap()).contains("tool::file_read"));
        assert!(!shown(&listed.read_only().scope().unwrap()).contains("Bash"));
        assert_eq!(
            shown(&narrow.for_listed(true).scope().unwrap()),
            "local__Read result_read",
            "what was chosen counts"
        );
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is_near() {
        let registry = Registry::default();
        registry.replace(echo_tool("local__Read", Toolset::Node));
        registry.replace(echo_tool("tool::web_fetch", Toolset::Guarded));
        let told = |toolsets: &[&str], tools: &[&str]| chosen(toolsets, tools).unmatched(&registry);
        assert_eq!(told(&["node"], &["Read", "tool__web_*", "local__*"]), Vec::<String>::new());
        assert_eq!(told(&[], &["Raed"]), ["no tool is called \"Raed\"; did you mean local__Read?"]);
        assert_eq!(
            told(&[], &["Read", "x*"]),
            ["no tool is called \"x*\"; `gantry tools` lists what there is"]
        );
        assert_eq!(told(&["basic"], &[]).len(), 1, "a set that has no tools here");
    }

    #[test]
    fn a_toolset_that_is_none_is_told() {
        let err = Selection::new(&["nodes".to_owned()], &[]).unwrap_err();
        assert!(err.to_string().contains("did you mean \"node\"? there are node, native"), "{err}");
    }
}
