//! Effects of a session: requests to the model, tool calls and summaries. Each runs as a task, and its outcome
//! is an [`EffectOutcome`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gantry_model::{Block, Reply, Request, StreamEvent};
use gantry_protocol::SessionEvent;
use gantry_store::{ACCOUNT_SEPARATOR, DatabaseError};
use gantry_tool::{
    Answer as ToolAnswer, Approval, Approver, Autonomy, Call, Consent, Label, Outcome, Principal,
    ProgressSink, Refusal, RefusalCode, Surface, Tool, UserAnswers, UserAsker, UserQuestion, View,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::compaction::Summary;
use super::{Command, Driver, is_asking};
use crate::agent::{Agent, FlowRule};
use crate::child::Payer;
use crate::context::Window;
use crate::data_locations::DataLocations;
use crate::entry::{CallResult, Entry};
use crate::feed::Feed;
use crate::flow::Flow;
use crate::models::{Asker, ModelFailure};
use crate::prompt::{self, PromptContext};
use crate::sessions::{Shared, now_ms};
use crate::state::{CallStatus, PendingCall};
use crate::tool_search;
use crate::toolbox::{self, Toolbox};

/// The highest number of concurrent calls in one session.
const MAX_CONCURRENT_CALLS: usize = 10;
/// The time limit of a call whose tool sets none, including the time for its approval.
const LONGEST_CALL: Duration = Duration::from_secs(24 * 3600);

/// The source in marks of files that background commands changed.
const BACKGROUND_COMMANDS: &str = "a background command";

/// The outcome of an effect.
pub(super) enum EffectOutcome {
    Replied {
        generation: u64,
        reply: Result<Reply, ModelFailure>,
    },
    Called {
        generation: u64,
        call: String,
        result: CallResult,
    },
    /// The summary for the part of the conversation before `at`.
    Summed {
        generation: u64,
        at: usize,
        summary: Summary,
    },
    /// The task panicked.
    Broken {
        generation: u64,
        why: String,
    },
}

/// The prompt, the tools and the window of a run. Prepared once per run.
pub(super) struct Prepared {
    pub(super) window: Window,
    pub(super) toolbox: Toolbox,
    pub(super) view: View,
    /// The request without its messages.
    pub(super) request: Request,
    /// The labels of the prompt.
    pub(super) labels: Vec<Label>,
}

impl Driver {
    pub(super) async fn prepare(&self, agent: &Agent) -> Result<Prepared, String> {
        let parts = &self.shared.parts;
        let state = self.state();
        if self.fixed_call().is_some() {
            return Ok(self.prepare_fixed_call(agent));
        }
        let wanted = state.and_then(|state| state.model.clone()).or_else(|| agent.model.clone());
        let mut facts = parts.model.facts(wanted.as_deref()).await?;
        let learned = state.and_then(|state| state.learned.as_ref());
        if let Some(learned) = learned.filter(|learned| learned.model == facts.name) {
            facts.window = facts.window.min(learned.tokens);
        }
        let nodes = (parts.nodes)();
        let settings = self.shared.settings();
        let context =
            PromptContext { objects: &parts.objects, nodes: &nodes, zone: &settings.zone, now: now_ms() };
        let prompt = prompt::assemble(&self.key, agent, self.child(), &context).await;
        let labels = prompt.labels(&self.shared.marks).await.map_err(|err| err.to_string())?;
        let found = state.map(|state| state.found_tools.as_slice()).unwrap_or_default();
        let offered = found.iter().fold(agent.shown.clone(), |shown, name| shown.including(name));
        let shown = parts.gate.registry().view(&offered.within(agent.scope.clone()));
        // The model may also call tools that it is not offered.
        let view = parts.gate.registry().view(&agent.scope);
        let mut toolbox = Toolbox::new(&shown);
        if view.entries().len() > shown.entries().len() {
            toolbox.add_search(&self.shared.search);
        }
        // An answer gets at most a quarter of the window. The rest is for the conversation.
        let quarter = u32::try_from(facts.window / 4).unwrap_or(u32::MAX);
        let max_tokens = facts.max_output.min(quarter).max(256).min(agent.max_tokens.unwrap_or(u32::MAX));
        let request = Request {
            model: facts.name,
            system: prompt.system,
            messages: Vec::new(),
            tools: toolbox.specs.clone(),
            native_web_search: false,
            max_tokens,
            thinking: state.and_then(|state| state.thinking).unwrap_or(agent.thinking),
            effort: state.and_then(|state| state.effort).or(agent.effort),
        };
        Ok(Prepared { window: Window::new(facts.window, &request), toolbox, view, request, labels })
    }

    pub(super) async fn begin_request(&mut self) -> Result<(), DatabaseError> {
        let Some(loaded) = &self.loaded else { return Ok(()) };
        let (Some(prepared), Some(run)) = (loaded.prepared.clone(), loaded.state.run.as_ref()) else {
            return Ok(());
        };
        let run = run.id.clone();
        let mut request = Request { messages: loaded.state.messages.clone(), ..prepared.request.clone() };
        // The provider's own search sends data out without an approval, so it must not see private data.
        let holds_private = loaded.state.flow.labels().contains(&Label::Private);
        request.native_web_search = self.agent().native_web_search && !holds_private;
        self.append(vec![Entry::RequestBegun { model: prepared.request.model.clone() }]).await?;
        let (asker, mut filter) = (self.asker(&run), self.output_filter());
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let (shared, feed) = (self.shared.clone(), self.feed.clone());
        let (generation, cancel) = (loaded.generation, loaded.cancel.clone());
        loaded.effects.spawn(async move {
            let mut publish =
                |event| filter.event(event).into_iter().for_each(|event| publish_stream(&feed, &run, event));
            let reply = shared.parts.model.answer(&asker, &request, &cancel, &mut publish).await;
            filter.finish().into_iter().for_each(|event| publish_stream(&feed, &run, event));
            EffectOutcome::Replied { generation, reply: reply.map(with_ids) }
        });
        Ok(())
    }

    /// Returns the account that pays for a request.
    pub(super) fn asker(&self, run: &str) -> Asker {
        let Payer { account, budgets } = self.payer(run);
        let run = account.split(ACCOUNT_SEPARATOR).next().unwrap_or_default().to_owned();
        Asker { agent: self.key.agent.clone(), run, account, budgets }
    }

    /// Starts as many of the calls as may run concurrently. Returns false if none can start now.
    pub(super) async fn begin_calls(&mut self, waiting: Vec<String>) -> Result<bool, DatabaseError> {
        let agent = self.agent();
        let Some(loaded) = &self.loaded else { return Ok(false) };
        let Some(prepared) = loaded.prepared.clone() else { return Ok(false) };
        let calls = loaded.state.calls();
        let begun = calls.iter().filter(|call| matches!(call.status, CallStatus::Begun { .. })).count();
        let (mut entries, mut starting, mut changes) = (Vec::new(), Vec::new(), false);
        let limit =
            (prepared.window.results_chars() / calls.len().max(1)).min(prepared.window.result_chars());
        (self.shared.parts.session_labels)(&self.key.key, &loaded.state.flow.labels());
        self.shared.mark_changed_files(BACKGROUND_COMMANDS).await?;
        let workspaces = self.shared.workspaces();
        for id in waiting.into_iter().take(MAX_CONCURRENT_CALLS.saturating_sub(begun)) {
            let Some(call) = loaded.state.call(&id) else { continue };
            let name = prepared.toolbox.real_name(&call.name);
            let about = call_of(&self.key.agent, &agent);
            let (gate, tool) = (&self.shared.parts.gate, prepared.toolbox.tool(&call.name, &prepared.view));
            let meant = gate.tools_meant(&about, &name, &call.input);
            let kind = prepared.toolbox.kind(&call.name, &prepared.view, &about, &meant);
            let (tool, input) = (tool.as_deref(), &call.input);
            let places = DataLocations::of(gate, tool, &about, &name, input, &workspaces).await;
            // What the call carries with it: what the run has read, and what the call itself can read.
            let mut carried = loaded.state.flow.clone();
            if places.runs_commands() || (kind.reaches_outside && places.takes_along()) {
                carried.add(&[Label::Private], &format!("what {name} itself can read"));
            }
            if let Some(source) = places.source(&self.shared).await? {
                carried.add(&[Label::Untrusted], &format!("files written after {source}"));
            }
            entries.push(Entry::CallBegun { call: id, read_only: kind.read_only, polls: kind.polls });
            changes |= !tool.is_some_and(Tool::is_read_only);
            let (mut stored, outside) = (loaded.state.flow.clone(), kind.reaches_outside);
            if let Some(tool) = tool.filter(|_| outside && places.stores_here()) {
                // The files that the call writes contain what it fetches.
                stored.add(&tool.result_labels(&about), &name);
            }
            starting.push(Starting { call: call.clone(), name, limit, places, stored, carried, outside });
        }
        if entries.is_empty() {
            return Ok(false);
        }
        self.apply(entries)?;
        // A read-only call may be repeated, so it need not wait for the disk. A resumable call has to wait: the next
        // process resumes it only if the journal says that it started.
        if changes {
            self.flush().await?;
        }
        for start in starting {
            self.spawn_call(&agent, start);
        }
        Ok(true)
    }

    /// Whether calls are running and all of them are read-only.
    pub(super) fn only_reads(&self) -> bool {
        let calls = self.loaded.as_ref().map(|loaded| loaded.state.calls()).unwrap_or_default();
        let reads = |call: &PendingCall| matches!(call.status, CallStatus::Begun { read_only: true, .. });
        !calls.is_empty() && calls.iter().all(reads)
    }

    fn spawn_call(&mut self, agent: &Agent, start: Starting) {
        let isolated = self.child().is_some_and(|child| child.isolated_memory);
        let is_attended = !self.is_unattended();
        let Some(loaded) = &mut self.loaded else { return };
        let run = loaded.state.run.as_ref().map(|run| run.id.clone()).unwrap_or_default();
        let mut call = call_of(&self.key.agent, agent);
        call.memory_owner = isolated.then(|| self.key.key.clone());
        call.step = Some(loaded.state.step(&self.key.key, &start.call.id));
        call.labels = start.carried.labels();
        call.private_from = start.carried.private_from().map(str::to_owned);
        call.holds_both = start.carried.both().filter(|_| agent.flow == FlowRule::Ask);
        call.session = Some(self.key.key.clone());
        call.cancel = loaded.cancel.child_token();
        call.max_result_chars = Some(start.limit);
        call.deadline = Instant::now().checked_add(LONGEST_CALL);
        call.progress = Some(progress(self.feed.clone(), run, start.call.id.clone()));
        let asking = Asking { commands: self.commands.downgrade(), call: start.call.id.clone() };
        let own = asking.clone();
        let limit = Duration::from_secs(u64::from(agent.approval_minutes) * 60 + 60);
        let names: Vec<String> =
            std::iter::once(self.key.agent.clone()).chain(call.policy_agents.iter().cloned()).collect();
        let shared = self.shared.clone();
        let approver = Approver::new(move |approval| {
            let (asking, names, shared) = (own.clone(), names.clone(), shared.clone());
            async move {
                let before = shared.settings();
                match asking.ask(approval).await {
                    Consent::Allowed | Consent::Granted(_)
                        if !shared.settings().same_rights(&before, &names) =>
                    {
                        Consent::Denied(
                            "the agent's configuration changed while the question was open".into(),
                        )
                    }
                    consent => consent,
                }
            }
        });
        call.approver = is_attended.then(|| approver.within(limit));
        if is_attended && agent.autonomy != Autonomy::Autonomous {
            let own = asking.clone();
            call.asker = Some(UserAsker::new(move |questions| {
                let asking = own.clone();
                async move { asking.ask_user(questions).await }
            }));
        }
        let (shared, generation) = (self.shared.clone(), loaded.generation);
        loaded.effects.spawn(async move {
            let id = start.call.id.clone();
            let result = perform(&shared, call, start).await;
            EffectOutcome::Called { generation, call: id, result }
        });
    }

    /// Records the outcome of an effect, unless its run has ended.
    pub(super) fn finished(&mut self, effect: EffectOutcome) -> Result<(), DatabaseError> {
        let filter = self.output_filter();
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        match effect {
            EffectOutcome::Replied { generation, reply }
                if generation == loaded.generation && is_asking(&loaded.state) =>
            {
                let entry = match reply {
                    Ok(reply) => Entry::Replied { reply: Box::new(filter.reply(reply)) },
                    Err(failure) => loaded.request_failed(&failure),
                };
                self.apply(vec![entry])
            }
            EffectOutcome::Called { generation, call, result } if generation == loaded.generation => {
                if !result.found_tools.is_empty() {
                    // The next request offers these tools.
                    loaded.prepared = None;
                }
                self.apply(vec![Entry::CallEnded { call, result }])
            }
            EffectOutcome::Summed { generation, at, summary } if generation == loaded.generation => {
                let entry = loaded.compacted(at, summary);
                self.apply(entry.into_iter().collect())
            }
            EffectOutcome::Broken { generation, why } if generation == loaded.generation => {
                Err(DatabaseError::Refused(format!("an internal error: {why}")))
            }
            _ => Ok(()),
        }
    }
}

fn call_of(id: &str, agent: &Agent) -> Call {
    let principal = Principal::Agent { id: id.to_owned() };
    let mut call = Call::new(principal, Surface::Agent, agent.workspace.clone());
    call.autonomy = agent.autonomy;
    call.scope = agent.scope.clone();
    call.default_node.clone_from(&agent.node);
    call.policy_agents.clone_from(&agent.policy_agents);
    call
}

/// A call whose start is recorded.
struct Starting {
    call: PendingCall,
    name: String,
    /// The highest length of its result, in characters.
    limit: usize,
    places: DataLocations,
    /// The labels of what the call writes: those of the run, and those of what the call fetches and stores.
    stored: Flow,
    /// The labels of the run, and those of what the call itself can read.
    carried: Flow,
    /// The call reaches the network.
    outside: bool,
}

/// Sends a call's questions to its session.
#[derive(Clone)]
struct Asking {
    /// Weak, so that a question does not keep a finished session alive.
    commands: mpsc::WeakSender<Command>,
    call: String,
}

impl Asking {
    async fn ask(&self, approval: Approval) -> Consent {
        let ended = || Consent::Denied("the session has ended, so no user can be asked".into());
        let Some(commands) = self.commands.upgrade() else { return ended() };
        let (consent, answered) = oneshot::channel();
        if commands.send(Command::Ask { call: self.call.clone(), approval, consent }).await.is_err() {
            return ended();
        }
        drop(commands);
        answered.await.unwrap_or_else(|_| ended())
    }

    async fn ask_user(&self, questions: Vec<UserQuestion>) -> UserAnswers {
        let commands = self.commands.upgrade()?;
        let (answers, answered) = oneshot::channel();
        commands.send(Command::AskUser { call: self.call.clone(), questions, answers }).await.ok()?;
        drop(commands);
        answered.await.ok().flatten()
    }
}

async fn perform(shared: &Shared, mut call: Call, start: Starting) -> CallResult {
    let Starting { call: pending, name, places, stored, outside, .. } = start;
    // Marks are written before the effect: a crash in between leaves one mark too many, never one too few.
    let new_marks = match mark(shared, &places, &stored).await {
        Ok(new_marks) => new_marks,
        Err(err) => {
            let message = format!("cannot store the labels of this call: {err}");
            let refusal = Refusal::new(RefusalCode::Unavailable, message);
            return toolbox::result(Outcome::refused(&call, &name, refusal), "");
        }
    };
    let is_search = name == tool_search::NAME;
    let gate = if is_search { &shared.search } else { &*shared.parts.gate };
    if is_search {
        call.scope = call.scope.including(tool_search::NAME);
    }
    let (findings, workspace, begun) = (call.findings.clone(), call.workspace.clone(), SystemTime::now());
    let mut outcome = gate.dispatch(call, &name, pending.input).await;
    if !findings.has_run() {
        // If this fails, the marks stay: one too many, never one too few.
        let _ = shared.marks.take_back(&new_marks).await;
        // The refusal is Gantry's own text.
        return toolbox::result(outcome, "");
    }
    let marked = shared.mark_changed_files(&name).await;
    let found_tools = if is_search { tool_search::found(&outcome.answer) } else { Vec::new() };
    // Checked again, because the paths may have been written meanwhile. An error counts as untrusted.
    let untrusted = marked.is_err() || !matches!(places.source(shared).await, Ok(None));
    // A command that had network may have downloaded what it wrote.
    let is_download = places.changes_unknown_files() && outcome.labels.contains(&Label::Untrusted);
    if is_download && let Err(err) = shared.mark_downloads(workspace, begun, &name).await {
        outcome.warnings.push(format!("cannot store the labels of what the command wrote: {err}"));
    }
    // Content that a machine fetched from elsewhere is not that machine's own.
    let machine = places.machine().filter(|_| !outside && !untrusted).map(str::to_owned);
    let is_answered = places.may_be_answered() && !matches!(outcome.answer, ToolAnswer::Success(_));
    let private = !matches!(places.are_private(&shared.marks).await, Ok(false));
    for (label, holds) in [(Label::Untrusted, untrusted || is_answered), (Label::Private, private)] {
        if holds && !outcome.labels.contains(&label) {
            outcome.labels.push(label);
        }
    }
    let command = if places.runs_commands() { toolbox::command_end(&outcome.answer) } else { None };
    let private_from = findings.private_from().filter(|_| !private && machine.is_none());
    let mark = Uuid::new_v4().simple().to_string()[..12].to_owned();
    CallResult { machine, private_from, command, found_tools, ..toolbox::result(outcome, &mark) }
}

/// Marks the paths that a call writes. Data written after untrusted content was read may contain it, and so may copies.
async fn mark(shared: &Shared, places: &DataLocations, flow: &Flow) -> Result<Vec<String>, DatabaseError> {
    places.mark_private(&shared.marks, flow, now_ms()).await?;
    match flow.source().or(places.source(shared).await?) {
        Some(source) => places.mark(&shared.marks, flow, &source, now_ms()).await,
        None => Ok(Vec::new()),
    }
}

/// Gives every call a unique id, because results are matched by id.
fn with_ids(mut reply: Reply) -> Reply {
    let mut seen = std::collections::HashSet::new();
    for block in &mut reply.message.content {
        if let Block::ToolUse { id, .. } = block
            && (id.is_empty() || !seen.insert(id.clone()))
        {
            *id = format!("call_{}", Uuid::new_v4().simple());
            seen.insert(id.clone());
        }
    }
    reply
}

fn publish_stream(feed: &Feed, run: &str, event: StreamEvent) {
    let run = run.to_owned();
    let event = match event {
        StreamEvent::Text(delta) | StreamEvent::Thinking(delta) if delta.is_empty() => return,
        StreamEvent::Text(delta) => SessionEvent::Text { run, delta },
        StreamEvent::Thinking(delta) => SessionEvent::Thinking { run, delta },
        StreamEvent::ToolBegin { id, name } => SessionEvent::CallWriting { run, call: id, tool: name },
        StreamEvent::ToolInput { id, partial } => SessionEvent::CallInput { run, call: id, delta: partial },
        StreamEvent::Restart { reason } => SessionEvent::Restart { run, reason },
        StreamEvent::Done(_) => return,
    };
    feed.send(event);
}

fn progress(feed: Arc<Feed>, run: String, call: String) -> ProgressSink {
    ProgressSink::new(move |progress| {
        let (run, call, message) = (run.clone(), call.clone(), progress.message);
        let event =
            SessionEvent::ToolProgress { run, call, done: progress.done, total: progress.total, message };
        feed.send(event);
    })
}
