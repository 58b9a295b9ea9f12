//! The test environment: a data directory, real sessions with a scripted model, and a clock that tests move.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_agent::{
    Agent, AnswerFuture, ApprovalDecision, Asker, FactsFuture, Model, ModelFacts, ModelFailure, NewMessage,
    Question, SessionSettings, Sessions, SessionsParts,
};
use gantry_domain::Identity;
use gantry_model::{Block, Message, Reply, Request, Role, StopReason, StreamEvent, Usage};
use gantry_net::{Client, ClientOptions, NetworkPolicy};
use gantry_store::{DataDir, Database, Journal, Objects};
use gantry_tool::testing::gate;
use gantry_tool::{Autonomy, Ctx, Label, Masker, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::FlowConfig;
use crate::domain::{Flow, FlowParts};
use crate::tasks::{PageAccess, TasksConfig};
use crate::{jobs, outbox, tasks, tools};

/// Wed 4 Mar 2026 12:00:00 UTC.
pub(crate) const START: i64 = 1_772_625_600_000;
pub(crate) const OPERATOR: Identity = Identity::Operator;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Script = Arc<dyn Fn(&Request) -> Result<Reply, ModelFailure> + Send + Sync>;

/// A model that answers by a script, and waits while it is held.
pub(crate) struct Scripted {
    script: Script,
    pub(crate) held: watch::Sender<bool>,
    pub(crate) requests: Mutex<Vec<Request>>,
    pub(crate) askers: Mutex<Vec<Asker>>,
}

impl Model for Scripted {
    fn answer<'a>(
        &'a self,
        asker: &'a Asker,
        request: &'a Request,
        cancel: &'a CancellationToken,
        _: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> AnswerFuture<'a> {
        Box::pin(async move {
            self.requests.lock().unwrap().push(request.clone());
            self.askers.lock().unwrap().push(asker.clone());
            let mut held = self.held.subscribe();
            tokio::select! {
                _ = held.wait_for(|held| !held) => {}
                () = cancel.cancelled() => return Err(ModelFailure::Failed("cancelled".into())),
            }
            (self.script)(request)
        })
    }

    fn facts<'a>(&'a self, name: Option<&'a str>) -> FactsFuture<'a> {
        let name = name.unwrap_or("scripted").to_owned();
        Box::pin(std::future::ready(Ok(ModelFacts { name, window: 100_000, max_output: 2_000 })))
    }
}

pub(crate) fn says(text: &str) -> Result<Reply, ModelFailure> {
    Ok(reply(vec![Block::text(text)], StopReason::EndTurn))
}

pub(crate) fn calls(name: &str, input: serde_json::Value) -> Result<Reply, ModelFailure> {
    let call = Block::ToolUse { id: "c1".into(), name: name.into(), input, malformed: None };
    Ok(reply(vec![call], StopReason::ToolUse))
}

fn reply(content: Vec<Block>, stop: StopReason) -> Reply {
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    Reply { message: Message { role: Role::Assistant, content }, stop, usage, model: "scripted".into() }
}

/// The results that the model was given.
pub(crate) fn results(request: &Request) -> usize {
    let blocks = request.messages.iter().flat_map(|message| &message.content);
    blocks.filter(|block| matches!(block, Block::ToolResult { .. })).count()
}

/// The text of the whole conversation.
pub(crate) fn texts(request: &Request) -> String {
    request.messages.iter().map(Message::text).collect::<Vec<_>>().join("\n")
}

pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) flow: Arc<Flow>,
    pub(crate) clock: Clock,
    pub(crate) model: Arc<Scripted>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

pub(crate) struct Setup {
    pub(crate) autonomy: Autonomy,
    pub(crate) config: FlowConfig,
    pub(crate) now: i64,
    pub(crate) script: Script,
    pub(crate) held: bool,
    /// Whether the workers run.
    pub(crate) works: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            autonomy: Autonomy::Guided,
            config: FlowConfig::default(),
            now: START,
            script: Arc::new(|_| says("done")),
            held: false,
            works: true,
        }
    }
}

/// Writes a line into a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The line.
    text: String,
}

impl World {
    pub(crate) async fn open(folder: &Path, setup: Setup) -> World {
        let data = DataDir::new(folder.join("data"));
        let database = Database::open(&data).await.unwrap();
        let state = Arc::new(folder.join("notes"));
        let note = Tool::new("note", Toolset::Gantry, &state, |ctx: Ctx<PathBuf>, input: Note| async move {
            let before = std::fs::read_to_string(&*ctx.state).unwrap_or_default();
            std::fs::write(&*ctx.state, format!("{before}{}\n", input.text)).unwrap();
            Ok::<Text, ToolError>(Text(format!("noted {}", input.text)))
        })
        .effects(&[]);
        let diary = Tool::new("diary", Toolset::Gantry, &state, |_: Ctx<PathBuf>, _: Note| async move {
            Ok::<Text, ToolError>(Text("dear diary".to_owned()))
        })
        .read_only()
        .effects(&[])
        .labels(&[Label::Private]);
        let gate = Arc::new(gate(vec![note, diary]).0);
        let model = Arc::new(Scripted {
            script: setup.script,
            held: watch::channel(setup.held).0,
            requests: Mutex::default(),
            askers: Mutex::default(),
        });
        let agent = Agent { autonomy: setup.autonomy, ..Agent::default() };
        let sessions = Sessions::new(SessionsParts {
            session_labels: Arc::new(|_, _| {}),
            changes: Arc::new(|| Box::pin(async { Vec::new() })),
            journal: Journal::new(database.clone()),
            gate: gate.clone(),
            model: model.clone(),
            objects: Objects::folder(&data),
            settings: SessionSettings::of(BTreeMap::from([
                ("main".to_owned(), agent.clone()),
                ("other".to_owned(), agent),
            ])),
            idle: gantry_agent::IDLE,
            nodes: Arc::new(Vec::new),
        });
        let clock = Clock::virtual_at(setup.now);
        let flow = Arc::new(Flow::new(FlowParts {
            config: setup.config,
            database,
            sessions: sessions.clone(),
            outbox: crate::Outbox::default(),
            clock: clock.clone(),
            zone: jiff::tz::TimeZone::get("Europe/Berlin").unwrap(),
            network: ClientOptions::default(),
            secret: Arc::new(|name, _| Err(format!("unknown secret {name}"))),
            masker: Masker::default(),
            tasks: TasksConfig::default(),
            pages: PageAccess {
                client: Client::new(ClientOptions::default()),
                policy: Arc::new(|_| NetworkPolicy::default()),
            },
        }));
        for tool in tools(Some(flow.clone())) {
            gate.registry().register(tool).unwrap();
        }
        sessions.resume().await.unwrap();
        let world = World {
            folder: folder.to_owned(),
            flow,
            clock,
            model,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        };
        if setup.works {
            world.work();
        }
        world
    }

    /// Starts the workers.
    pub(crate) fn work(&self) {
        self.tasks.spawn(outbox::run(self.flow.clone(), self.stopping.clone()));
        self.flow.start_pipelines(self.tasks.clone(), self.stopping.clone());
        jobs::run(self.flow.clone(), &self.tasks, &self.stopping);
        self.tasks.spawn(tasks::worker::run(self.flow.clone(), self.tasks.clone(), self.stopping.clone()));
    }

    /// Stops everything. Runs in progress stay as they are.
    pub(crate) async fn stop(self) {
        self.stopping.cancel();
        self.flow.parts.sessions.stop(Duration::ZERO).await;
        self.tasks.close();
        self.tasks.wait().await;
        self.flow.parts.database.close().await;
    }

    /// Sends a message to a session, answers every question, and waits for the end. Returns the questions.
    pub(crate) async fn tell(
        &self,
        key: &str,
        message: NewMessage,
        answer: ApprovalDecision,
    ) -> Vec<Question> {
        let sessions = &self.flow.parts.sessions;
        let key = sessions.key(key, None).unwrap();
        let from = "operator".to_owned();
        sessions.send(&key, NewMessage { from, ..message }).await.unwrap();
        let mut questions: Vec<Question> = Vec::new();
        eventually("the end of the conversation", async || {
            let status = sessions.status(&key).await.unwrap();
            for question in status.questions {
                if !questions.iter().any(|known| known.id == question.id) {
                    let id = Some(question.id.clone());
                    sessions.answer(&key, id, answer.clone(), "operator").await.unwrap();
                    questions.push(question);
                }
            }
            status.running.is_none()
        })
        .await;
        questions
    }

    /// The labels of a session.
    pub(crate) async fn labels(&self, key: &str) -> Vec<Label> {
        let key = self.flow.parts.sessions.key(key, None).unwrap();
        self.flow.parts.sessions.status(&key).await.unwrap().labels
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A client token for one agent.
pub(crate) fn token_for(agent: &str) -> Identity {
    let info = serde_json::json!({
        "name": "program", "agents": [agent], "readOnly": false, "created": 0, "tools": null, "expires": null,
        "lastUsed": null, "revoked": null, "connections": 0,
    });
    let info = serde_json::from_value(info).unwrap();
    Identity::Client(Arc::new(gantry_store::ClientToken { id: "t".into(), generation: 1, info }))
}

/// A message with this text and these labels.
pub(crate) fn message(text: &str, labels: &[Label]) -> NewMessage {
    NewMessage { text: text.into(), labels: labels.to_vec(), ..NewMessage::default() }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
