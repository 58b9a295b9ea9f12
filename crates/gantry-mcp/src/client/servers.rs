//! All configured servers: registers their tools, and starts, lists and stops them.

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

/// How often changes by other processes are checked.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// `Servers` is a handle to all configured servers. Clones share them.
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
    /// Why some or all of its tools could not be registered.
    problems: Vec<String>,
    registered: RecordVersion,
}

impl Servers {
    /// Registers the known tools of each server. No server is started.
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

    /// Applies another configuration: stops servers that changed or were removed, and adds new ones.
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
            server.stop("its configuration was removed or changed").await;
        }
        self.add(fresh);
    }

    pub fn names(&self) -> Vec<String> {
        self.inner.entries().keys().cloned().collect()
    }

    /// Describes configured tools and servers that cannot be offered.
    pub fn problems(&self) -> Vec<String> {
        let entries = self.inner.entries();
        let of = |(name, entry): (&String, &Entry)| {
            entry.problems.iter().map(|problem| format!("MCP server {name}: {problem}")).collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }

    /// Follows changes of the records, by other processes and by servers, until it is dropped.
    pub async fn follow(&self) {
        loop {
            tokio::time::sleep(FOLLOW_EVERY).await;
            self.inner.register_changed();
        }
    }

    /// Returns the stored record of a server.
    pub fn record(&self, name: &str) -> Result<ServerRecord, ServerError> {
        Ok(self.inner.server(name)?.known()?.record.clone())
    }

    pub fn spec(&self, name: &str) -> Result<ServerSpec, ServerError> {
        Ok(self.inner.server(name)?.spec.clone())
    }

    /// Describes what a confined program cannot do. Returns `None` for other servers.
    pub fn confinement(&self, name: &str) -> Option<String> {
        self.inner.server(name).ok()?.confinement()
    }

    /// Returns the status of each tool of a server, without connecting to it.
    pub fn statuses(&self, name: &str) -> Result<Vec<ToolStatus>, ServerError> {
        Ok(self.inner.server(name)?.known()?.statuses.clone())
    }

    /// Connects to a server and reads its list of tools.
    pub async fn list(&self, name: &str) -> Result<Vec<ToolStatus>, ServerError> {
        let server = self.inner.server(name)?;
        server.connected().await?;
        self.inner.register_changed();
        self.statuses(name)
    }

    /// Returns the process id of a running server.
    pub async fn pid(&self, name: &str) -> Option<i32> {
        self.inner.server(name).ok()?.pid().await
    }

    /// Accepts one tool or all tools of a server. Returns the names of new, changed and removed tools.
    pub fn accept(&self, name: &str, tool: Option<&str>, now: i64) -> Result<Vec<String>, ServerError> {
        let server = self.inner.server(name)?;
        let changed = self.inner.around.records.change(name, |record| {
            let mut accepted = Vec::new();
            for status in statuses(name, record, server.spec.tools.as_deref()) {
                if tool.is_some_and(|tool| tool != status.name) {
                    continue;
                }
                match (&status.state, status.offered) {
                    (State::New | State::Changed, Some(definition)) => {
                        let pin = Pin { hash: definition::hash(&definition), definition, accepted: now };
                        record.accepted.insert(status.name.clone(), pin);
                        accepted.push(status.name);
                    }
                    (State::Gone, _) => {
                        record.accepted.remove(&status.name);
                        accepted.push(status.name);
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

    /// Returns the server's last challenge for a login, if it requires one.
    pub fn wanted(&self, name: &str) -> Option<String> {
        self.record(name).ok()?.wanted
    }

    /// Returns the login of a server with a URL, or `None` for programs.
    pub fn login(&self, name: &str) -> Result<Option<Login>, ServerError> {
        Ok(self.inner.server(name)?.login())
    }

    /// Ends every server and its processes. No server starts again.
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

    /// Registers the accepted tools of a server.
    fn registered(&self, server: &Arc<Server>) -> Entry {
        let registered = server.version();
        let (seen, mut problems) = match server.known() {
            Ok(seen) => (Some(seen), Vec::new()),
            Err(err) => (None, vec![err.to_string()]),
        };
        let statuses = seen.iter().flat_map(|seen| &seen.statuses);
        let mut tools = Vec::new();
        for status in statuses {
            let shown = shown_name(&status.name);
            match &status.state {
                State::Unusable(why) => problems.push(format!("{shown} is blocked: {why}")),
                State::Changed => problems.push(format!(
                    "{shown} is blocked: its definition has changed; review it with `gantry mcp accept {}`",
                    server.name()
                )),
                State::Ready | State::New | State::Gone | State::NotChosen => {}
            }
            // A blocked tool stays registered, because the server may restore the accepted definition.
            let offered = matches!(status.state, State::Ready | State::Changed | State::Unusable(_));
            tools.extend(status.accepted.as_ref().filter(|_| offered).map(|known| tool(server, known)));
        }
        let refused = self.registry.set_server(server.name(), tools);
        problems.extend(refused.iter().map(ToString::to_string));
        Entry { server: server.clone(), problems, registered }
    }
}

/// Makes a tool from its accepted definition. The server's annotations are used only if the server is trusted.
fn tool(server: &Arc<Server>, definition: &Value) -> Tool {
    let text = |field: &str| definition.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = definition::name(definition).unwrap_or_default().to_owned();
    let hint = |field: &str, otherwise: bool| {
        let annotation =
            definition.get("annotations").and_then(|hints| hints.get(field)).and_then(Value::as_bool);
        annotation.filter(|_| server.spec.trust_annotations).unwrap_or(otherwise)
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
