//! [`State`] is the fold of a session's journal. Any sequence of entries folds: an entry that does not apply to the current
//! state is ignored.

use std::collections::VecDeque;
use std::path::PathBuf;

use gantry_model::{Block, Effort, Message, Reply, Role, StopReason, Thinking, Usage};
pub use gantry_protocol::Addressee;
use gantry_tool::{Approval, EGRESS_RULE, Label};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::{Child, Payer};
use crate::entry::{
    ApprovalDecision, CallResult, End, Entry, GrantScope, Incoming, LearnedWindow, Notice, Question,
    UserAsked,
};
use crate::flow::Flow;
use crate::grants;
use crate::loop_guard::LoopGuard;

/// The number of message ids that are remembered, so that repeated messages are ignored.
const REMEMBERED_IDS: usize = 256;
/// The number of notices that wait for the next message. The oldest are dropped first.
const MAX_NOTICES: usize = 50;
/// The number of ended runs that are remembered.
const REMEMBERED_ENDS: usize = 16;
/// The highest number of found tools. The oldest are dropped first.
const MAX_FOUND_TOOLS: usize = 40;
/// The highest number of grants in one session. The oldest are dropped first.
const MAX_GRANTS: usize = 100;

/// The prefix of session keys. Agents send messages under their session key.
pub(crate) const AGENT: &str = "agent:";
pub(crate) const MINUTE_MS: i64 = 60_000;
const MAX_WRITTEN: usize = 4_096;

pub(crate) const INTERRUPTED: &str = "interrupted: the gateway stopped during this call, so its outcome is unknown. It may have had its full effect, a part of it, or \
     none. Find out before you repeat it";
pub(crate) const NOT_RUN: &str = "not run: the run ended before this call started";
const STOPPED: &str = "stopped: the run ended during this call, so its outcome is unknown";

/// The answer of a run whose model ended its turn without text.
pub(crate) const NO_ANSWER: &str = "[the model ended its turn without an answer; send the message again, or choose another \
     model with /model]";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The messages of the next request. Every call has its result, except for running calls of the last message.
    pub messages: Vec<Message>,
    /// Messages that wait for a run.
    pub queue: VecDeque<Incoming>,
    /// Notices that the model sees with the next message.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub notices: VecDeque<Notice>,
    pub run: Option<Run>,
    pub model: Option<String>,
    pub thinking: Option<Thinking>,
    pub effort: Option<Effort>,
    /// The working directory. The agent's own when `None`.
    pub workspace: Option<PathBuf>,
    pub grants: VecDeque<Grant>,
    pub flow: Flow,
    pub usage: Usage,
    /// The window of the session's model, if it rejected a request that should have fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedWindow>,
    pub last_activity: i64,
    /// Tools that the model has found, in addition to those that it is always offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found_tools: Vec<String>,
    /// The time of the first message or of the last reset.
    pub began: i64,
    /// Its limits, if it is a child.
    pub child: Option<Box<Child>>,
    /// The agents that wrote within the last minute, with the times.
    pub written: VecDeque<(String, i64)>,
    pub compactions: u32,
    pub runs: u64,
    /// How the last runs ended, for repeated messages.
    pub ended: VecDeque<EndedRun>,
    ids: VecDeque<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedRun {
    pub run: String,
    pub messages: Vec<Addressee>,
    pub end: End,
}

/// One turn: from a message to its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    pub phase: Phase,
    /// The messages that it answers.
    pub answers: Vec<Addressee>,
    /// The number of requests to the model.
    pub requests: u32,
    pub guard: LoopGuard,
    pub stop: Option<String>,
    /// The number of compactions since the last reply. It limits compactions that do not help.
    pub compactions: u32,
    /// The account that pays for it, if it is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<Payer>,
    /// The model has written text in this run.
    #[serde(default)]
    pub has_spoken: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The next step is a request to the model.
    Ready,
    Asking,
    /// The calls of the last reply.
    Calling(Vec<PendingCall>),
    Answered(String),
    Failed {
        error: String,
        overflow: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingCall {
    pub id: String,
    pub name: String,
    pub input: Value,
    pub malformed: Option<String>,
    pub status: CallStatus,
    pub questions: Vec<ApprovalRequest>,
    /// Its questions to the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<UserAsk>,
}

/// Questions of a call to the user, and the answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserAsk {
    pub asked: UserAsked,
    pub answers: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    Waiting,
    Begun { read_only: bool, polls: bool },
    Ended(CallResult),
}

/// A question whether a call may run, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub question: Question,
    pub answer: Option<ApprovalDecision>,
    /// The question was asked or repeated since the call last started.
    pub since_begun: bool,
}

/// An approval that also covers later calls, from a journal of an earlier version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub tool: String,
    pub rule: String,
    pub fingerprint: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exact: String,
    pub scope: GrantScope,
    pub until: i64,
}

impl State {
    pub fn fold(entries: impl IntoIterator<Item = Entry>) -> State {
        let mut state = State::default();
        entries.into_iter().for_each(|entry| state.apply(entry));
        state
    }

    /// Returns the ended run of a message, if it is among the last ones.
    pub(crate) fn end_of(&self, message: &str) -> Option<&EndedRun> {
        self.ended.iter().find(|ended| ended.messages.iter().any(|of| of.id == message))
    }

    /// Whether a run is in progress or messages wait.
    pub fn has_work(&self) -> bool {
        self.run.is_some() || !self.queue.is_empty()
    }

    pub(crate) fn knows(&self, message: &str) -> bool {
        self.ids.iter().any(|id| id == message)
    }

    /// Returns the number of messages from an agent within the last minute.
    pub(crate) fn written_by(&self, from: &str, now: i64) -> usize {
        let recent = |at: i64| now.saturating_sub(at) < MINUTE_MS;
        self.written.iter().filter(|(by, at)| by == from && recent(*at)).count()
    }

    /// Returns a permanent name for a call of the current run, even if another reply has a call with the same id.
    pub(crate) fn step(&self, session: &str, call: &str) -> String {
        let requests = self.run.as_ref().map_or(0, |run| run.requests);
        let name = format!("{session}\n{}\n{requests}\n{call}", self.runs);
        blake3::hash(name.as_bytes()).to_hex()[..24].to_owned()
    }

    /// Returns the approvals without an answer.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        let asked = self.calls().iter().flat_map(|call| &call.questions);
        asked.filter(|asked| asked.answer.is_none()).map(|asked| &asked.question)
    }

    /// Returns the questions to the user without an answer.
    pub fn open_asks(&self) -> impl Iterator<Item = &UserAsked> {
        let asks = self.calls().iter().flat_map(|call| &call.asks);
        asks.filter(|ask| ask.answers.is_none()).map(|ask| &ask.asked)
    }

    pub(crate) fn calls(&self) -> &[PendingCall] {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Calling(calls)) => calls,
            _ => &[],
        }
    }

    pub(crate) fn call(&self, id: &str) -> Option<&PendingCall> {
        self.calls().iter().find(|call| call.id == id)
    }

    /// Whether a grant in the journal covers the question. Only journals of earlier versions have grants; later grants are
    /// in the database. A grant for a call covers that call under any rule, except that a connection needs one for its host.
    pub(crate) fn is_granted(&self, asked: &Approval, exact: &str, now: i64) -> bool {
        let Approval { tool, rule, fingerprint, .. } = asked;
        if !grants::may_answer(rule) {
            return false;
        }
        let is_same_call = |grant: &Grant| {
            !exact.is_empty()
                && *rule != EGRESS_RULE
                && grant.rule != EGRESS_RULE
                && grant.exact == exact
                && grant.tool == *tool
        };
        self.grants.iter().any(|grant| {
            grant.until > now
                && match &grant.scope {
                    GrantScope::Call => grant.fingerprint == *fingerprint || is_same_call(grant),
                    GrantScope::Tool => grant.tool == *tool && grant.rule == *rule,
                    _ => false,
                }
        })
    }

    pub(crate) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::ChildStarted(child) => drop(self.child.get_or_insert(child)),
            Entry::MessageIn(message) => self.enqueue(message),
            Entry::Notice(notice) => self.notice(notice),
            Entry::RunBegun { run, at } => self.begin(run, at),
            Entry::Joined { messages } => self.join(&messages),
            Entry::Labelled { labels, by } => self.flow.add(&labels, &by),
            Entry::RequestBegun { .. } => {
                if let Some(run) = self.run.as_mut().filter(|run| run.phase == Phase::Ready) {
                    run.phase = Phase::Asking;
                    run.requests = run.requests.saturating_add(1);
                }
            }
            Entry::RequestLost => self.leave_asking(Phase::Ready),
            Entry::RequestFailed { error, overflow, learned } => {
                self.learned = learned.or(self.learned.take());
                self.leave_asking(Phase::Failed { error, overflow });
            }
            Entry::Replied { reply } => self.replied(*reply),
            Entry::CallBegun { call, read_only, polls } => self.with_call(&call, |call| {
                if call.status == CallStatus::Waiting {
                    call.status = CallStatus::Begun { read_only, polls };
                    call.questions.iter_mut().for_each(|asked| asked.since_begun = false);
                }
            }),
            Entry::CallAgain { call } => self.with_call(&call, |call| {
                if matches!(call.status, CallStatus::Begun { .. }) {
                    call.status = CallStatus::Waiting;
                }
            }),
            Entry::CallEnded { call, result } => self.ended(&call, result),
            Entry::CallInterrupted { call } => self.ended(&call, CallResult::error(INTERRUPTED)),
            Entry::ApprovalAsked(question) => {
                let call = question.call.clone();
                self.with_call(&call, |call| call.asked(question));
            }
            Entry::ApprovalAnswered { question, answer, .. } => self.answered(&question, answer),
            Entry::UserAsked(asked) => {
                let call = asked.call.clone();
                self.with_call(&call, |call| call.asks.push(UserAsk { asked, answers: None }));
            }
            Entry::UserAnswered { question, answers, .. } => {
                if let Some(Run { phase: Phase::Calling(calls), .. }) = &mut self.run {
                    let asks = calls.iter_mut().flat_map(|call| &mut call.asks);
                    for ask in asks.filter(|ask| ask.asked.id == question && ask.answers.is_none()) {
                        ask.answers = Some(answers.clone());
                    }
                }
            }
            Entry::Set { model, thinking, effort, workspace } => {
                if model.is_some() {
                    self.learned = None;
                }
                self.workspace = workspace.or(self.workspace.take());
                self.model = model.or(self.model.take());
                self.thinking = thinking.or(self.thinking);
                self.effort = effort.or(self.effort);
            }
            Entry::StopAsked { by } => {
                if let Some(run) = &mut self.run {
                    run.stop.get_or_insert(by);
                }
            }
            Entry::RunEnded { end } => self.end(&end),
            Entry::Compacted { state, .. } | Entry::Snapshot { state } | Entry::Reset { state, .. } => {
                *self = *state;
            }
        }
    }

    /// Returns the state after a reset. Waiting messages and settings stay; the conversation is dropped.
    pub(crate) fn reset(&self, now: i64) -> State {
        State {
            queue: self.queue.clone(),
            notices: self.notices.clone(),
            model: self.model.clone(),
            thinking: self.thinking,
            effort: self.effort,
            workspace: self.workspace.clone(),
            grants: self.grants.clone(),
            usage: self.usage,
            ids: self.ids.clone(),
            ended: self.ended.clone(),
            runs: self.runs,
            last_activity: self.last_activity,
            began: now,
            child: self.child.clone(),
            written: self.written.clone(),
            ..State::default()
        }
    }

    fn enqueue(&mut self, message: Incoming) {
        if self.knows(&message.id) {
            return;
        }
        self.remember(message.id.clone());
        if self.began == 0 {
            self.began = message.at;
        }
        self.last_activity = self.last_activity.max(message.at);
        if message.from.starts_with(AGENT) {
            self.written.retain(|(_, at)| message.at.saturating_sub(*at) < MINUTE_MS);
            self.written.push_back((message.from.clone(), message.at));
            if self.written.len() > MAX_WRITTEN {
                self.written.pop_front();
            }
        }
        self.queue.push_back(message);
    }

    fn notice(&mut self, notice: Notice) {
        if self.knows(&notice.id) {
            return;
        }
        self.remember(notice.id.clone());
        self.notices.push_back(notice);
        if self.notices.len() > MAX_NOTICES {
            self.notices.pop_front();
        }
    }

    fn remember(&mut self, id: String) {
        self.ids.push_back(id);
        if self.ids.len() > REMEMBERED_IDS {
            self.ids.pop_front();
        }
    }

    fn begin(&mut self, id: String, at: i64) {
        if self.run.is_some() {
            return;
        }
        self.runs = self.runs.saturating_add(1);
        self.last_activity = self.last_activity.max(at);
        // A run has the id of its first message.
        let first = self.queue.iter().find(|message| message.id == id);
        let payer = first.and_then(|message| message.payer.clone());
        self.run = Some(Run {
            id,
            payer,
            phase: Phase::Ready,
            answers: Vec::new(),
            requests: 0,
            guard: LoopGuard::default(),
            stop: None,
            compactions: 0,
            has_spoken: false,
        });
    }

    fn join(&mut self, ids: &[String]) {
        let Some(run) = self.run.as_mut().filter(|run| run.phase == Phase::Ready) else { return };
        let (joining, waiting) = self.queue.drain(..).partition(|message| ids.contains(&message.id));
        self.queue = waiting;
        let joining: VecDeque<Incoming> = joining;
        for notice in self.notices.drain(..) {
            self.flow.add(&notice.labels, &format!("a notice from {}", notice.from));
            let text =
                format!("[notice from {}; nobody waits for an answer to it]\n{}", notice.from, notice.text);
            push_user(&mut self.messages, vec![Block::text(text)]);
        }
        for message in joining {
            self.flow.add(&message.labels, &format!("a message from {}", message.from));
            run.answers.push(Addressee { id: message.id, from: message.from, reply_to: message.reply_to });
            let mut blocks = vec![Block::text(message.text)];
            let images = message.images.into_iter();
            blocks
                .extend(images.map(|image| Block::Image { media_type: image.media_type, data: image.data }));
            push_user(&mut self.messages, blocks);
        }
    }

    fn leave_asking(&mut self, next: Phase) {
        if let Some(run) = self.run.as_mut().filter(|run| run.phase == Phase::Asking) {
            run.phase = next;
        }
    }

    fn replied(&mut self, reply: Reply) {
        let Some(run) = self.run.as_mut().filter(|run| run.phase == Phase::Asking) else { return };
        run.compactions = 0;
        run.guard.replied();
        add_usage(&mut self.usage, &reply.usage);
        let calls: Vec<PendingCall> = reply.message.content.iter().filter_map(pending).collect();
        let text = reply.message.text();
        run.has_spoken |= !text.is_empty();
        if reply.message.content.iter().any(is_search) {
            self.flow.add(&[Label::Untrusted], "the model's own web search");
        }
        if !reply.message.content.is_empty() {
            self.messages.push(Message { role: Role::Assistant, ..reply.message });
        }
        run.phase = match reply.stop {
            _ if !calls.is_empty() => Phase::Calling(calls),
            StopReason::Pause => Phase::Ready,
            StopReason::EndTurn | StopReason::ToolUse if text.trim().is_empty() => {
                Phase::Answered(NO_ANSWER.to_owned())
            }
            StopReason::EndTurn | StopReason::ToolUse => Phase::Answered(text),
            StopReason::MaxTokens => {
                Phase::Answered(format!("{text}\n[the answer was cut off at the model's output limit]"))
            }
            StopReason::Refusal => Phase::Answered(format!("{text}\n[the model declined to continue]")),
        };
    }

    fn with_call(&mut self, id: &str, change: impl FnOnce(&mut PendingCall)) {
        if let Some(Run { phase: Phase::Calling(calls), .. }) = &mut self.run
            && let Some(call) = calls.iter_mut().find(|call| call.id == id)
        {
            change(call);
        }
    }

    fn ended(&mut self, id: &str, mut result: CallResult) {
        let Some(run) = &mut self.run else { return };
        let Phase::Calling(calls) = &mut run.phase else { return };
        let Some(call) = calls.iter_mut().find(|call| call.id == id) else { return };
        if matches!(call.status, CallStatus::Ended(_)) {
            return;
        }
        let polls = matches!(call.status, CallStatus::Begun { polls: true, .. });
        match call.malformed {
            Some(_) => run.guard.count_malformed(&call.name, &mut result),
            None => run.guard.count(&call.name, &call.input, polls, &mut result),
        }
        let step = step_name(&call.name, &call.input);
        for name in &result.found_tools {
            if !self.found_tools.contains(name) {
                self.found_tools.push(name.clone());
            }
        }
        let excess = self.found_tools.len().saturating_sub(MAX_FOUND_TOOLS);
        self.found_tools.drain(..excess);
        match &result.machine {
            Some(machine) => self.flow.add_from(machine, &result.labels, &step),
            None => match &result.private_from {
                Some(host) => self.flow.add_private_from(host, &result.labels, &step),
                None => self.flow.add(&result.labels, &step),
            },
        }
        call.status = CallStatus::Ended(result);
        if calls.iter().all(|call| matches!(call.status, CallStatus::Ended(_))) {
            let results = calls.drain(..).map(|call| result_block(call, NOT_RUN)).collect();
            run.phase = Phase::Ready;
            push_user(&mut self.messages, results);
        }
    }

    fn answered(&mut self, id: &str, answer: ApprovalDecision) {
        let mut grant = None;
        if let Some(Run { phase: Phase::Calling(calls), .. }) = &mut self.run {
            let asked = calls.iter_mut().flat_map(|call| &mut call.questions);
            for asked in asked.filter(|asked| asked.question.id == id && asked.answer.is_none()) {
                if let ApprovalDecision::Always { scope, until, grant: None, .. } = &answer {
                    let Question { tool, rule, fingerprint, exact, .. } = asked.question.clone();
                    let (scope, until) = (scope.clone(), *until);
                    grant = Some(Grant { tool, rule, fingerprint, exact, scope, until });
                }
                asked.answer = Some(answer.clone());
            }
        }
        self.grants.extend(grant);
        if self.grants.len() > MAX_GRANTS {
            self.grants.pop_front();
        }
    }

    /// Ends the run. Calls without a result get one, because a model must not be sent a call without its result.
    fn end(&mut self, end: &End) {
        let Some(run) = self.run.take() else { return };
        match run.phase {
            Phase::Calling(calls) => {
                let results = calls.into_iter().map(|call| {
                    let begun = matches!(call.status, CallStatus::Begun { .. });
                    result_block(call, if begun { STOPPED } else { NOT_RUN })
                });
                push_user(&mut self.messages, results.collect());
            }
            // A paused reply may be the last message. The next user message follows it.
            Phase::Ready | Phase::Asking | Phase::Answered(_) | Phase::Failed { .. } => {}
        }
        self.ended.push_back(EndedRun { run: run.id, messages: run.answers, end: end.clone() });
        if self.ended.len() > REMEMBERED_ENDS {
            self.ended.pop_front();
        }
    }
}

impl PendingCall {
    fn asked(&mut self, question: Question) {
        match self.questions.iter_mut().find(|asked| asked.question.id == question.id) {
            Some(asked) => asked.since_begun = true,
            None => self.questions.push(ApprovalRequest { question, answer: None, since_begun: true }),
        }
    }
}

/// Appends user content. Consecutive user messages are merged, because models require alternating roles.
pub(crate) fn push_user(messages: &mut Vec<Message>, content: Vec<Block>) {
    match messages.last_mut().filter(|last| last.role == Role::User) {
        Some(last) => last.content.extend(content),
        None => messages.push(Message { role: Role::User, content }),
    }
}

/// Whether the provider's own web search put untrusted content into the reply.
fn is_search(block: &Block) -> bool {
    matches!(block, Block::Provider { block, .. } if block["type"] == "web_search_tool_result")
}

fn pending(block: &Block) -> Option<PendingCall> {
    let Block::ToolUse { id, name, input, malformed } = block else { return None };
    Some(PendingCall {
        id: id.clone(),
        name: name.clone(),
        input: input.clone(),
        malformed: malformed.clone(),
        status: CallStatus::Waiting,
        questions: Vec::new(),
        asks: Vec::new(),
    })
}

fn result_block(call: PendingCall, otherwise: &str) -> Block {
    let result = match call.status {
        CallStatus::Ended(result) => result,
        CallStatus::Waiting | CallStatus::Begun { .. } => CallResult::error(otherwise),
    };
    Block::ToolResult { id: call.id, content: result.content, is_error: result.is_error }
}

/// Describes a call by its name and its most informative argument.
pub(crate) fn step_name(name: &str, input: &Value) -> String {
    let informative = ["path", "url", "command", "query", "file_path", "pattern", "source"];
    let value = informative.iter().find_map(|key| input.get(key)).and_then(Value::as_str).unwrap_or_default();
    let value: String = value.chars().take(80).collect();
    format!("{name} {value}").trim_end().to_owned()
}

fn add_usage(total: &mut Usage, more: &Usage) {
    total.input_tokens = total.input_tokens.saturating_add(more.input_tokens);
    total.output_tokens = total.output_tokens.saturating_add(more.output_tokens);
    total.cache_read_tokens = total.cache_read_tokens.saturating_add(more.cache_read_tokens);
    total.cache_write_tokens = total.cache_write_tokens.saturating_add(more.cache_write_tokens);
}
