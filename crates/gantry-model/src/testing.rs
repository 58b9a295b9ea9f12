//! A model server for tests: real HTTP on loopback, both wire formats, and a script of answers and
//! failures.
//!
//! It checks every request against the providers' documentation. A request that breaks a rule gets
//! status 400 and is recorded. A test ends with `assert_eq!(server.violations(), [""; 0])`.
#![expect(clippy::disallowed_methods, reason = "a test server listens")]
#![expect(clippy::expect_used, reason = "test helpers may panic")]

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gantry_net::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::model::ModelEntry;
use crate::money::Price;
use crate::provider::{Key, Provider, ProviderKind};
use crate::retry::RetryPolicy;
use crate::{Models, ModelsConfig};

mod check;
mod encode_turn;
mod script;

use encode_turn::Emit;
pub use script::{Failure, Order, Quirks, Say, Script, Turn};

/// The key that the server expects, unless its script names another one.
pub const KEY: &str = "sk-scripted-0123456789";
/// The server's first model, unless its script names others.
pub const MODEL: &str = "scripted-1";

const MAX_REQUEST_BYTES: usize = 32 << 20;

/// `Heard` is a request as received.
#[derive(Debug, Clone)]
pub struct Heard {
    pub path: String,
    /// With names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Value,
    pub bytes: usize,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns all text of the last message of a user or a tool.
    pub fn last_text(&self) -> String {
        let messages = self.body["messages"].as_array();
        let last =
            messages.and_then(|messages| messages.iter().rev().find(|said| said["role"] != "assistant"));
        last.map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            content => content.to_string(),
        })
        .unwrap_or_default()
    }

    fn kind(&self) -> ProviderKind {
        if self.path.ends_with("/messages") { ProviderKind::Anthropic } else { ProviderKind::Openai }
    }
}

/// `ScriptedServer` stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: AbortHandle,
}

type Decide = Box<dyn Fn(&Heard) -> Turn + Send + Sync>;

struct Shared {
    script: Script,
    /// Decides in place of the script's turns.
    decide: Option<Decide>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard: Vec<Heard>,
    violations: Vec<String>,
    /// Which turns were played, by their position in the script.
    played: Vec<bool>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("script", &self.script).finish_non_exhaustive()
    }
}

impl ScriptedServer {
    /// Starts a server that plays turns one after the other.
    pub async fn start(script: impl Into<Script>) -> ScriptedServer {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        ScriptedServer::bind(address, script.into()).await.expect("loopback has a free port")
    }

    /// Starts a server that asks `decide` for each answer. `script` provides everything else.
    pub async fn deciding(
        script: Script,
        decide: impl Fn(&Heard) -> Turn + Send + Sync + 'static,
    ) -> ScriptedServer {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        ScriptedServer::serve(address, script, Some(Box::new(decide)))
            .await
            .expect("loopback has a free port")
    }

    pub async fn bind(address: SocketAddr, script: Script) -> io::Result<ScriptedServer> {
        ScriptedServer::serve(address, script, None).await
    }

    async fn serve(
        address: SocketAddr,
        script: Script,
        decide: Option<Decide>,
    ) -> io::Result<ScriptedServer> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = State { played: vec![false; script.turns.len()], ..State::default() };
        let shared = Arc::new(Shared { script, decide, state: Mutex::new(state) });
        let serving = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(ScriptedServer { address, shared, serving })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn base_url(&self) -> Url {
        format!("http://{}", self.address).parse().expect("an address makes a URL")
    }

    /// Returns this server as a provider, with its key and its models. They are free and have a
    /// window of 200,000 tokens.
    pub fn provider(&self, name: &str, kind: ProviderKind) -> Provider {
        let script = &self.shared.script;
        let entry = |id: &String| ModelEntry {
            id: id.clone(),
            price: Some(Price::FREE),
            context_window: Some(200_000),
            max_output: Some(8_192),
        };
        let mut provider = Provider::new(name, kind, self.base_url());
        provider.key = Some(Key::fixed(script.key()));
        provider.models = script.models().iter().map(entry).collect();
        provider.first_party = script.first_party;
        provider
    }

    /// Returns only this server, named `scripted`, with pauses of milliseconds between attempts.
    pub fn models(&self, kind: ProviderKind) -> Models {
        Models::new(ModelsConfig {
            providers: vec![self.provider("scripted", kind)],
            retry: quick_retries(),
            ..ModelsConfig::default()
        })
    }

    /// Returns the requests for answers, in order.
    pub fn requests(&self) -> Vec<Heard> {
        self.shared.state().heard.clone()
    }

    /// Returns the broken rules, and requests for which the script has no turn.
    pub fn violations(&self) -> Vec<String> {
        self.shared.state().violations.clone()
    }

    /// Counts the turns that nobody asked for.
    pub fn left(&self) -> usize {
        self.shared.state().played.iter().filter(|played| !**played).count()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns the usual retries, with pauses in milliseconds.
pub fn quick_retries() -> RetryPolicy {
    RetryPolicy {
        first_pause: Duration::from_millis(2),
        longest_pause: Duration::from_millis(20),
        ..RetryPolicy::default()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the lock")
    }

    /// Returns the turn to answer with, or why there is none.
    fn turn(&self, heard: &Heard) -> Result<Turn, Vec<String>> {
        let violations = check::violations(heard, &self.script);
        let mut state = self.state();
        state.heard.push(heard.clone());
        if !violations.is_empty() {
            state.violations.extend(violations.clone());
            return Err(violations);
        }
        if let Some(decide) = &self.decide {
            return Ok(decide(heard));
        }
        match self.script.choose(heard, &mut state.played) {
            Some(turn) => Ok(turn.clone()),
            None => {
                let message = format!("the script has no turn for {:?}", brief(&heard.last_text()));
                state.violations.push(message.clone());
                Err(vec![message])
            }
        }
    }
}

fn brief(text: &str) -> String {
    text.chars().take(200).collect()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping this task closes its connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                let _ = stream.set_nodelay(true);
                connections.spawn(converse(stream, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            else => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves the requests of one connection, one after the other, until either side closes it.
async fn converse(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut read = Vec::new();
    while let Some((method, heard)) = hear(&mut stream, &mut read).await {
        let emits = match (method.as_str(), heard.path.as_str()) {
            ("POST", path) if path.ends_with("/messages") || path.ends_with("/chat/completions") => {
                match shared.turn(&heard) {
                    Ok(turn) => encode_turn::turn(&turn, &heard, &shared.script),
                    Err(violations) => encode_turn::failure(400, &[], &violations.join("; "), heard.kind()),
                }
            }
            ("GET", path) if path.ends_with("/models") => {
                let models: Vec<Value> = shared.script.listed().collect();
                encode_turn::json(200, &json!({"object": "list", "data": models}))
            }
            // For callers that run the server as a separate program.
            ("GET", "/scripted") => {
                let state = shared.state();
                let seen = json!({"requests": state.heard.len(), "violations": state.violations});
                encode_turn::json(200, &seen)
            }
            _ => encode_turn::failure(404, &[], "unknown path", heard.kind()),
        };
        for emit in emits {
            let written = match emit {
                Emit::Bytes(bytes) => stream.write_all(&bytes).await,
                Emit::Wait(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                Emit::Stall => return std::future::pending().await,
                Emit::Close => return,
            };
            if written.is_err() {
                return;
            }
        }
    }
}

async fn hear(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, Heard)> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if read.len() > MAX_REQUEST_BYTES || stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read.drain(..end).collect()).ok()?;
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while read.len() < length {
        if length > 2 * MAX_REQUEST_BYTES || stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
    let body: Vec<u8> = read.drain(..length).collect();
    let heard = Heard {
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        bytes: body.len(),
    };
    Some((method, heard))
}
