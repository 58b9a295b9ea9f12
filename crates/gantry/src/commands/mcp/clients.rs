//! Knows where MCP clients keep their configuration and adds a server to it. Pure functions from text to text.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::goose;
use crate::environment::Environment;

/// The name of our entry in clients' configurations.
pub(super) const NAME: &str = "gantry";

/// Fields that only entries of servers with a URL have.
const AT_ADDRESSES: [&str; 10] = [
    "url",
    "serverUrl",
    "httpUrl",
    "uri",
    "headers",
    "oauth",
    "bearer_token_env_var",
    "bearer_token",
    "http_headers",
    "env_http_headers",
];

/// The byte order mark.
const MARK: char = '\u{feff}';

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

/// The program and arguments that a client starts.
pub(super) struct Entry {
    pub(super) program: String,
    pub(super) args: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EditError {
    #[error("the file is not valid {format}: {reason}")]
    Syntax { format: &'static str, reason: String },
    #[error("\"{key}\" in the file must be a table of servers")]
    NoTable { key: &'static str },
    #[error("rewriting the file would change more than the entry: it has unusual numbers or duplicate keys")]
    Harm,
    #[error("this form of YAML cannot be edited safely: {0}")]
    Form(&'static str),
}

impl McpClient {
    /// Returns the client's configuration file of this user.
    pub(super) fn file(self, environment: &Environment) -> Option<PathBuf> {
        let directory =
            |name: &str| environment.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
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

    /// Returns the entry alone, for files that the user must edit.
    pub(super) fn snippet(self, entry: &Entry) -> String {
        self.edited("", entry).unwrap_or_default()
    }

    /// Returns the file with the entry and everything else unchanged. A second edit changes nothing.
    pub(super) fn edited(self, text: &str, entry: &Entry) -> Result<String, EditError> {
        // Some editors write a byte order mark, which JSON parsers reject.
        if let Some(text) = text.strip_prefix(MARK) {
            return Ok(format!("{MARK}{}", self.edited(text, entry)?));
        }
        // For mixed line endings the majority decides, because the TOML editor keeps only one kind.
        if 2 * text.matches("\r\n").count() > text.matches('\n').count() {
            let edited = self.edited(&text.replace("\r\n", "\n"), entry)?;
            return Ok(edited.replace('\n', "\r\n"));
        }
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
            McpClient::Goose => goose::edited(text, entry),
        }
    }
}

/// Keeps other fields of an existing entry, such as its environment. An entry of another type is replaced.
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
    let other_kind = AT_ADDRESSES.iter().any(|field| ours.get(field).is_some())
        || ours.get("type").is_some_and(|kind| entry.get("type").map_or(kind != "stdio", |own| own != kind));
    match (ours.as_object_mut(), entry) {
        (Some(ours), Value::Object(entry)) if !other_kind => ours.extend(entry),
        (_, entry) => *ours = entry,
    }
    let root = Value::Object(root);
    if before.as_ref() == Some(&root) {
        return Ok(text.to_owned());
    }
    if before.is_some_and(|before| without_words(text) != without_words(&before.to_string())) {
        return Err(EditError::Harm);
    }
    indented(&root, indentation(text))
        .map(|written| if text.is_empty() || text.ends_with('\n') { written + "\n" } else { written })
        .map_err(|err| EditError::Syntax { format: "JSON", reason: err.to_string() })
}

/// Returns the indentation of the first field.
fn indentation(text: &str) -> &str {
    let first = text.lines().skip(1).find(|line| !line.trim().is_empty());
    let indent = first.map_or("", |line| &line[..line.len() - line.trim_start().len()]);
    if indent.is_empty() || indent.len() > 8 { "  " } else { indent }
}

fn indented(value: &Value, indent: &str) -> serde_json::Result<String> {
    let mut written = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut written, form))?;
    // Both the JSON and the indentation are UTF-8.
    Ok(String::from_utf8(written).unwrap_or_default())
}

/// Removes whitespace and the content of strings from JSON. The rest shows how numbers are written and how many keys
/// there are.
fn without_words(text: &str) -> String {
    let (mut left, mut quoted, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        match (quoted, c) {
            (true, _) if escaped => escaped = false,
            (true, '\\') => escaped = true,
            (_, '"') => {
                quoted = !quoted;
                left.push(c);
            }
            (false, c) if !c.is_whitespace() => left.push(c),
            _ => {}
        }
    }
    left
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
    if AT_ADDRESSES.iter().any(|field| ours.contains_key(field)) {
        ours.clear();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { program: "/opt/gantry".into(), args: vec!["mcp".into(), "--read-only".into()] }
    }

    /// Edits a file and checks that a second edit changes nothing.
    fn check(client: McpClient, text: &str) -> String {
        let edited = client.edited(text, &entry()).unwrap();
        assert_eq!(client.edited(&edited, &entry()).unwrap(), edited, "{client:?}");
        edited
    }

    #[test]
    fn json_keeps_other_entries() {
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
    fn byte_order_mark_is_kept() {
        let edited = check(McpClient::Claude, "\u{feff}{\"theme\": \"dark\"}");
        assert!(edited.starts_with("\u{feff}{") && edited.contains("/opt/gantry") && edited.contains("dark"));
    }

    #[test]
    fn line_endings_and_indentation_are_kept() {
        let texts = [
            (McpClient::Claude, "{\n\t\"theme\": \"dark\"\n}"),
            (McpClient::Vscode, "{\n    \"servers\": {}\n}\n"),
            (McpClient::Codex, "# mine\nmodel = \"x\"\ntext = \"\"\"\na\nb\"\"\"\n"),
            (McpClient::Goose, "# mine\nextensions:\n  other:\n    enabled: true\nmodel: x\n"),
        ];
        for (client, text) in texts {
            let plain = check(client, text);
            let edited = check(client, &text.replace('\n', "\r\n"));
            assert_eq!(edited, plain.replace('\n', "\r\n"), "{client:?}");
            assert_eq!(plain.ends_with('\n'), text.ends_with('\n'), "{client:?}");
        }
        let tabs = check(McpClient::Claude, texts[0].1);
        assert!(tabs.starts_with("{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t\"gantry\""), "{tabs}");
    }

    #[test]
    fn entry_of_another_type_is_replaced() {
        let text = r#"{"mcpServers": {"gantry": {"type": "http", "url": "http://x", "headers": {"A": "b"}, "env": {}}}}"#;
        for client in [McpClient::Claude, McpClient::Cursor] {
            let edited: Value = serde_json::from_str(&check(client, text)).unwrap();
            let fresh: Value = serde_json::from_str(&check(client, "")).unwrap();
            assert_eq!(edited, fresh, "{client:?}");
        }
        let remote = r#"{"mcp": {"gantry": {"type": "remote", "enabled": false}}}"#;
        let edited: Value = serde_json::from_str(&check(McpClient::Opencode, remote)).unwrap();
        assert_eq!(edited["mcp"]["gantry"]["type"], "local");
        let text = "a = 1 # mine\n[mcp_servers.gantry]\nurl = \"http://x\"\nbearer_token_env_var = \"T\"\n";
        let edited = check(McpClient::Codex, text);
        assert!(edited.starts_with("a = 1 # mine\n") && edited.contains("command = "), "{edited}");
        assert!(!edited.contains("url") && !edited.contains("bearer"), "{edited}");
    }

    #[test]
    fn json_that_cannot_be_rewritten_exactly_is_rejected() {
        for text in [
            r#"{"id": 12345678901234567890123}"#,
            r#"{"share": 0.10000000000000000001}"#,
            r#"{"a": 1, "a": 2}"#,
            r#"{"deep": [{"a": {"b": "x", "b": "y"}}]}"#,
            r#"{"n": 1e5}"#,
        ] {
            let refused = McpClient::Claude.edited(text, &entry()).map_err(|err| err.to_string());
            assert!(refused.is_err_and(|why| why.contains("would change more")), "{text}");
        }
        check(McpClient::Claude, r#"{"a": 1.5, "b": [-3, true, null, "12345678901234567890123 \" \\"]}"#);
    }

    #[test]
    fn invalid_files_are_rejected() {
        assert!(McpClient::Claude.edited("{ // comment\n}", &entry()).is_err());
        assert!(McpClient::Claude.edited("{\"mcpServers\": []}", &entry()).is_err());
        assert!(McpClient::Codex.edited("mcp_servers = 1", &entry()).is_err());
    }
}
