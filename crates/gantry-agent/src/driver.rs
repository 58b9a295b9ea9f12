//! [`Driver`] performs the steps of one session: it asks the model, runs calls and waits for answers.
//!
//! The start of an effect is on disk before the effect begins. Its outcome is on disk before anything
//! follows from it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::SessionEvent;
use gantry_store::{Append, ChannelEvent, DatabaseError, NewEvent, NewOutboxMessage};
use gantry_tool::{Capability, Consent, UserAnswers};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::context::Window;
use crate::data_locations;
use crate::driver::effects::{EffectOutcome, Prepared};
use crate::entry::{End, Entry, Incoming};
use crate::feed::Feed;
use crate::key::SessionKey;
use crate::pairs::{PER_MINUTE, agent_of};
use crate::reset;
use crate::sessions::{SessionError, Sessions, Shared, now_ms};
use crate::state::{AGENT, CallStatus, Phase, State};
use crate::step::{self, Limits, Step};

mod approvals;
mod child_session;
mod command;
mod compaction;
mod effects;
mod events;
mod fixed_call;
mod output_filter;
mod status;
mod user_questions;

pub(crate) use command::Command;
use command::{Done, refuse};
use events::{event_of, final_event};
pub use status::Status;

/// The end of a run writes a checkpoint after this many events.
const CHECKPOINT_EVENTS: i64 = 1_000;
/// The pause after a failed write to the journal.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// If a read-only call ends within this time, its start and end are written together.
const QUICK: Duration = Duration::from_millis(3);
/// Entries after which no reply is being written.
const ENDS_OF_REPLIES: [&str; 6] =
    ["request_begun", "replied", "request_lost", "request_failed", "run_ended", "reset"];
/// The highest number of messages that wait in one session.
const MAX_QUEUE: usize = 1_000;
/// Characters of the first message in a session's label.
const LABEL_CHARS: usize = 60;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    key: SessionKey,
    commands: mpsc::Sender<Command>,
    feed: Arc<Feed>,
    loaded: Option<Loaded>,
}

/// A session in memory, and its running effects.
struct Loaded {
    state: State,
    /// The number of the next journal event.
    next_seq: i64,
    /// Entries that are applied to the state and not yet in the journal.
    unwritten: Vec<NewEvent>,
    /// Events to publish when these entries are on disk.
    unpublished: Vec<SessionEvent>,
    /// Events of chats that are written together with these entries.
    channel_events: Vec<ChannelEvent>,
    /// Messages to people that are written together with these entries.
    outbox: Vec<NewOutboxMessage>,
    /// Senders that are notified when these entries are on disk.
    accepted: Vec<Done<Option<SessionEvent>>>,
    checkpoint: i64,
    /// The prompt and tools of the run in progress.
    prepared: Option<Arc<Prepared>>,
    effects: JoinSet<EffectOutcome>,
    /// Incremented when a run is stopped, so that its late effects are ignored.
    generation: u64,
    cancel: CancellationToken,
    compacting: bool,
    /// Calls that wait for an approval, by question.
    asking: HashMap<String, Vec<oneshot::Sender<Consent>>>,
    /// Calls that wait for the user's answers, by question.
    asking_user: HashMap<String, Vec<oneshot::Sender<UserAnswers>>>,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: SessionKey,
        commands: mpsc::Sender<Command>,
        feed: Arc<Feed>,
    ) -> Driver {
        Driver { shared, key, commands, feed, loaded: None }
    }

    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let stopping = self.shared.stopping.clone();
        loop {
            let pause = self.pause();
            let failed = tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                // `self` holds a sender, so the channel never closes.
                Some(command) = commands.recv() => self.command(command).await,
                effect = next_effect(&mut self.loaded) => self.finished(effect),
                () = tokio::time::sleep(pause) => self.time_passed().await,
            };
            let failed = match failed {
                Ok(()) => self.proceed().await,
                failed => failed,
            };
            if let Err(err) = failed {
                self.report_failure(&err).await;
            }
            if self.loaded.is_none() && commands.is_empty() && self.shared.forget(&self.key.key) {
                return self.hand_over(commands).await;
            }
        }
        self.drain().await;
    }

    /// Ends this driver, which is idle and has no listeners. Commands that arrive meanwhile go to the next driver.
    async fn hand_over(self, mut commands: mpsc::Receiver<Command>) {
        commands.close();
        let sessions = Sessions::of(self.shared.clone());
        while let Some(command) = commands.recv().await {
            sessions.send_command(&self.key, command).await;
        }
    }

    /// Returns the session, loaded from the journal if necessary. Loading first recovers effects of an earlier process.
    async fn load(&mut self) -> Result<&mut Loaded, DatabaseError> {
        if self.loaded.is_none() {
            let session = self.shared.parts.journal.open(&self.key.key, &self.key.agent, now_ms()).await?;
            let state = child_session::folded(&session)?;
            let left = step::recover(&state);
            self.feed.wrote(session.row.next_seq, false, Vec::new());
            self.loaded = Some(Loaded {
                state,
                next_seq: session.row.next_seq,
                unwritten: Vec::new(),
                unpublished: Vec::new(),
                channel_events: Vec::new(),
                outbox: Vec::new(),
                accepted: Vec::new(),
                checkpoint: session.events.first().map_or(0, |first| first.seq),
                prepared: None,
                effects: JoinSet::new(),
                generation: 0,
                cancel: CancellationToken::new(),
                compacting: false,
                asking: HashMap::new(),
                asking_user: HashMap::new(),
            });
            if !left.is_empty() {
                self.mark_interrupted(&left).await?;
                self.append(left).await?;
            }
            if self.is_orphan().await? {
                self.end_orphan().await?;
            }
        }
        self.loaded.as_mut().ok_or_else(|| DatabaseError::Refused("the session is not loaded".into()))
    }

    /// Marks the workspace if the gateway stopped while commands ran there: nobody looked for the files they changed.
    async fn mark_interrupted(&self, left: &[Entry]) -> Result<(), DatabaseError> {
        let agent = self.agent();
        let view = self.shared.parts.gate.registry().view(&agent.scope);
        let runs_commands = |name: &str| {
            let tool = view.find(name);
            tool.is_none_or(|tool| tool.capability_ids().contains(&Capability::ShellExec))
        };
        for entry in left {
            let Entry::CallInterrupted { call } = entry else { continue };
            if let Some(call) = self.state().and_then(|state| state.call(call))
                && runs_commands(&call.name)
            {
                let source = format!("{}, which was interrupted", call.name);
                let place = data_locations::path_text(&agent.workspace);
                self.shared.marks.add(&place, &data_locations::shortened(&source), now_ms()).await?;
            }
        }
        Ok(())
    }

    fn state(&self) -> Option<&State> {
        self.loaded.as_ref().map(|loaded| &loaded.state)
    }

    /// Applies entries, writes them to the journal and publishes their events.
    async fn append(&mut self, entries: Vec<Entry>) -> Result<(), DatabaseError> {
        self.apply(entries)?;
        self.flush().await
    }

    /// Applies entries in memory. They must be flushed before anything outside follows from them.
    /// Consecutive entries are written together, because each write waits for the disk.
    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), DatabaseError> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        for entry in entries {
            let data = serde_json::to_string(&entry)
                .map_err(|cause| DatabaseError::Damaged { doing: "write the journal", cause })?;
            let checkpoint = entry.is_checkpoint();
            loaded.unwritten.push(NewEvent { kind: entry.kind(), data, checkpoint });
            if let Some(event) = event_of(&self.shared.parts.gate, &loaded.state, &entry) {
                if let Some(outgoing) = self.shared.outgoing() {
                    let labels = loaded.state.flow.labels();
                    loaded.outbox.extend(outgoing.messages(&self.key, &event, &labels));
                }
                loaded.unpublished.push(event);
            }
            if checkpoint {
                loaded.checkpoint = loaded.next_seq;
            }
            if matches!(entry, Entry::RunEnded { .. } | Entry::Reset { .. }) {
                loaded.prepared = None;
            }
            loaded.next_seq += 1;
            loaded.state.apply(entry);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DatabaseError> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        if loaded.unwritten.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut loaded.unwritten);
        let expected = loaded.next_seq - i64::try_from(events.len()).unwrap_or(i64::MAX);
        let has_work = loaded.state.has_work();
        let channel_events = std::mem::take(&mut loaded.channel_events);
        let outbox = std::mem::take(&mut loaded.outbox);
        let sends = !outbox.is_empty();
        let key = self.key.key.clone();
        let ends_reply = events.iter().any(|event| ENDS_OF_REPLIES.contains(&event.kind));
        let append = Append { key, expected, at: now_ms(), events, has_work, channel_events, outbox };
        self.shared.parts.journal.append(append).await?;
        if let Some(outgoing) = self.shared.outgoing().filter(|_| sends) {
            outgoing.stored();
        }
        let unpublished = std::mem::take(&mut loaded.unpublished);
        for accepted in loaded.accepted.drain(..) {
            let _ = accepted.send(Ok(None));
        }
        unpublished.iter().for_each(|event| self.publish_elsewhere(event));
        let entries = self.loaded.as_ref().map_or(expected, |loaded| loaded.next_seq);
        self.feed.wrote(entries, ends_reply, unpublished);
        Ok(())
    }

    fn publish(&self, event: SessionEvent) {
        self.publish_elsewhere(&event);
        self.feed.send(event);
    }

    /// Publishes an event to all but the listeners of this session.
    fn publish_elsewhere(&self, event: &SessionEvent) {
        events::log(event, &self.key.key);
        // Questions of a child are answered in its root session.
        if let Some(child) = self.child()
            && child.root != self.key.key
            && events::is_question(event)
        {
            self.shared.publish(&child.root, event.clone());
        }
        self.shared.publish_to_all(&self.key.key, event);
    }

    /// Performs steps until the session is idle or waits for an effect.
    async fn proceed(&mut self) -> Result<(), DatabaseError> {
        let mut reads_until = None;
        while self.loaded.as_ref().is_some_and(|loaded| !loaded.compacting) {
            let Some(limits) = self.limits().await? else { continue };
            let Some(loaded) = &self.loaded else { return Ok(()) };
            match step::next(&loaded.state, &limits, now_ms()) {
                Step::Idle => {
                    self.write_checkpoint()?;
                    break;
                }
                Step::Wait => {
                    let until: Option<Instant> = reads_until.filter(|_| self.only_reads());
                    let Some(until) = until else { break };
                    // A short call is written together with its end. Longer calls are not waited for here.
                    match tokio::time::timeout_at(until, next_effect(&mut self.loaded)).await {
                        Ok(effect) => self.finished(effect)?,
                        Err(_) => break,
                    }
                }
                Step::Record(entries) => self.apply(entries)?,
                Step::Ask => match self.fixed_reply() {
                    Some(entries) => self.apply(entries)?,
                    None => self.begin_request().await?,
                },
                Step::Call(calls) => {
                    if !self.begin_calls(calls).await? {
                        break;
                    }
                    reads_until = Some(Instant::now() + QUICK);
                }
                Step::Compact => self.begin_compaction(),
            }
        }
        self.flush().await
    }

    /// Returns the limits of the run in progress. Returns `None` if there is no model, which ends the run.
    async fn limits(&mut self) -> Result<Option<Limits>, DatabaseError> {
        let agent = self.agent();
        let running = self.state().is_some_and(|state| state.run.is_some());
        if running && self.loaded.as_ref().is_some_and(|loaded| loaded.prepared.is_none()) {
            match self.prepare(&agent).await {
                Ok(prepared) => {
                    let mut labels = prepared.labels.clone();
                    if let Some(loaded) = &mut self.loaded {
                        loaded.prepared = Some(Arc::new(prepared));
                        let known = loaded.state.flow.labels();
                        labels.retain(|label| !known.contains(label));
                    }
                    if !labels.is_empty() {
                        self.apply(vec![Entry::Labelled { labels, by: "the agent's own files".into() }])?;
                    }
                }
                Err(error) => {
                    self.apply(vec![Entry::RunEnded { end: End::Failed { error } }])?;
                    return Ok(None);
                }
            }
        }
        let window = self.loaded.as_ref().and_then(|loaded| Some(loaded.prepared.as_ref()?.window));
        let window = window.unwrap_or(Window::UNKNOWN);
        Ok(Some(Limits { requests: agent.max_requests, window }))
    }

    fn agent(&self) -> Agent {
        let settings = self.shared.settings();
        let mut own = settings.agent(&self.key.agent).cloned().unwrap_or_default();
        if let Some(child) = self.child() {
            return child.limited(own, &settings.agents);
        }
        if let Some(workspace) = self.state().and_then(|state| state.workspace.clone()) {
            own.workspace = workspace;
        }
        own
    }

    async fn command(&mut self, command: Command) -> Result<(), DatabaseError> {
        if let Err(err) = self.load().await {
            refuse(command, &err);
            return Err(err);
        }
        match command {
            Command::Wake => Ok(()),
            Command::Message { incoming, workspace, channel_event, done } => match self.too_many(&incoming) {
                Some(message) => {
                    let _ = done.send(Err(SessionError::Refused(message)));
                    Ok(())
                }
                None => self.accept_message(incoming, workspace, channel_event, done).await,
            },
            Command::Notice { notice, done } => {
                let is_new = self.state().is_some_and(|state| !state.knows(&notice.id));
                if is_new {
                    self.append(vec![Entry::Notice(notice)]).await?;
                }
                let _ = done.send(Ok(is_new));
                Ok(())
            }
            Command::StartChild { child, incoming, done } => self.start_as_child(child, incoming, done).await,
            Command::Stop { by, done } => {
                let running = self.state().is_some_and(|state| state.run.is_some());
                if running {
                    self.append(vec![Entry::StopAsked { by }]).await?;
                    self.cancel_effects();
                }
                let text = if running { "the run is stopped" } else { "no run is in progress" };
                let _ = done.send(Ok(text.to_owned()));
                Ok(())
            }
            Command::Reset { why, done } => {
                if self.state().is_some_and(|state| state.run.is_some()) {
                    let message = "a run is in progress; /stop it first".to_owned();
                    let _ = done.send(Err(SessionError::Refused(message)));
                    return Ok(());
                }
                self.reset_conversation(why).await?;
                let _ = done
                    .send(Ok("the conversation was reset; the journal keeps the earlier messages".into()));
                Ok(())
            }
            Command::Compact { done } => {
                let started = self.compact_now().await;
                let _ =
                    done.send(started.map(str::to_owned).map_err(|why| SessionError::Refused(why.into())));
                Ok(())
            }
            Command::Set { model, thinking, effort, done } => {
                self.append(vec![Entry::Set { model, thinking, effort, workspace: None }]).await?;
                if let Some(loaded) = &mut self.loaded {
                    loaded.prepared = None;
                }
                let _ = done.send(Ok(()));
                Ok(())
            }
            Command::Status { done } => {
                let status = self.status().await;
                let _ = done.send(status.ok_or(SessionError::Stopping));
                Ok(())
            }
            Command::Settled { message, done } => {
                let _ = done.send(Ok(self.state().and_then(|state| final_event_of(state, &message))));
                Ok(())
            }
            Command::Answer { question, answer, by, done } => self.answer(question, answer, by, done).await,
            Command::Ask { call, approval, consent } => self.ask(&call, approval, consent).await,
            Command::AskUser { call, questions, answers } => self.ask_user(&call, questions, answers).await,
            Command::Reply { question, answers, by, done } => self.reply(question, answers, by, done).await,
        }
    }

    async fn accept_message(
        &mut self,
        incoming: Incoming,
        workspace: Option<PathBuf>,
        channel_event: Option<ChannelEvent>,
        done: Done<Option<SessionEvent>>,
    ) -> Result<(), DatabaseError> {
        let Some(state) = self.state() else { return Ok(()) };
        if state.knows(&incoming.id) {
            let _ = done.send(Ok(final_event_of(state, &incoming.id)));
            return Ok(());
        }
        if state.queue.len() >= MAX_QUEUE {
            let message =
                format!("{MAX_QUEUE} messages already wait in this session; wait until it has answered some");
            let _ = done.send(Err(SessionError::Refused(message)));
            return Ok(());
        }
        let agent = self.agent();
        let due = reset::due(agent.reset, state.last_activity, incoming.at, &self.shared.settings().zone);
        let is_new = state.has_work() || state.messages.is_empty();
        if let Some(why) = due.filter(|_| !is_new) {
            self.reset_conversation(why).await?;
        }
        let is_idle = self.state().is_some_and(|state| !state.has_work());
        // A run keeps its directory, because its calls, grants and labels refer to it.
        let moves = workspace.filter(|workspace| is_idle && self.agent().workspace != *workspace);
        if moves.is_some() {
            self.apply(vec![Entry::Set { model: None, thinking: None, effort: None, workspace: moves }])?;
        }
        let is_first = self.state().is_some_and(|state| state.messages.is_empty() && !state.has_work());
        if is_first && self.child().is_none() {
            self.shared.parts.journal.label(&self.key.key, Some(&first_words(&incoming.text))).await?;
        }
        self.apply(vec![Entry::MessageIn(incoming)])?;
        if let Some(loaded) = &mut self.loaded {
            loaded.channel_events.extend(channel_event);
            loaded.accepted.push(done);
        }
        Ok(())
    }

    /// Returns the reason to reject a message, if an agent has sent too many. The count over all sessions is in
    /// memory; after a restart only this session's journal counts.
    fn too_many(&self, incoming: &Incoming) -> Option<String> {
        let state = self.state()?;
        if !incoming.from.starts_with(AGENT) || state.knows(&incoming.id) {
            return None;
        }
        let (from, to) = (agent_of(&incoming.from), agent_of(&self.key.key));
        let here = state.written_by(&incoming.from, incoming.at) >= PER_MINUTE;
        (here || !self.shared.pairs.may_write(from, to, incoming.at)).then(|| {
            format!(
                "{from} has sent {PER_MINUTE} messages to {to} within a minute; wait, or put more into one message"
            )
        })
    }

    async fn reset_conversation(&mut self, why: String) -> Result<(), DatabaseError> {
        let now = now_ms();
        let Some(state) = self.state() else { return Ok(()) };
        let state = Box::new(state.reset(now));
        self.append(vec![Entry::Reset { why, at: now, state }]).await
    }

    async fn status(&self) -> Option<Status> {
        let loaded = self.loaded.as_ref()?;
        let state = &loaded.state;
        let agent = self.agent();
        let wanted = state.model.as_deref().or(agent.model.as_deref());
        let model = self.shared.parts.model.facts(wanted).await.map_or_else(|why| why, |facts| facts.name);
        Some(Status {
            session_key: self.key.key.clone(),
            agent: self.key.agent.clone(),
            model,
            workspace: agent.workspace.clone(),
            autonomy: agent.autonomy,
            running: state.run.as_ref().map(|run| run.id.clone()),
            queued: state.queue.len(),
            messages: state.messages.len(),
            events: loaded.next_seq,
            compactions: state.compactions,
            runs: state.runs,
            usage: state.usage,
            labels: state.flow.labels(),
            private_from: state.flow.private_from().map(str::to_owned),
            questions: state.open_questions().cloned().collect(),
            asks: state.open_asks().cloned().collect(),
            addressees: state.run.as_ref().map(|run| run.answers.clone()).unwrap_or_default(),
            child: state.child.clone(),
            payer: self.payer(state.run.as_ref().map_or("", |run| &run.id)),
        })
    }

    /// Cancels the effects of this run. Their outcomes are ignored.
    fn cancel_effects(&mut self) {
        let Some(loaded) = &mut self.loaded else { return };
        loaded.cancel.cancel();
        loaded.cancel = CancellationToken::new();
        loaded.generation += 1;
        loaded.compacting = false;
        loaded.asking.clear();
        loaded.asking_user.clear();
    }

    /// Writes a checkpoint, so that the next load does not have to read old entries.
    fn write_checkpoint(&mut self) -> Result<(), DatabaseError> {
        let Some(loaded) = &self.loaded else { return Ok(()) };
        if loaded.next_seq - loaded.checkpoint < CHECKPOINT_EVENTS {
            return Ok(());
        }
        let state = Box::new(loaded.state.clone());
        self.apply(vec![Entry::Snapshot { state }])
    }

    /// Returns the time until the next question expires or the session counts as idle.
    fn pause(&self) -> Duration {
        let expires = self.state().and_then(|state| {
            let questions = state.open_questions().map(|open| open.expires);
            questions.chain(state.open_asks().map(|open| open.expires)).min()
        });
        match expires {
            Some(at) => Duration::from_millis(u64::try_from(at.saturating_sub(now_ms())).unwrap_or(0))
                .min(self.shared.parts.idle),
            None => self.shared.parts.idle,
        }
    }

    async fn time_passed(&mut self) -> Result<(), DatabaseError> {
        self.expire_questions().await?;
        self.expire_asks().await?;
        if self.loaded.as_ref().is_some_and(|loaded| !loaded.state.has_work() && loaded.effects.is_empty()) {
            self.loaded = None;
        }
        Ok(())
    }

    /// Handles a failed write to the journal: the state in memory may be ahead of it, so it is discarded.
    async fn report_failure(&mut self, err: &DatabaseError) {
        let (run, messages) = self
            .state()
            .and_then(|state| state.run.as_ref())
            .map_or((None, Vec::new()), |run| (Some(run.id.clone()), run.answers.clone()));
        self.cancel_effects();
        for accepted in self.loaded.take().into_iter().flat_map(|loaded| loaded.accepted) {
            let _ = accepted.send(Err(SessionError::Refused(err.to_string())));
        }
        self.publish(SessionEvent::Error {
            run,
            message: format!("the session cannot continue: {err}"),
            messages,
        });
        tokio::time::sleep(RETRY_AFTER).await;
        // Retries, unless another command wakes the session first.
        let _ = self.commands.try_send(Command::Wake);
    }

    /// Stops with the gateway. Running calls may finish and are recorded; the next start recovers the others.
    async fn drain(&mut self) {
        let ending = self.shared.ending.clone();
        let registry = self.shared.parts.gate.registry().clone();
        // The next process resumes such a call.
        let is_resumable = |name: &str| registry.find(name).is_some_and(|tool| tool.is_resumable());
        loop {
            let is_calling = self.state().is_some_and(|state| {
                state.calls().iter().any(|call| {
                    matches!(call.status, CallStatus::Begun { .. })
                        && !is_resumable(&call.name)
                        && !call.questions.iter().any(|asked| asked.answer.is_none())
                        && !call.asks.iter().any(|ask| ask.answers.is_none())
                })
            });
            if !is_calling {
                break;
            }
            let failed = tokio::select! {
                () = ending.cancelled() => break,
                effect = next_effect(&mut self.loaded) => self.finished(effect),
            };
            if failed.is_err() || self.flush().await.is_err() {
                break;
            }
        }
        if self.state().is_some_and(State::has_work) {
            self.publish(SessionEvent::Suspended);
        }
        self.cancel_effects();
    }
}

/// Waits for the next effect to end. Waits forever while no effect runs.
async fn next_effect(loaded: &mut Option<Loaded>) -> EffectOutcome {
    let Some(loaded) = loaded else { return std::future::pending().await };
    match loaded.effects.join_next().await {
        Some(Ok(effect)) => effect,
        // The task panicked. Without this the run would wait forever.
        Some(Err(err)) => EffectOutcome::Broken { generation: loaded.generation, why: err.to_string() },
        None => std::future::pending().await,
    }
}

/// The beginning of a message, as the label of its conversation in lists.
fn first_words(text: &str) -> String {
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().filter(|c| !c.is_control()).collect();
    match words.char_indices().nth(LABEL_CHARS) {
        Some((at, _)) => format!("{}…", words[..at].trim_end()),
        None => words,
    }
}

/// Returns the final event of a message, if its run is among the last ones.
fn final_event_of(state: &State, message: &str) -> Option<SessionEvent> {
    state.end_of(message).map(|ended| final_event(&ended.run, ended.end.clone(), ended.messages.clone()))
}

/// Whether the run waits for the model.
fn is_asking(state: &State) -> bool {
    state.run.as_ref().is_some_and(|run| run.phase == Phase::Asking)
}
