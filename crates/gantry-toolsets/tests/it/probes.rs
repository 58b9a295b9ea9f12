//! Inputs with a path for every tool. Every new tool must be added to this list.

use std::path::Path;

use serde_json::{Value, json};

/// One way to pass a path to a tool.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    /// The input field that contains the path.
    pub(crate) field: &'static str,
    pub(crate) access: Access,
    pub(crate) build: fn(&str) -> Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads the file or the directory.
    Read,
    Write,
    /// The path is the working directory of a command.
    StartIn,
    /// The path is part of a command's text or arguments.
    Command,
}

impl Access {
    pub(crate) fn starts_a_command(self) -> bool {
        matches!(self, Access::StartIn | Access::Command)
    }
}

/// The content that every write tries to plant.
pub(crate) const PLANTED: &str = "planted-by-a-probe";

/// Reads and writes files of interest in a directory.
const LOOK_AROUND: &str = "cat secret token inner.txt; ls -a; echo planted-by-a-probe > planted-file";
/// A patch that does not match, whose error would show the content, and a patch that creates a
/// file.
const PATCH: &str = "@@ -1 +1 @@\n-no such line\n+planted-by-a-probe\n";
const NEW_FILE: &str = "--- /dev/null\n+++ b/planted-file\n@@ -0,0 +1 @@\n+planted-by-a-probe\n";

/// Returns all probes of a tool; empty for a tool that is not listed or takes no path.
pub(crate) fn probes(tool: &str) -> Vec<Probe> {
    use Access::{Command, Read, StartIn, Write};
    let probe = |field, access, build| Probe { field, access, build };
    let path = |access, build| Probe { field: "path", access, build };
    match tool {
        "local__Read" => vec![path(Read, |path| json!({"path": path}))],
        "local__Write" => vec![path(Write, |path| json!({"path": path, "content": PLANTED}))],
        "local__Edit" => vec![
            path(Write, |path| json!({"path": path, "oldString": "secret", "newString": PLANTED})),
            path(Read, |path| json!({"path": path, "oldString": "the secrets", "newString": PLANTED})),
        ],
        "local__Glob" => vec![path(Read, |path| json!({"path": path, "pattern": "**/*"}))],
        "local__Grep" => vec![path(Read, |path| json!({"path": path, "pattern": "secret.outside"}))],
        "local__Bash" => vec![
            probe("workdir", StartIn, |path| json!({"command": LOOK_AROUND, "workdir": path})),
            probe("command", Command, |path| json!({"command": on_path(path)})),
        ],
        "gsv__ReadFile" => vec![path(Read, |path| json!({"path": path}))],
        "gsv__WriteFile" => vec![path(Write, |path| json!({"path": path, "content": PLANTED}))],
        "gsv__EditFile" => vec![
            path(Write, |path| json!({"path": path, "oldString": "secret", "newString": PLANTED})),
            path(Read, |path| json!({"path": path, "oldString": "the secrets", "newString": PLANTED})),
        ],
        "gsv__DeleteFile" => vec![path(Write, |path| json!({"path": path}))],
        // This is a path in the configuration, not in the file system; an unknown one has no
        // effect.
        "gsv__ConfigGet" => vec![path(Read, |path| json!({"path": path}))],
        "gsv__Transfer" => vec![
            probe(
                "source",
                Read,
                |path| json!({"source": format!("gsv:{path}"), "destination": "gsv:taken"}),
            ),
            probe(
                "source",
                Read,
                |path| json!({"source": format!("local:{path}"), "destination": "gsv:taken"}),
            ),
            probe(
                "destination",
                Write,
                |path| json!({"source": "gsv:planted-file", "destination": format!("gsv:{path}")}),
            ),
        ],
        "tool::file_read" => vec![path(Read, |path| json!({"path": path}))],
        "tool::file_list" => vec![path(Read, |path| json!({"path": path, "recursive": true}))],
        "tool::file_write" => vec![path(Write, |path| json!({"path": path, "content": PLANTED}))],
        "tool::apply_patch" => vec![
            path(Read, |path| json!({"path": path, "patch": PATCH})),
            path(Write, |path| json!({"path": path, "patch": NEW_FILE})),
        ],
        "tool::shell_exec" => vec![
            probe("cwd", StartIn, |path| json!({"argv": ["cat", "secret", "token"], "cwd": path})),
            // Some of the paths are the command's own output, which it would read forever.
            probe("argv", Command, |path| json!({"argv": ["cat", path], "timeout": 2000})),
        ],
        "read" => vec![path(Read, |path| json!({"path": path}))],
        "write" => vec![
            path(Write, |path| json!({"path": path, "data": PLANTED})),
            path(Write, |path| json!({"path": path, "data": PLANTED, "start_line": 1, "end_line": 1})),
        ],
        "exec" => vec![
            probe("cwd", StartIn, |path| json!({"command": LOOK_AROUND, "cwd": path, "source_rc": false})),
            probe("command", Command, |path| json!({"command": on_path(path), "source_rc": false})),
        ],
        "bash" => vec![probe("command", Command, |path| json!({"command": on_path(path)}))],
        "read_file" => vec![path(Read, |path| json!({"path": path}))],
        "write_file" => vec![path(Write, |path| json!({"path": path, "content": PLANTED}))],
        "http_request" => vec![probe(
            "file",
            Read,
            // No server listens on this port.
            |path| json!({"url": "http://127.0.0.1:9/", "method": "POST", "file": path}),
        )],
        "batch_files" => vec![
            probe("directory", Read, |path| transform(path, true)),
            probe("directory", Write, |path| transform(path, false)),
            probe(
                "directory",
                Write,
                |path| json!({"pattern": "*", "directory": path, "operation": "rename", "rename_to": "$1-planted"}),
            ),
            probe(
                "directory",
                Write,
                |path| json!({"pattern": "*", "directory": path, "operation": "move", "destination": "taken-out"}),
            ),
            probe(
                "destination",
                Write,
                |path| json!({"pattern": "plain*", "directory": ".", "operation": "move", "destination": path}),
            ),
        ],
        _ => Vec::new(),
    }
}

fn transform(path: &str, dry_run: bool) -> Value {
    json!({"pattern": "*", "directory": path, "operation": "transform",
        "find": "secret", "replace": PLANTED, "dry_run": dry_run})
}

fn on_path(path: &str) -> String {
    let quoted = format!("'{}'", path.replace('\'', "'\\''"));
    format!("cat {quoted}; ls -a {quoted}; echo planted-by-a-probe > {quoted}")
}

/// Returns an input that the schema accepts and that has an effect in the workspace, if the tool
/// can have one.
pub(crate) fn valid_input(tool: &str, workspace: &Path) -> Value {
    let mut known = probes(tool);
    known.sort_by_key(|probe| probe.access != Access::Write);
    match (tool, known.first()) {
        ("local__Bash" | "bash" | "exec", _) => json!({"command": "echo planted-by-a-probe > planted-file"}),
        ("local__Process", _) => json!({"action": "list"}),
        ("gsv__LogsGet" | "gsv__SessionsList", _) => json!({}),
        ("gsv__Message", _) => json!({"text": "planted-by-a-probe"}),
        ("gsv__SessionSend", _) => json!({"sessionKey": "main", "message": "planted-by-a-probe"}),
        ("spawn_agent", _) => json!({"agents": [{"name": "probe", "task": "planted-by-a-probe"}]}),
        ("tool::agent_spawn", _) => json!({"template": "main", "message": "planted-by-a-probe"}),
        ("tool::agent_send", _) => {
            json!({"agentId": "main", "targetAgentId": "main", "message": "planted-by-a-probe"})
        }
        ("gsv__Transfer", _) => json!({"source": "gsv:plain", "destination": "gsv:planted-file"}),
        ("memory_store", _) => json!({"namespace": "knowledge", "content": "planted-by-a-probe"}),
        ("ask_user", _) => json!({"question": "planted-by-a-probe?"}),
        ("memory_recall", _) => json!({"namespace": "knowledge"}),
        ("api_setup", _) => json!({"action": "list"}),
        ("result_read", _) => json!({"handle": "none"}),
        ("gsv__Cron", _) => json!({"action": "add", "job": {
            "name": "planted-by-a-probe", "schedule": {"kind": "every", "everyMinutes": 1},
            "spec": {"mode": "task", "message": "planted-by-a-probe"},
        }}),
        ("run_pipeline", _) => json!({"steps": [
            {"id": "planted", "tool": "local__Bash", "input": {"command": "echo planted-by-a-probe > planted-file"}},
        ]}),
        ("plan_task", _) => json!({"summary": "planted-by-a-probe", "steps": ["planted-by-a-probe"]}),
        ("capture_process", _) => json!({"name": "planted-by-a-probe"}),
        ("promote_process", _) => json!({"process_id": "none"}),
        ("task_create", _) => json!({"title": "planted-by-a-probe", "schedule": "1h"}),
        ("task_update", _) => json!({"task_id": "none", "status": "completed"}),
        ("task_list", _) => json!({}),
        ("tool::web_fetch", _) => json!({"url": "http://cranes.invalid/"}),
        ("tool::web_search", _) => json!({"query": "gantry cranes"}),
        ("web_research", _) => json!({"action": "search", "query": "gantry cranes"}),
        (_, Some(probe)) if probe.field == "path" => {
            (probe.build)(&workspace.join("planted-file").display().to_string())
        }
        (_, Some(probe)) => (probe.build)(&workspace.display().to_string()),
        (name, None) => panic!("{name} has no input in probes.rs; add one"),
    }
}
