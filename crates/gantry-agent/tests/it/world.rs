//! The test environment: a data directory, tools that leave traces, and a scripted model that rejects invalid requests.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_agent::{
    Agent, AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure, NewMessage, Sent, SessionEvent,
    SessionKey, SessionSettings, Sessions, SessionsParts,
};
use gantry_model::{Block, Message, Reply, Request, Role, StopReason, StreamEvent, Usage};
use gantry_store::{DataDir, Database, Journal, Objects};
use gantry_tool::testing::{MemoryAudit, gate};
use gantry_tool::{
    Autonomy, Call, Capability, Ctx, Gate, Label, Text, Tool, ToolError, Toolset, Touch, UserQuestion,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

type Script = dyn Fn(&Request) -> Result<Reply, ModelFailure> + Send + Sync;

pub(crate) struct Scripted {
    script: Box<Script>,
    pub(crate) window: usize,
    pub(crate) violations: Mutex<Vec<String>>,
    pub(crate) requests: Mutex<Vec<Request>>,
}

impl Model for Scripted {
    fn answer<'a>(
        &'a self,
        _: &'a Asker,
        request: &'a Request,
        cancel: &'a CancellationToken,
        events: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> AnswerFuture<'a> {
        Box::pin(async move {
            if let Err(violation) = check(request, self.window) {
                self.violations.lock().unwrap().push(violation.clone());
                return Err(ModelFailure::Failed(violation));
            }
            self.requests.lock().unwrap().push(request.clone());
            let reply = (self.script)(request)?;
            tokio::task::yield_now().await;
            if cancel.is_cancelled() {
                return Err(ModelFailure::Failed("cancelled".into()));
            }
            let text = reply.message.text();
            if !text.is_empty() {
                events(StreamEvent::Text(text));
            }
            Ok(reply)
        })
    }

    fn facts<'a>(&'a self, name: Option<&'a str>) -> FactsFuture<'a> {
        let facts = match name {
            Some("none") => Err("no model is configured".into()),
            name => Ok(ModelFacts {
                name: name.unwrap_or("scripted").to_owned(),
                window: self.window,
                max_output: 2_000,
            }),
        };
        Box::pin(std::future::ready(facts))
    }
}

/// Returns the size of a request in bytes.
pub(crate) fn size(request: &Request) -> usize {
    serde_json::to_string(&request.messages).unwrap().len()
        + request.system.iter().map(|part| part.text.len()).sum::<usize>()
        + request.tools.iter().map(|tool| tool.input_schema.to_string().len()).sum::<usize>()
}

/// Checks a request as a provider does: roles, pairs of calls and results, and the window. A token has four characters.
fn check(request: &Request, window: usize) -> Result<(), String> {
    let mut open: HashSet<&str> = HashSet::new();
    let mut before = Role::Assistant;
    for message in &request.messages {
        if message.role == before || message.content.is_empty() {
            return Err(format!("roles do not alternate, or a message is empty: {message:?}"));
        }
        before = message.role;
        if message.role == Role::Assistant && !open.is_empty() {
            return Err(format!("calls without results: {open:?}"));
        }
        for block in &message.content {
            match block {
                Block::ToolUse { id, .. } if !open.insert(id) => return Err(format!("{id} twice")),
                Block::ToolResult { id, .. } if !open.remove(id.as_str()) => {
                    return Err(format!("{id} has no call"));
                }
                _ => {}
            }
        }
    }
    let size = size(request);
    if !open.is_empty() || before != Role::User {
        return Err(format!("the last message is not the user's, or calls have no results: {open:?}"));
    }
    if size / 4 + request.max_tokens as usize > window {
        return Err(format!("{size} bytes do not fit into {window} tokens"));
    }
    Ok(())
}

pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) model: Arc<Scripted>,
    pub(crate) sessions: Sessions,
    pub(crate) journal: Journal,
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Arc<MemoryAudit>,
    database: Database,
}

pub(crate) struct Setup {
    pub(crate) window: usize,
    pub(crate) agent: Agent,
    pub(crate) idle: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        let agent = Agent { autonomy: Autonomy::Guided, ..Agent::default() };
        Setup { window: 100_000, agent, idle: gantry_agent::IDLE }
    }
}

impl World {
    pub(crate) async fn open(
        folder: &Path,
        setup: Setup,
        script: impl Fn(&Request) -> Result<Reply, ModelFailure> + Send + Sync + 'static,
    ) -> World {
        let data = DataDir::new(folder.join("data"));
        let database = Database::open(&data).await.unwrap();
        let journal = Journal::new(database.clone());
        let (gate, audit) = gate(tools(folder));
        let gate = Arc::new(gate);
        let model = Arc::new(Scripted {
            script: Box::new(script),
            window: setup.window,
            violations: Mutex::default(),
            requests: Mutex::default(),
        });
        let agents = BTreeMap::from([("main".to_owned(), setup.agent)]);
        let sessions = Sessions::new(SessionsParts {
            session_labels: Arc::new(|_, _| {}),
            changes: Arc::new(|| Box::pin(async { Vec::new() })),
            journal: journal.clone(),
            gate: gate.clone(),
            model: model.clone(),
            objects: Objects::folder(&data),
            settings: SessionSettings::of(agents),
            idle: setup.idle,
            nodes: Arc::new(Vec::new),
        });
        World { folder: folder.to_owned(), model, sessions, journal, gate, audit, database }
    }

    pub(crate) fn key(&self) -> SessionKey {
        self.sessions.key("main", None).unwrap()
    }

    pub(crate) async fn send(&self, text: &str) -> String {
        match self.sessions.send(&self.key(), message(text)).await.unwrap() {
            Sent::Accepted { message } => message,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn command(&self, text: &str) -> String {
        match self.sessions.send(&self.key(), message(text)).await.unwrap() {
            Sent::Command(text) => text,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message and waits for its final event.
    pub(crate) async fn ask(&self, text: &str) -> SessionEvent {
        let mut events = self.sessions.listen(&self.key());
        let message = self.send(text).await;
        settled(&mut events, &message).await
    }

    pub(crate) async fn stop(self) {
        self.sessions.stop(Duration::from_millis(200)).await;
        self.database.close().await;
        assert_eq!(*self.model.violations.lock().unwrap(), [""; 0]);
    }

    pub(crate) async fn kinds(&self) -> Vec<String> {
        let events = self.journal.page(&self.key().key, 0, 100_000).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }

    /// Waits until the tool `note` has written this many lines.
    pub(crate) async fn noted(&self, count: usize) {
        let until = tokio::time::Instant::now() + PATIENCE;
        while self.notes().len() < count {
            assert!(tokio::time::Instant::now() < until, "{:?}", self.notes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the lines that the tool `note` has written.
    pub(crate) fn notes(&self) -> Vec<String> {
        notes(&self.folder)
    }
}

pub(crate) fn notes(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("notes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn message(text: &str) -> NewMessage {
    NewMessage {
        text: text.into(),
        from: "operator".into(),
        reply_to: json!({"for": text}),
        ..NewMessage::default()
    }
}

pub(crate) async fn until(
    events: &mut Receiver<Arc<SessionEvent>>,
    matches: impl Fn(&SessionEvent) -> bool,
) -> SessionEvent {
    let waiting = async {
        loop {
            let event = events.recv().await.unwrap();
            if matches(&event) {
                return (*event).clone();
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the event arrives in time")
}

pub(crate) async fn settled(events: &mut Receiver<Arc<SessionEvent>>, message: &str) -> SessionEvent {
    until(events, |event| event.settles(message)).await
}

pub(crate) fn final_text(event: &SessionEvent) -> &str {
    match event {
        SessionEvent::Final { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

/// A reply that calls tools.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Result<Reply, ModelFailure> {
    let content = calls.iter().map(|(id, name, input)| Block::ToolUse {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        input: input.clone(),
        malformed: None,
    });
    Ok(reply(content.collect(), StopReason::ToolUse))
}

pub(crate) fn says(text: &str) -> Result<Reply, ModelFailure> {
    Ok(reply(vec![Block::text(text)], StopReason::EndTurn))
}

fn reply(content: Vec<Block>, stop: StopReason) -> Reply {
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    Reply { message: Message { role: Role::Assistant, content }, stop, usage, model: "scripted".into() }
}

/// Returns the results in a request.
pub(crate) fn results(request: &Request) -> Vec<String> {
    let blocks = request.messages.iter().flat_map(|message| &message.content);
    let results = blocks.filter_map(|block| match block {
        Block::ToolResult { content, .. } => {
            let text = content.iter().filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                _ => None,
            });
            Some(text.collect::<String>())
        }
        _ => None,
    });
    results.collect()
}

/// Returns the user's texts in a request, including summaries.
pub(crate) fn texts(request: &Request) -> Vec<String> {
    let users = request.messages.iter().filter(|message| message.role == Role::User);
    let blocks = users.flat_map(|message| &message.content);
    let texts = blocks.filter_map(|block| match block {
        Block::Text { text } => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

/// The input of the test tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The text to write or return.
    #[serde(default)]
    text: String,
    /// The duration in milliseconds.
    #[serde(default)]
    ms: u64,
}

fn tools(folder: &Path) -> Vec<Tool> {
    let state = Arc::new(folder.to_owned());
    let tool = |name: &str| Tool::new(name, Toolset::Gantry, &state, run);
    vec![
        tool("note").effects(&[]),
        tool("look").read_only(),
        tool("private").read_only().labels(&[Label::Private]),
        tool("page").read_only().open_world().labels(&[Label::Untrusted]),
        tool("post").open_world(),
        tool("download")
            .open_world()
            .labels(&[Label::Untrusted])
            .touches(|call: &Call, input: Input| vec![Touch::write(call.workspace.join(input.text))]),
        tool("open")
            .read_only()
            .touches(|call: &Call, input: Input| vec![Touch::read(call.workspace.join(input.text))]),
        Tool::new("big", Toolset::Gantry, &state, big).read_only(),
        Tool::new("ask", Toolset::Gantry, &state, ask).read_only(),
        Tool::new("command", Toolset::Gantry, &state, command)
            .capabilities(&[Capability::ShellExec])
            .labels(&[Label::Untrusted]),
    ]
}

/// Writes one line to disk, then answers.
async fn run(ctx: Ctx<PathBuf>, input: Input) -> Result<Text, ToolError> {
    use std::io::Write;
    let path = ctx.state.join("notes");
    let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{}\n", input.text).as_bytes()).unwrap();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(input.ms)) => Ok(Text(format!("noted {}", input.text))),
        () = ctx.call.cancel.cancelled() => Err(ToolError::Cancelled),
    }
}

/// Asks the user and returns the answers.
async fn ask(ctx: Ctx<PathBuf>, input: Input) -> Result<Text, ToolError> {
    let Some(asker) = &ctx.call.asker else { return Ok(Text("nobody".into())) };
    let question = UserQuestion { question: input.text, heading: None, header: None, options: Vec::new() };
    let answers = asker.ask(vec![question]).await;
    Ok(Text(answers.map_or("no answer".into(), |answers| answers.join(", "))))
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Ended {
    exit_code: u64,
    output: String,
}

/// Returns a result with an exit code, like a command.
async fn command(_: Ctx<PathBuf>, input: Input) -> Result<Ended, ToolError> {
    Ok(Ended { exit_code: input.ms, output: input.text })
}

/// Returns 50 KB of text.
async fn big(_: Ctx<PathBuf>, input: Input) -> Result<Text, ToolError> {
    Ok(Text(format!("page {} {}", input.text, "lorem ipsum ".repeat(50 * 1024 / 12))))
}
