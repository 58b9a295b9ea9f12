//! `gantry.toml`: what can be configured. How the layers come together is `config/layers.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_domain::ConfigSection;
use gantry_tool::{
    Condition, DEFAULT_MAX_MCP_RESULT_CHARS, DEFAULT_MAX_RESULT_CHARS, Decision, Masker, Operator,
    PrincipalKind, Rule, RuleError, Touching, Violation,
};
use gantry_toolsets::{SandboxMode, ShellSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod agents;
mod audit;
mod isolation;
mod layers;
mod log;
mod mcp_servers;
mod models;
mod names;
mod node;
mod redacted_errors;
mod roles;
mod storage;
mod web;

pub(crate) use agents::{AgentConfig, SessionConfig};
pub(crate) use audit::AuditConfig;
pub(crate) use isolation::IsolationConfig;
pub(crate) use layers::{ConfigError, Layers, get};
pub(crate) use log::{LogConfig, LogLevel};
pub(crate) use mcp_servers::McpServerConfig;
pub(crate) use models::{ModelsConfig, StoredSecret};
pub(crate) use node::NodeConfig;
pub(crate) use roles::RoleConfig;
pub(crate) use storage::StorageConfig;
pub(crate) use web::WebConfig;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Config {
    /// Results longer than this many characters are kept behind a handle in the agent loop.
    pub(crate) max_tool_result_chars: usize,
    pub(crate) mcp: McpConfig,
    pub(crate) shell: ShellConfig,
    pub(crate) isolation: IsolationConfig,
    pub(crate) policy: PolicyConfig,
    pub(crate) node: NodeConfig,
    pub(crate) gateway: GatewayConfig,
    pub(crate) storage: StorageConfig,
    pub(crate) audit: AuditConfig,
    pub(crate) log: LogConfig,
    pub(crate) web: WebConfig,
    pub(crate) models: ModelsConfig,
    pub(crate) session: SessionConfig,
    /// The user's time zone, such as `Europe/Berlin`; the machine's when left out.
    pub(crate) user_timezone: Option<String>,
    /// Servers of the Model Context Protocol by name.
    pub(crate) mcp_servers: BTreeMap<String, McpServerConfig>,
    /// Roles of child agents by name, beside researcher, creator, operator and collector.
    pub(crate) roles: BTreeMap<String, RoleConfig>,
    /// Agents by name.
    pub(crate) agents: BTreeMap<String, AgentConfig>,
    #[cfg(feature = "gantry-example")]
    pub(crate) example: gantry_example::ExampleConfig,
}

/// Lists the sections that describe themselves. A new one is a field above, a default below and a line here.
macro_rules! sections {
    ($config:ident, $($reference:tt)+) => {
        vec![
            ("shell", $($reference)+ $config.shell),
            ("isolation", $($reference)+ $config.isolation),
            ("policy", $($reference)+ $config.policy),
            ("node", $($reference)+ $config.node),
            ("storage", $($reference)+ $config.storage),
            ("web", $($reference)+ $config.web),
            ("models", $($reference)+ $config.models),
            #[cfg(feature = "gantry-example")]
            ("example", $($reference)+ $config.example),
        ]
    };
}

impl Config {
    fn sections(&self) -> Vec<(&'static str, &dyn ConfigSection)> {
        sections!(self, &)
    }

    fn sections_mut(&mut self) -> Vec<(&'static str, &mut dyn ConfigSection)> {
        sections!(self, &mut)
    }

    /// What the types cannot say: rules that parse, selectors that mean something, paths that do not depend on where
    /// one stands.
    fn check(&self) -> Result<(), ConfigError> {
        self.policy.build_rules()?;
        let sections = self.sections().into_iter();
        let mut violations: Vec<Violation> =
            sections.flat_map(|(key, section)| section.violations(key)).collect();
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

    /// Puts the home in place of `~` and real paths in place of links, so that what is configured is what is compared.
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

    /// What is configured, but hardly meant.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let agents = self
            .agents
            .iter()
            .filter_map(|(id, agent)| Some((format!("agents.{id}.isolation"), agent.isolation.as_ref()?)));
        let agents = agents.flat_map(|(key, isolation)| isolation.warnings(&key));
        self.sections().into_iter().flat_map(|(key, section)| section.warnings(key)).chain(agents).collect()
    }

    /// Configured values that must not be shown: the node's token, keys of the store, of search and model providers, variables
    /// of commands with secret-looking names, keys in addresses and arguments of MCP servers.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = String> {
        let agents = self.agents.values().filter_map(|agent| agent.isolation.as_ref());
        let agents = agents.flat_map(IsolationConfig::secrets);
        let sections = self.sections().into_iter().flat_map(|(_, section)| section.secrets());
        let servers = self.mcp_servers.values().flat_map(McpServerConfig::secrets);
        sections.chain(agents).chain(servers)
    }

    /// Everything that is configured, for people and agents to see. Masked as a whole, so no path leads around the mask.
    pub(crate) fn masked(&self) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(self)?;
        let masker = Masker::new(self.secrets());
        // Users choose these names, and one who calls a server "auth" has no secret of that name.
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

/// Sections that a running gateway reads again when the file changes.
const RELOADED: [&str; 2] = ["mcpServers", "models"];

/// Whether a running gateway takes up a changed key by itself, or does not read it at all.
pub(crate) fn counts_at_once(key: &str) -> bool {
    let section = key.split('.').next().unwrap_or_default();
    section == "node" || RELOADED.contains(&section)
}

/// Keys that differ and that a gateway reads at its start alone, such as `web.allowedHosts`.
pub(crate) fn read_at_start(before: &Config, now: &Config) -> Vec<String> {
    let [before, now] = [before, now].map(|config| serde_json::to_value(config).unwrap_or_default());
    let mut keys = Vec::new();
    differing("", &before, &now, &mut keys);
    keys.retain(|key| !counts_at_once(key));
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

/// Whether a path means the same wherever one stands.
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

impl Default for Config {
    fn default() -> Self {
        Config {
            max_tool_result_chars: DEFAULT_MAX_RESULT_CHARS,
            mcp: McpConfig::default(),
            shell: ShellConfig::default(),
            isolation: IsolationConfig::default(),
            policy: PolicyConfig::default(),
            node: NodeConfig::default(),
            gateway: GatewayConfig::default(),
            storage: StorageConfig::default(),
            audit: AuditConfig::default(),
            log: LogConfig::default(),
            web: WebConfig::default(),
            models: ModelsConfig::default(),
            session: SessionConfig::default(),
            user_timezone: None,
            mcp_servers: BTreeMap::new(),
            roles: BTreeMap::new(),
            agents: BTreeMap::new(),
            #[cfg(feature = "gantry-example")]
            example: gantry_example::ExampleConfig::default(),
        }
    }
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

/// The server: `gantry up` and `gantry serve`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct GatewayConfig {
    /// Address and port; port 0 picks one.
    pub(crate) listen: std::net::SocketAddr,
    /// How clients and other machines reach it, such as `https://gantry.example.com`.
    pub(crate) public_url: Option<String>,
    /// Names it answers to beside its own.
    pub(crate) hosts: Vec<String>,
    /// A certificate chain and its key, as PEM files.
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// How long calls under way may take to finish when it stops.
    pub(crate) drain_seconds: u64,
    /// How long a session at `/mcp` may be idle before it ends.
    #[schemars(range(min = 1, max = 1800))]
    pub(crate) mcp_idle_seconds: u64,
    /// Who gives out tokens for `/mcp`, for clients to find.
    pub(crate) oauth: OauthConfig,
}

/// Told at `/.well-known/oauth-protected-resource`, if there is an authorization server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct OauthConfig {
    /// Addresses of authorization servers.
    pub(crate) authorization_servers: Vec<String>,
    /// Scopes a client may ask for.
    pub(crate) scopes: Vec<String>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        GatewayConfig {
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7770)),
            public_url: None,
            hosts: Vec::new(),
            tls_cert: None,
            tls_key: None,
            drain_seconds: 10,
            mcp_idle_seconds: 1800,
            oauth: OauthConfig::default(),
        }
    }
}

/// Commands that tools run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct ShellConfig {
    /// `required` refuses a command that cannot be confined; `off` runs it unconfined.
    sandbox: SandboxConfig,
    /// Directories in which `tool::shell_exec` looks for programs, before the system's own.
    path: Vec<PathBuf>,
    /// Program names `tool::shell_exec` accepts beside the built-in list.
    allow: Vec<String>,
    /// Paths a confined command may read beside the system's, such as entries of the home directory.
    readable: Vec<PathBuf>,
    /// Paths a confined command may write beside the workspace, such as package caches.
    caches: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum SandboxConfig {
    #[default]
    Required,
    Off,
}

impl ShellConfig {
    pub(crate) fn settings(&self) -> ShellSettings {
        ShellSettings {
            sandbox: match self.sandbox {
                SandboxConfig::Required => SandboxMode::Required,
                SandboxConfig::Off => SandboxMode::Off,
            },
            path: self.path.clone(),
            allow: self.allow.clone(),
            readable: self.readable.clone(),
            caches: self.caches.clone(),
        }
    }
}

impl ConfigSection for ShellConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let lists = [("path", &self.path), ("readable", &self.readable), ("caches", &self.caches)];
        lists.into_iter().flat_map(|(key, paths)| misplaced(&format!("{at}.{key}"), paths)).collect()
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.path, &mut self.readable, &mut self.caches].into_iter().flatten().collect()
    }
}

impl ConfigSection for PolicyConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        misplaced(&format!("{at}.sensitivePaths"), &self.sensitive_paths)
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.sensitive_paths.iter_mut().collect()
    }
}

impl ConfigSection for NodeConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        misplaced(&format!("{at}.tokenFile"), &self.token_file)
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.token_file.iter_mut().collect()
    }

    fn secrets(&self) -> Vec<String> {
        self.token.iter().cloned().collect()
    }
}

/// Who may do what, in order: the first rule that matches decides.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct PolicyConfig {
    pub(crate) rules: Vec<RuleConfig>,
    /// Absolute paths that count as sensitive beside the built-in ones.
    pub(crate) sensitive_paths: Vec<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RuleConfig {
    /// Shown in refusals and in the audit log; `rule-1`, `rule-2`, … when left out.
    name: Option<String>,
    /// A tool's name; `*` stands for anything.
    tool: String,
    decision: Decision,
    #[serde(default)]
    reason: String,
    /// All must hold.
    #[serde(default)]
    when: Vec<ConditionConfig>,
    /// Only calls by these: operator, client, mcp, agent, scheduler.
    #[serde(default)]
    principals: Vec<PrincipalKind>,
    /// Only calls made as these agents.
    #[serde(default)]
    agents: Vec<String>,
    /// `sensitive`: only calls that touch a sensitive path.
    touches: Option<Touching>,
}

/// A test on one value of the input. Give one of equals, contains, startsWith and regex.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ConditionConfig {
    /// Dotted path into the input: `command`, `env.PATH`, `argv.0`.
    path: String,
    equals: Option<Value>,
    contains: Option<String>,
    starts_with: Option<String>,
    regex: Option<String>,
}

impl PolicyConfig {
    /// The rules, or what is wrong with each that cannot be used.
    pub(crate) fn build_rules(&self) -> Result<Vec<Rule>, ConfigError> {
        let (mut rules, mut violations) = (Vec::new(), Vec::new());
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.build(index) {
                Ok(rule) => rules.push(rule),
                Err(message) => violations.push(Violation { path: format!("policy.rules.{index}"), message }),
            }
        }
        if violations.is_empty() { Ok(rules) } else { Err(ConfigError::Invalid { violations }) }
    }
}

impl RuleConfig {
    /// What the rule is about: its tool pattern and its agents.
    pub(crate) fn subjects(&self) -> (&str, &[String]) {
        (&self.tool, &self.agents)
    }

    fn build(&self, index: usize) -> Result<Rule, String> {
        let words = |err: RuleError| err.to_string();
        let name = self.name.clone().unwrap_or_else(|| format!("rule-{}", index + 1));
        let reason = if self.reason.is_empty() { "the operator's policy says so" } else { &self.reason };
        let mut rule = Rule::new(&name, &self.tool, self.decision, reason)
            .map_err(words)?
            .for_principals(self.principals.clone())
            .for_agents(self.agents.clone());
        if let Some(touching) = self.touches {
            rule = rule.touching(touching);
        }
        for condition in &self.when {
            for operator in condition.operators()? {
                rule = rule.when(Condition::new(&condition.path, operator).map_err(words)?);
            }
        }
        Ok(rule)
    }
}

impl ConditionConfig {
    fn operators(&self) -> Result<Vec<Operator>, String> {
        let mut operators: Vec<Operator> = Vec::new();
        operators.extend(self.equals.clone().map(Operator::Equals));
        operators.extend(self.contains.clone().map(Operator::Contains));
        operators.extend(self.starts_with.clone().map(Operator::StartsWith));
        if let Some(pattern) = &self.regex {
            operators.push(Operator::regex(pattern).map_err(|err| err.to_string())?);
        }
        if operators.is_empty() {
            return Err(format!(
                "the condition on {:?} needs equals, contains, startsWith or regex",
                self.path
            ));
        }
        Ok(operators)
    }
}
