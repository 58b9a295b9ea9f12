//! `gantry.toml`: the list of sections. `config/declare.rs` makes the type from it, `config/layers.rs` combines the
//! file with environment and command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_domain::ConfigSection;
use gantry_tool::{DEFAULT_MAX_MCP_RESULT_CHARS, DEFAULT_MAX_RESULT_CHARS, Masker, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod agents;
mod audit;
#[macro_use]
mod declare;
mod egress;
mod gateway;
mod isolation;
mod layers;
mod log;
mod mcp_servers;
mod models;
mod names;
mod node;
mod policy;
mod redacted_errors;
mod roles;
mod shell;
mod storage;
mod web;
mod workers;

pub(crate) use agents::{AgentConfig, SessionConfig};
pub(crate) use audit::AuditConfig;
pub(crate) use egress::EgressConfig;
pub(crate) use gateway::{GatewayConfig, TlsMode};
pub(crate) use isolation::IsolationConfig;
pub(crate) use layers::{ConfigError, Layers, Save, get};
pub(crate) use log::{LogConfig, LogLevel};
pub(crate) use mcp_servers::McpServerConfig;
pub(crate) use models::{ModelsConfig, StoredSecret};
pub(crate) use node::NodeConfig;
pub(crate) use policy::{PolicyConfig, RuleConfig};
pub(crate) use roles::RoleConfig;
pub(crate) use shell::ShellConfig;
pub(crate) use storage::StorageConfig;
pub(crate) use web::WebConfig;
pub(crate) use workers::WorkersConfig;

config! {
    /// Results longer than this many characters are kept behind a handle in the agent loop.
    max_tool_result_chars: usize = DEFAULT_MAX_RESULT_CHARS,
    mcp: McpConfig,
    shell: ShellConfig,
    workers: WorkersConfig,
    egress: EgressConfig,
    isolation: IsolationConfig,
    policy: PolicyConfig,
    node: NodeConfig,
    gateway: GatewayConfig,
    storage: StorageConfig,
    audit: AuditConfig,
    log: LogConfig,
    web: WebConfig,
    models: ModelsConfig,
    session: SessionConfig,
    /// The user's time zone, such as `Europe/Berlin`. The default is the time zone of the machine.
    user_timezone: Option<String> = None,
    /// Servers of the Model Context Protocol, by name.
    mcp_servers: BTreeMap<String, McpServerConfig> = BTreeMap::new(),
    /// Roles of child agents by name, in addition to researcher, creator, operator and collector.
    roles: BTreeMap<String, RoleConfig> = BTreeMap::new(),
    /// Agents by name.
    agents: BTreeMap<String, AgentConfig> = BTreeMap::new(),
    /// Schedules, tasks and pipelines.
    flow: gantry_flow::FlowConfig,
    tasks: gantry_flow::TasksConfig,
    /// Accounts of chat services.
    channels: gantry_channels::ChannelsConfig,
    google: gantry_google::GoogleConfig,
    #[cfg(feature = "gantry-example")] example: gantry_example::ExampleConfig,
}

impl Config {
    /// Checks what the types cannot express: rules parse, selectors exist, paths are absolute.
    fn check(&self) -> Result<(), ConfigError> {
        self.policy.build_rules()?;
        let sections = self.sections().into_iter();
        let mut violations: Vec<Violation> =
            sections.flat_map(|(key, section)| section.violations(&key)).collect();
        for (name, server) in &self.mcp_servers {
            violations.extend(server.violations(name));
        }
        for (id, agent) in &self.agents {
            violations.extend(agent.violations(&format!("agents.{id}")));
            violations.extend(self.models.unknown(&format!("agents.{id}.model"), agent.model()));
            for other in agent.messages.iter().flatten() {
                let known = self.agents.keys().map(String::as_str).chain(["main"]);
                let path = format!("agents.{id}.messages");
                violations
                    .extend(names::not_configured(other, known).map(|message| Violation { path, message }));
            }
            let path = format!("agents.{id}");
            violations.extend(names::no_agent(id).map(|message| Violation { path, message }));
        }
        for (id, role) in &self.roles {
            violations.extend(role.violations(&format!("roles.{id}")));
            violations.extend(self.models.unknown(&format!("roles.{id}.model"), role.model()));
        }
        if let Some(zone) = &self.user_timezone
            && let Err(err) = jiff::tz::TimeZone::get(zone)
        {
            violations.push(Violation { path: "userTimezone".into(), message: err.to_string() });
        }
        if violations.is_empty() { Ok(()) } else { Err(ConfigError::Invalid { violations }) }
    }

    /// Replaces `~` by the home directory and links by their targets, so that policy compares real paths.
    pub(crate) fn resolve_paths(&mut self, resolve: impl Fn(&Path) -> PathBuf) {
        let workspaces = self.agents.values_mut().filter_map(|agent| agent.workspace.as_mut());
        let servers = self.mcp_servers.values_mut().filter_map(|server| server.cwd.as_mut());
        for path in workspaces.chain(servers) {
            *path = resolve(path);
        }
        for (_, section) in self.sections_mut() {
            section.paths_mut().into_iter().for_each(|path| *path = resolve(path));
        }
    }

    /// Settings that are valid but probably a mistake.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let agents = self
            .agents
            .iter()
            .filter_map(|(id, agent)| Some((format!("agents.{id}.isolation"), agent.isolation.as_ref()?)));
        let agents = agents.flat_map(|(key, isolation)| isolation.warnings(&key));
        self.sections().into_iter().flat_map(|(key, section)| section.warnings(&key)).chain(agents).collect()
    }

    /// Configured values that are masked everywhere: tokens and keys of all sections, variables of commands with
    /// secret-looking names, keys in the addresses and arguments of MCP servers.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = String> {
        let agents = self.agents.values().filter_map(|agent| agent.isolation.as_ref());
        let agents = agents.flat_map(IsolationConfig::secrets);
        let sections = self.sections().into_iter().flat_map(|(_, section)| section.secrets());
        let servers = self.mcp_servers.values().flat_map(McpServerConfig::secrets);
        sections.chain(agents).chain(servers)
    }

    /// The whole configuration with masked secrets, for people and agents.
    pub(crate) fn masked(&self) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(self)?;
        let masker = Masker::new(self.secrets());
        // Users choose these names. A server that is called "auth" is not a secret.
        let named = ["mcpServers", "agents"].map(|key| (key, value[key].take()));
        masker.mask_names_and_values(&mut value);
        for (key, mut entries) in named {
            entries.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut).for_each(|entry| {
                masker.mask_names_and_values(entry);
            });
            value[key] = entries;
        }
        Ok(value)
    }
}

/// Whether a running gateway needs a restart to apply a change of this key.
pub(crate) fn needs_restart(key: &str) -> bool {
    let section = key.split('.').next().unwrap_or_default();
    // Changes of these keys outside sections are applied while the gateway runs (`live_config.rs`).
    const LIVE: [&str; 4] = ["mcpServers", "agents", "roles", "maxToolResultChars"];
    match Config::default().sections().iter().find(|(key, _)| key == section) {
        Some((_, found)) => found.needs_restart(),
        None => !LIVE.contains(&section),
    }
}

/// Keys that differ and need a restart of the gateway, such as `web.allowedHosts`.
pub(crate) fn changes_that_need_restart(before: &Config, now: &Config) -> Vec<String> {
    let [before, now] = [before, now].map(|config| serde_json::to_value(config).unwrap_or_default());
    let mut keys = Vec::new();
    differing("", &before, &now, &mut keys);
    keys.retain(|key| needs_restart(key));
    keys
}

fn differing(path: &str, before: &Value, now: &Value, keys: &mut Vec<String>) {
    if before == now {
        return;
    }
    let (Some(old), Some(new)) = (before.as_object(), now.as_object()) else {
        return keys.push(path.to_owned());
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    for key in new.keys().chain(gone) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        differing(&path, before.get(key).unwrap_or(&Value::Null), now.get(key).unwrap_or(&Value::Null), keys);
    }
}

/// Whether a path does not depend on the current directory.
fn is_placed(path: &Path) -> bool {
    path.is_absolute() || path.starts_with("~")
}

/// Paths that depend on the current directory.
fn misplaced<'a>(key: &str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Violation> {
    let relative = paths.into_iter().filter(|path| !is_placed(path));
    let violation = |path: &PathBuf| Violation {
        path: key.to_owned(),
        message: format!("{} must be absolute, or begin with ~/", path.display()),
    };
    relative.map(violation).collect()
}

/// What MCP clients get.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct McpConfig {
    /// Results longer than this many characters are kept behind a handle.
    pub(crate) max_tool_result_chars: usize,
}

impl Default for McpConfig {
    fn default() -> Self {
        McpConfig { max_tool_result_chars: DEFAULT_MAX_MCP_RESULT_CHARS }
    }
}

impl ConfigSection for McpConfig {
    fn needs_restart(&self) -> bool {
        false
    }
}

impl ConfigSection for AuditConfig {}
impl ConfigSection for LogConfig {}

impl ConfigSection for SessionConfig {
    fn needs_restart(&self) -> bool {
        false
    }
}

impl ConfigSection for NodeConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        misplaced(&format!("{at}.tokenFile"), &self.token_file)
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.token_file.iter_mut().collect()
    }

    /// The gateway does not read this section. `gantry node` reads it when it starts.
    fn needs_restart(&self) -> bool {
        false
    }

    fn secrets(&self) -> Vec<String> {
        self.token.iter().cloned().collect()
    }
}
