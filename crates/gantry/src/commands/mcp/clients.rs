//! Where MCP clients keep their configuration, and how a server is entered in it. Text in, text out.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::places::Places;

/// The name under which clients know us.
const NAME: &str = "gantry";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Goose
    Goose,
    /// OpenCode
    Opencode,
}

/// What a client is told to start.
pub(super) struct Entry {
    pub(super) program: String,
    pub(super) args: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EditError {
    #[error("it is not valid {format}: {reason}")]
    Syntax { format: &'static str, reason: String },
    #[error("\"{key}\" in it is not a table of servers")]
    NoTable { key: &'static str },
}

impl McpClient {
    /// The client's own file of this user.
    pub(super) fn file(self, places: &Places) -> Option<PathBuf> {
        let directory =
            |name: &str| places.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = directory("HOME")?;
        let config = directory("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        Some(match self {
            McpClient::Claude => match directory("CLAUDE_CONFIG_DIR") {
                Some(folder) => folder.join(".claude.json"),
                None => home.join(".claude.json"),
            },
            McpClient::Codex => {
                directory("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("config.toml")
            }
            McpClient::Cursor => home.join(".cursor/mcp.json"),
            McpClient::Vscode if cfg!(target_os = "macos") => {
                home.join("Library/Application Support/Code/User/mcp.json")
            }
            McpClient::Vscode => config.join("Code/User/mcp.json"),
            McpClient::Goose => config.join("goose/config.yaml"),
            McpClient::Opencode => config.join("opencode/opencode.json"),
        })
    }

    /// The file with the entry, everything else as it was. The same again changes nothing.
    pub(super) fn edited(self, text: &str, entry: &Entry) -> Result<String, EditError> {
        let Entry { program, args } = entry;
        match self {
            McpClient::Claude | McpClient::Vscode => {
                let key = if self == McpClient::Claude { "mcpServers" } else { "servers" };
                in_json(text, key, json!({"type": "stdio", "command": program, "args": args}))
            }
            McpClient::Cursor => in_json(text, "mcpServers", json!({"command": program, "args": args})),
            McpClient::Opencode => {
                let command: Vec<&String> = std::iter::once(program).chain(args).collect();
                in_json(text, "mcp", json!({"type": "local", "command": command, "enabled": true}))
            }
            McpClient::Codex => in_toml(text, entry),
            McpClient::Goose => in_yaml(text, entry),
        }
    }
}

/// Other fields of an entry that is there already stay, such as an environment.
fn in_json(text: &str, key: &'static str, entry: Value) -> Result<String, EditError> {
    let mut root: Map<String, Value> = if text.trim().is_empty() {
        Map::new()
    } else {
        let syntax = |err: serde_json::Error| EditError::Syntax { format: "JSON", reason: err.to_string() };
        serde_json::from_str(text).map_err(syntax)?
    };
    let servers = root.entry(key).or_insert_with(|| json!({}));
    let servers = servers.as_object_mut().ok_or(EditError::NoTable { key })?;
    let ours = servers.entry(NAME).or_insert_with(|| json!({}));
    let before = root_text(text);
    match (ours.as_object_mut(), entry) {
        (Some(ours), Value::Object(entry)) => ours.extend(entry),
        (_, entry) => *ours = entry,
    }
    let root = Value::Object(root);
    if before.as_ref() == Some(&root) {
        return Ok(text.to_owned());
    }
    let pretty = serde_json::to_string_pretty(&root)
        .map_err(|err| EditError::Syntax { format: "JSON", reason: err.to_string() })?;
    Ok(format!("{pretty}\n"))
}

fn root_text(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn in_toml(text: &str, entry: &Entry) -> Result<String, EditError> {
    const KEY: &str = "mcp_servers";
    let syntax = |err: toml_edit::TomlError| EditError::Syntax { format: "TOML", reason: err.to_string() };
    let mut document: toml_edit::DocumentMut = text.parse().map_err(syntax)?;
    let servers = document.entry(KEY).or_insert_with(|| {
        let mut table = toml_edit::Table::new();
        table.set_implicit(true);
        toml_edit::Item::Table(table)
    });
    let servers = servers.as_table_like_mut().ok_or(EditError::NoTable { key: KEY })?;
    let ours = servers.entry(NAME).or_insert_with(|| toml_edit::Item::Table(toml_edit::Table::new()));
    let ours = ours.as_table_like_mut().ok_or(EditError::NoTable { key: KEY })?;
    let args: toml_edit::Array = entry.args.iter().collect();
    let same = ours.get("command").and_then(|command| command.as_str()) == Some(&entry.program)
        && ours.get("args").and_then(|args| args.as_array()).is_some_and(|old| {
            old.iter().map(|arg| arg.as_str()).eq(entry.args.iter().map(|arg| Some(arg.as_str())))
        });
    if same {
        return Ok(text.to_owned());
    }
    ours.insert("command", toml_edit::value(&entry.program));
    ours.insert("args", toml_edit::value(args));
    Ok(document.to_string())
}

/// Line by line: the file is the user's own, with comments, and the entry is one block beneath `extensions:`.
fn in_yaml(text: &str, entry: &Entry) -> Result<String, EditError> {
    const KEY: &str = "extensions";
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let args: Vec<String> = entry.args.iter().map(|arg| quoted(arg)).collect();
    let block = format!(
        "  {NAME}:\n    enabled: true\n    type: stdio\n    name: {NAME}\n    cmd: {}\n    args: [{}]\n    timeout: 300\n",
        quoted(&entry.program),
        args.join(", ")
    );
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some(top) = lines.iter().position(|line| line.trim_end().starts_with(&format!("{KEY}:"))) else {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{end}{KEY}:\n{block}"));
    };
    let value = lines[top].trim_end()[KEY.len() + 1..].trim();
    if !value.is_empty() && value != "{}" && !value.starts_with('#') {
        return Err(EditError::NoTable { key: KEY });
    }
    if lines[top].contains('\t') || lines.iter().any(|line| line.starts_with('\t')) {
        return Err(EditError::Syntax { format: "YAML", reason: "it is indented with tabs".into() });
    }
    let heading = format!("{KEY}:\n");
    if value == "{}" || !lines[top].ends_with('\n') {
        lines[top] = &heading;
    }
    let is_within = |line: &&str| line.starts_with(' ') || line.trim().is_empty() || line.starts_with('#');
    let end =
        lines[top + 1..].iter().position(|line| !is_within(line)).map_or(lines.len(), |at| top + 1 + at);
    // Other entries may stand further in than ours would: then ours stands as they do, or it would not be one of them.
    let indent = lines[top + 1..end]
        .iter()
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let indent = indent.map(|line| line.len() - line.trim_start().len()).next().unwrap_or(2);
    if indent != 2 {
        let reason = format!("its extensions are indented by {indent}; enter this by hand:\n{block}");
        return Err(EditError::Syntax { format: "YAML of the expected form", reason });
    }
    let ours = (top + 1..end).find(|at| lines[*at].trim_end() == format!("  {NAME}:"));
    let (from, to) = match ours {
        Some(from) => {
            let is_ours = |line: &&str| line.starts_with("   ") || line.trim().is_empty();
            let length = lines[from + 1..end].iter().take_while(|line| is_ours(line)).count();
            (from, from + 1 + length)
        }
        None => (top + 1, top + 1),
    };
    let (before, after) = (lines[..from].concat(), lines[to..].concat());
    Ok(format!("{before}{block}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { program: "/opt/gantry".into(), args: vec!["mcp".into(), "--read-only".into()] }
    }

    /// Entering it twice is entering it once.
    fn check(client: McpClient, text: &str) -> String {
        let edited = client.edited(text, &entry()).unwrap();
        assert_eq!(client.edited(&edited, &entry()).unwrap(), edited, "{client:?}");
        edited
    }

    #[test]
    fn json_keeps_what_else_is_there() {
        let text = r#"{"theme": "dark", "mcpServers": {"other": {"command": "x"}, "gantry": {"command": "old", "env": {"A": "b"}}}}"#;
        let edited: Value = serde_json::from_str(&check(McpClient::Claude, text)).unwrap();
        let expected = json!({
            "theme": "dark",
            "mcpServers": {
                "other": {"command": "x"},
                "gantry":
                    {"command": "/opt/gantry", "env": {"A": "b"}, "type": "stdio", "args": ["mcp", "--read-only"]},
            },
        });
        assert_eq!(edited, expected);
        for (client, key) in
            [(McpClient::Cursor, "mcpServers"), (McpClient::Vscode, "servers"), (McpClient::Opencode, "mcp")]
        {
            let edited: Value = serde_json::from_str(&check(client, "")).unwrap();
            assert!(edited[key]["gantry"].to_string().contains("/opt/gantry"), "{edited}");
        }
    }

    #[test]
    fn toml_keeps_comments() {
        let text = "# mine\nmodel = \"x\" # best\n\n[mcp_servers.other]\ncommand = \"y\"\n";
        let edited = check(McpClient::Codex, text);
        assert!(edited.starts_with(text), "{edited}");
        assert!(
            edited.contains(
                "[mcp_servers.gantry]\ncommand = \"/opt/gantry\"\nargs = [\"mcp\", \"--read-only\"]"
            )
        );
    }

    #[test]
    fn yaml_keeps_comments_and_other_blocks() {
        let block = "  gantry:\n    enabled: true\n    type: stdio\n    name: gantry\n    cmd: \"/opt/gantry\"\n    args: [\"mcp\", \"--read-only\"]\n    timeout: 300\n";
        assert_eq!(check(McpClient::Goose, ""), format!("extensions:\n{block}"));
        assert_eq!(check(McpClient::Goose, "extensions: {}\na: 1"), format!("extensions:\n{block}a: 1"));
        let text = "# mine\nextensions:\n  other:\n    enabled: true # yes\nmodel: x\n";
        let edited = check(McpClient::Goose, text);
        assert_eq!(edited, text.replace("extensions:\n", &format!("extensions:\n{block}")));
        let old = edited.replace("/opt/gantry", "/old/gantry");
        assert_eq!(McpClient::Goose.edited(&old, &entry()).unwrap(), edited);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        assert!(McpClient::Claude.edited("{ // comment\n}", &entry()).is_err());
        assert!(McpClient::Claude.edited("{\"mcpServers\": []}", &entry()).is_err());
        assert!(McpClient::Codex.edited("mcp_servers = 1", &entry()).is_err());
        assert!(McpClient::Goose.edited("extensions: [a]\n", &entry()).is_err());
        assert!(McpClient::Goose.edited("extensions:\n    a:\n        b: 1\n", &entry()).is_err());
    }
}
