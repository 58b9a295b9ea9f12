//! All configured servers: their tools in the registry, and one place to ask about them, start and stop them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_store::{Pin, RecordVersion, ServerRecord};
use gantry_tool::{Registry, RemoteTool, Tool, Toolset};
use serde_json::Value;

use super::definition;
use super::oauth::Login;
use super::sanitize::shown_name;
use super::server::{Server, ServerError};
use super::spec::{ServerSpec, Surroundings};
use super::tool_status::{State, ToolStatus, statuses};

/// How soon a change that another process made is noticed.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// A handle; clones share the servers.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    around: Arc<Surroundings>,
    registry: Registry,
    entries: Mutex<BTreeMap<String, Entry>>,
}

struct Entry {
    server: Arc<Server>,
    /// Why tools of it, or all, could not be registered.
    problems: Vec<String>,
    registered: RecordVersion,
}

impl Servers {
    /// Registers the tools that are known of each server. None is started.
    pub fn open(around: Surroundings, registry: Registry, specs: Vec<ServerSpec>) -> Servers {
        let inner = Inner { around: Arc::new(around), registry, entries: Mutex::default() };
        let servers = Servers { inner: Arc::new(inner) };
        servers.add(specs);
        servers
    }

    fn add(&self, specs: Vec<ServerSpec>) {
        for spec in specs {
            let server = Server::new(spec, self.inner.around.clone());
            let entry = self.inner.registered(&server);
            self.inner.entries().insert(server.name().to_owned(), entry);
        }
    }

    /// Takes up another configuration: servers that changed or went are stopped, new ones are there at once.
    pub async fn apply(&self, specs: Vec<ServerSpec>) {
        let mut leaving = Vec::new();
        let mut fresh = Vec::new();
        {
            let mut entries = self.inner.entries();
            let kept = |entry: &Entry| specs.contains(&entry.server.spec);
            let gone: Vec<String> =
                entries.iter().filter(|(_, entry)| !kept(entry)).map(|(name, _)| name.clone()).collect();
            leaving.extend(gone.iter().filter_map(|name| entries.remove(name)).map(|entry| entry.server));
            fresh.extend(specs.into_iter().filter(|spec| !entries.contains_key(&spec.name)));
        }
        for server in leaving {
            self.inner.registry.remove_server(server.name());
            server.stop("it was removed, or is configured otherwise now").await;
        }
        self.add(fresh);
    }

    pub fn names(&self) -> Vec<String> {
        self.inner.entries().keys().cloned().collect()
    }

    /// What is configured but cannot be offered, in words that name the server.
    pub fn problems(&self) -> Vec<String> {
        let entries = self.inner.entries();
        let of = |(name, entry): (&String, &Entry)| {
            entry.problems.iter().map(|problem| format!("MCP server {name}: {problem}")).collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }

    /// Notices what other processes accept, and what servers list anew, until it is dropped.
    pub async fn follow(&self) {
        loop {
            tokio::time::sleep(FOLLOW_EVERY).await;
            self.inner.register_changed();
        }
    }

    /// What is kept of a server.
    pub fn record(&self, name: &str) -> Result<ServerRecord, ServerError> {
        Ok(self.inner.server(name)?.known()?.record.clone())
    }

    pub fn spec(&self, name: &str) -> Result<ServerSpec, ServerError> {
        Ok(self.inner.server(name)?.spec.clone())
    }

    /// What a server cannot do, in words, if it is a program that is confined.
    pub fn confinement(&self, name: &str) -> Option<String> {
        self.inner.server(name).ok()?.confinement()
    }

    /// How each tool of a server stands, as far as is known without asking it.
    pub fn statuses(&self, name: &str) -> Result<Vec<ToolStatus>, ServerError> {
        Ok(self.inner.server(name)?.known()?.statuses.clone())
    }

    /// Starts a server and reads its list.
    pub async fn list(&self, name: &str) -> Result<Vec<ToolStatus>, ServerError> {
        let server = self.inner.server(name)?;
        server.connected().await?;
        self.inner.register_changed();
        self.statuses(name)
    }

    /// The process of a server that runs now.
    pub async fn pid(&self, name: &str) -> Option<i32> {
        self.inner.server(name).ok()?.pid().await
    }

    /// Accepts what a server offers: one tool, or all. Names of those that were not accepted before as they are now.
    pub fn accept(&self, name: &str, tool: Option<&str>, now: i64) -> Result<Vec<String>, ServerError> {
        let server = self.inner.server(name)?;
        let changed = self.inner.around.records.change(name, |record| {
            let mut accepted = Vec::new();
            for standing in statuses(name, record, server.spec.tools.as_deref()) {
                if tool.is_some_and(|tool| tool != standing.name) {
                    continue;
                }
                match (&standing.state, standing.offered) {
                    (State::New | State::Changed, Some(definition)) => {
                        let pin = Pin { hash: definition::hash(&definition), definition, accepted: now };
                        record.accepted.insert(standing.name.clone(), pin);
                        accepted.push(standing.name);
                    }
                    (State::Gone, _) => {
                        record.accepted.remove(&standing.name);
                        accepted.push(standing.name);
                    }
                    _ => {}
                }
            }
            accepted
        });
        let accepted = changed
            .map_err(|err| ServerError::Record { server: name.to_owned(), reason: err.to_string() })?;
        self.inner.register_changed();
        Ok(accepted)
    }

    /// What a server said last when it wanted another login than it was given.
    pub fn wanted(&self, name: &str) -> Option<String> {
        self.record(name).ok()?.wanted
    }

    /// The login of a server at an address; `None` for programs.
    pub fn login(&self, name: &str) -> Result<Option<Login>, ServerError> {
        Ok(self.inner.server(name)?.login())
    }

    /// Ends every server with everything it has started; none starts again.
    pub async fn stop(&self) {
        let servers: Vec<Arc<Server>> =
            self.inner.entries().values().map(|entry| entry.server.clone()).collect();
        let stopping: Vec<_> = servers
            .into_iter()
            .map(|server| tokio::spawn(async move { server.stop("Gantry is stopping").await }))
            .collect();
        for stopped in stopping {
            let _ = stopped.await;
        }
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self, name: &str) -> Result<Arc<Server>, ServerError> {
        let found = self.entries().get(name).map(|entry| entry.server.clone());
        found.ok_or_else(|| ServerError::Unknown(name.to_owned()))
    }

    fn register_changed(&self) {
        let all: Vec<(Arc<Server>, RecordVersion)> =
            self.entries().values().map(|entry| (entry.server.clone(), entry.registered)).collect();
        for (server, registered) in all {
            if server.version() != registered {
                let entry = self.registered(&server);
                self.entries().insert(server.name().to_owned(), entry);
            }
        }
    }

    /// Puts what was accepted of a server into the registry.
    fn registered(&self, server: &Arc<Server>) -> Entry {
        let registered = server.version();
        let (seen, mut problems) = match server.known() {
            Ok(seen) => (Some(seen), Vec::new()),
            Err(err) => (None, vec![err.to_string()]),
        };
        let statuses = seen.iter().flat_map(|seen| &seen.statuses);
        let mut tools = Vec::new();
        for standing in statuses {
            let shown = shown_name(&standing.name);
            match &standing.state {
                State::Unusable(why) => problems.push(format!("{shown} is held: {why}")),
                State::Changed => problems.push(format!(
                    "{shown} is held: its definition has changed; `gantry mcp accept {}` shows how",
                    server.name()
                )),
                State::Ready | State::New | State::Gone | State::NotChosen => {}
            }
            // A tool that is held may be as it was accepted again by the time it is called.
            let offered = matches!(standing.state, State::Ready | State::Changed | State::Unusable(_));
            tools.extend(standing.accepted.as_ref().filter(|_| offered).map(|known| tool(server, known)));
        }
        let refused = self.registry.set_server(server.name(), tools);
        problems.extend(refused.iter().map(ToString::to_string));
        Entry { server: server.clone(), problems, registered }
    }
}

/// A tool of a server, as it was accepted. What the server says of it is a hint, and believed only if it is trusted.
fn tool(server: &Arc<Server>, definition: &Value) -> Tool {
    let text = |field: &str| definition.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = definition::name(definition).unwrap_or_default().to_owned();
    let hint = |field: &str, otherwise: bool| {
        let said = definition.get("annotations").and_then(|hints| hints.get(field)).and_then(Value::as_bool);
        said.filter(|_| server.spec.trust_annotations).unwrap_or(otherwise)
    };
    let read_only = hint("readOnlyHint", false);
    let remote = RemoteTool {
        name: format!("{}__{name}", server.name()),
        toolset: Toolset::Mcp,
        description: text("description").or_else(|| text("title")).unwrap_or(&name).to_owned(),
        input_schema: definition.get("inputSchema").cloned().unwrap_or_default(),
        output_schema: definition::promise(definition).cloned(),
        read_only,
        destructive: !read_only && hint("destructiveHint", true),
        idempotent: read_only || hint("idempotentHint", false),
        open_world: hint("openWorldHint", true),
        capabilities: Vec::new(),
    };
    let server = server.clone();
    Tool::remote(remote, move |call, input| server.clone().call(call, name.clone(), input))
}
