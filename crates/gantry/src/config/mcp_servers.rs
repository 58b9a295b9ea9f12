//! `[mcpServers.NAME]` configures MCP servers whose tools are used here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gantry_mcp::client::{AddressSpec, Place, ProgramSpec, ServerSpec, Variable};
use gantry_net::{HeaderName, Url, check_address};
use gantry_protocol::check_node_id;
use gantry_store::references;
use gantry_tool::{Masker, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const LOCAL: &str = "local";
const TIMEOUT_SECONDS: u64 = 300;
const IDLE_SECONDS: u64 = 300;
const SECRET: &str = "secret:";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct McpServerConfig {
    /// The program to start, by name or path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    /// Additional variables of the program: `NAME` from Gantry's own environment, or `NAME=secret:SECRET`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// The program's working directory; the home directory when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<PathBuf>,
    /// `false` lets the program also access Gantry's own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confine: Option<bool>,
    /// The server's URL, in place of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Headers of each request, with `secret:NAME` for secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    /// The tools to use; all when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<String>>,
    /// Timeout of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_seconds: Option<u64>,
    /// How long the server keeps running without a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_seconds: Option<u64>,
    /// Trust the server's annotations, such as that a tool is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) trust_annotations: bool,
}

impl McpServerConfig {
    pub(crate) fn violations(&self, name: &str) -> Vec<Violation> {
        let path = format!("mcpServers.{name}");
        let mut violations: Vec<Violation> = Vec::new();
        let mut wrong = |field: &str, message: String| {
            let path = if field.is_empty() { path.clone() } else { format!("{path}.{field}") };
            violations.push(Violation { path, message });
        };
        if let Err(err) = check_node_id(name) {
            wrong("", err.to_string().replace("node id", "name of an MCP server"));
        } else if name == LOCAL {
            wrong("", "\"local\" is reserved for this machine; choose another name".to_owned());
        }
        match (&self.command, &self.url) {
            (None, None) => wrong("", "set a command or a url".to_owned()),
            (Some(_), Some(_)) => wrong("", "set a command or a url, not both".to_owned()),
            (Some(command), None) if command.trim().is_empty() => {
                wrong("command", "must not be empty".to_owned())
            }
            (Some(_), None) if !self.headers.is_empty() => {
                wrong("headers", "headers are only for a url; use env for a program".to_owned());
            }
            (None, Some(_)) if !self.env.is_empty() || !self.args.is_empty() || self.cwd.is_some() => {
                wrong("url", "args, env and cwd are only for a command".to_owned());
            }
            _ => {}
        }
        if let Some(url) = &self.url {
            match Url::parse(url).map_err(|err| err.to_string()) {
                Err(reason) => wrong("url", reason),
                Ok(mut url) => {
                    // Errors quote the URL, and URLs may contain tokens.
                    url.set_query(None);
                    url.set_fragment(None);
                    if let Err(err) = check_address(&url) {
                        wrong("url", err.to_string());
                    }
                }
            }
        }
        for entry in &self.env {
            if let Err(why) = variable(entry) {
                wrong("env", why);
            }
        }
        for (header, value) in &self.headers {
            let sensitive = Masker::is_secret_name(header)
                || matches!(header.to_ascii_lowercase().as_str(), "authorization" | "cookie");
            if HeaderName::try_from(header.as_str()).is_err() {
                wrong("headers", format!("{header:?} is not a valid header name"));
            } else if sensitive && references(value).next().is_none() {
                wrong(
                    "headers",
                    format!("{header} must be a reference such as secret:NAME, never the value itself"),
                );
            }
        }
        if let Some(cwd) = self.cwd.as_ref().filter(|cwd| !super::is_placed(cwd)) {
            wrong("cwd", format!("{} must be absolute, or start with ~/", cwd.display()));
        }
        for (field, value) in [("timeoutSeconds", self.timeout_seconds), ("idleSeconds", self.idle_seconds)] {
            if value.is_some_and(|value| !(1..=86_400).contains(&value)) {
                wrong(field, "must be between 1 and 86400 seconds".to_owned());
            }
        }
        violations
    }

    /// Returns values in the URL and the arguments whose names look secret: `?key=…`, `--token …`, `--token=…`.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let url = self.url.as_ref().and_then(|url| Url::parse(url).ok());
        let parameters =
            url.iter().flat_map(Url::query_pairs).filter(|(name, _)| Masker::is_secret_name(name));
        let mut secrets: Vec<String> = parameters.map(|(_, value)| value.into_owned()).collect();
        let mut next_is_secret = false;
        for arg in &self.args {
            let (name, value) =
                arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
            let is_secret = name.starts_with('-') && Masker::is_secret_name(name);
            match value {
                Some(value) if is_secret => secrets.push(value.to_owned()),
                None if next_is_secret && !name.starts_with('-') => secrets.push(arg.clone()),
                _ => {}
            }
            next_is_secret = is_secret && value.is_none();
        }
        secrets
    }

    /// Returns `None` if the entry is invalid, which was reported when the configuration was read.
    pub(crate) fn spec(&self, name: &str, home: &std::path::Path) -> Option<ServerSpec> {
        let place = match (&self.command, &self.url) {
            (Some(command), _) => Place::Program(ProgramSpec {
                program: command.clone(),
                args: self.args.clone(),
                env: self.env.iter().filter_map(|entry| variable(entry).ok()).collect(),
                cwd: self.cwd.clone().unwrap_or_else(|| home.to_owned()),
                confined: self.confine != Some(false),
            }),
            (None, Some(url)) => Place::Address(AddressSpec {
                url: Url::parse(url).ok()?,
                headers: self
                    .headers
                    .iter()
                    .filter_map(|(name, value)| {
                        Some((HeaderName::try_from(name.as_str()).ok()?, value.clone()))
                    })
                    .collect(),
            }),
            (None, None) => return None,
        };
        Some(ServerSpec {
            name: name.to_owned(),
            place,
            tools: self.tools.clone(),
            timeout: Duration::from_secs(self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS)),
            idle: Duration::from_secs(self.idle_seconds.unwrap_or(IDLE_SECONDS)),
            trust_annotations: self.trust_annotations,
        })
    }
}

fn variable(entry: &str) -> Result<Variable, String> {
    let (name, value) = entry.split_once('=').map_or((entry, None), |(name, value)| (name, Some(value)));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{name:?} is not a valid variable name"));
    }
    if name.starts_with("GANTRY_") {
        return Err(format!("{name} is reserved for Gantry"));
    }
    match value.map(|value| value.strip_prefix(SECRET)) {
        None => Ok(Variable::Inherited(name.to_owned())),
        Some(Some(secret)) if !secret.is_empty() => {
            Ok(Variable::Secret { name: name.to_owned(), secret: secret.to_owned() })
        }
        Some(_) => Err(format!("{name} must not have a value here; write {name}, or {name}=secret:SECRET")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(name: &str, config: Value, expected: Option<&str>) {
        let config: McpServerConfig = serde_json::from_value(config).unwrap();
        let errors: Vec<String> = config.violations(name).iter().map(ToString::to_string).collect();
        match expected {
            None => assert_eq!(errors, Vec::<String>::new()),
            Some(part) => assert!(errors.iter().any(|error| error.contains(part)), "{errors:?} lacks {part}"),
        }
    }

    #[test]
    fn keys_in_addresses_and_arguments_are_secrets() {
        let of = |config: Value| serde_json::from_value::<McpServerConfig>(config).unwrap().secrets();
        assert_eq!(
            of(json!({"url": "https://a.example/mcp?api_key=abc%20d&page=2&token=t"})),
            ["abc d", "t"]
        );
        let args = ["--port", "80", "--api-key", "k1", "--token=k2", "--key", "--verbose", "path=token"];
        assert_eq!(of(json!({"command": "x", "args": args})), ["k1", "k2"]);
    }

    #[test]
    fn valid_entries_pass_and_invalid_entries_are_reported() {
        check("git-hub", json!({"command": "npx", "args": ["x"], "env": ["A", "B=secret:C"]}), None);
        check(
            "a",
            json!({"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer secret:A"}}),
            None,
        );
        check("a", json!({}), Some("a command or a url"));
        check("a", json!({"command": "x", "url": "https://a.example"}), Some("not both"));
        check("a", json!({"url": "ftp://a.example"}), Some("only http and https"));
        check("a", json!({"url": "https://u:p@a.example"}), Some("credentials"));
        check(
            "a",
            json!({"url": "https://a.example", "headers": {"Authorization": "Bearer abc"}}),
            Some("never the value"),
        );
        check(
            "a",
            json!({"url": "https://a.example", "headers": {"X-Api-Key": "abc"}}),
            Some("never the value"),
        );
        check("a", json!({"command": "x", "env": ["TOKEN=abc"]}), Some("must not have a value here"));
        check("a", json!({"command": "x", "env": ["GANTRY_TOKEN"]}), Some("reserved for Gantry"));
        check("a", json!({"command": "x", "env": ["9A"]}), Some("not a valid variable name"));
        check("a", json!({"command": "x", "cwd": "here"}), Some("must be absolute"));
        check("a", json!({"command": "x", "timeoutSeconds": 0}), Some("between 1 and 86400"));
        for name in ["", "A", "a_b", "a__b", "gsv", "tool", "local", "a:b", "-a"] {
            check(name, json!({"command": "x"}), Some("mcpServers"));
        }
    }
}
