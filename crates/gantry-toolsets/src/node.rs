//! The `node` toolset: a shell with sessions, and files by path, on a machine. Errors are
//! `{"error": …}`.

mod bash;
mod command_note;
mod edit;
mod glob;
mod grep;
mod paths;
mod process;
mod process_end;
mod read;
#[cfg(test)]
mod restarts;
mod sessions;
mod shell_run;
mod skipped;
mod write;

use std::sync::Arc;

use gantry_tool::Tool;

use crate::Machine;

pub use command_note::CommandNote;
pub use process_end::process_end;

/// A tool's name and constructor. `Bash` and `Process` share the sessions.
type ToolEntry = (&'static str, fn(&Arc<Machine>, &Arc<sessions::Sessions>) -> Tool);

const TOOLS: &[ToolEntry] = &[
    (bash::NAME, bash::tool),
    (process::NAME, process::tool),
    (read::NAME, |machine, _| read::tool(machine)),
    (write::NAME, |machine, _| write::tool(machine)),
    (edit::NAME, |machine, _| edit::tool(machine)),
    (glob::NAME, |machine, _| glob::tool(machine)),
    (grep::NAME, |machine, _| grep::tool(machine)),
];

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    let sessions = Arc::new(sessions::Sessions::default());
    TOOLS.iter().map(|(_, tool)| tool(machine, &sessions)).collect()
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn tools_report_the_capabilities_and_hints_of_the_seed() {
        let bench = Bench::new();
        let rows: Vec<_> = ["Bash", "Process", "Read", "Write", "Edit", "Glob", "Grep"]
            .into_iter()
            .map(|name| {
                let tool = bench.gate.registry().find(name).unwrap();
                assert_eq!(tool.name(), format!("local__{name}"));
                let capabilities: Vec<_> = tool.capability_ids().iter().map(|id| id.id()).collect();
                (name, capabilities.join(" "), tool.is_read_only(), tool.is_open_world())
            })
            .collect();
        let row = |name, id: &str, read_only, open| (name, id.to_owned(), read_only, open);
        assert_eq!(
            rows,
            [
                row("Bash", "shell.exec", false, true),
                row("Process", "shell.exec", false, true),
                row("Read", "filesystem.read", true, false),
                row("Write", "filesystem.write", false, false),
                row("Edit", "filesystem.edit", false, false),
                row("Glob", "filesystem.list", true, false),
                row("Grep", "text.search", true, false),
            ]
        );
    }
}
