//! `gantry chat` sends one message to an agent, or runs a conversation line by line.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use gantry_protocol::{
    AgentList, AnswerParams, AnswerResult, Empty, ListenResult, MessageParams, Question, SendResult,
    SessionEvent, SessionParams, SessionStatus, UserAsked, method,
};
use gantry_tool::{QuestionText, Refusal, RefusalCode};

use crate::client::{Address, Target};
use crate::commands::{call, interrupted};
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::output::{Output, Tone, question};
use crate::running_gateway::{LocalNode, RunningGateway};
use crate::terminal_input::{Typing, columns};

mod connection;
mod conversations;
mod questions;
mod screen;
mod tool_lines;

use connection::{Connection, Heard};
use questions::{Asks, Waiting, approval_prompt};
use screen::Screen;

const MAX_INPUT: u64 = 1024 * 1024;
const PROMPT: &str = "> ";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry chat                                      start a conversation; /help shows commands\n  \
    gantry chat 'What changed here since yesterday?'\n  \
    git diff | gantry chat -                         read the message from standard input\n  \
    gantry chat --continue 'And the tests?'          go on in this directory's newest conversation\n  \
    gantry chat --agent reviewer --session pr-12 'Look at this again'\n  \
    gantry chat --json 'List the TODOs'              print every event as a line of JSON")]
pub(crate) struct ChatArgs {
    /// Message to send, or - to read it from standard input [default: start a conversation]
    message: Option<String>,
    /// Session to use: a name, or a whole key [default: main]
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Agent to talk to [default: main]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Start a new conversation
    #[arg(long, conflicts_with = "session")]
    new: bool,
    /// Continue the newest conversation of this directory
    #[arg(long = "continue", short = 'c', conflicts_with_all = ["session", "new"])]
    continues: bool,
    /// Choose one of the newest conversations
    #[arg(long, conflicts_with_all = ["session", "new", "continues"])]
    resume: bool,
    /// Model for this conversation, such as anthropic/claude-sonnet-4-5
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Directory on this machine to work in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<std::path::PathBuf>,
}

pub(crate) fn run(environment: Environment, output: &Output, args: ChatArgs) -> Result<Exit> {
    let key = session_key(&args)?;
    let message = message(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start")?;
    let exit = runtime.block_on(async {
        let (address, own) = reach(&environment, output, &args).await?;
        let talked = async {
            let workspace = workspace(&address, &environment, &args)?;
            let key = conversations::choose(&address, output, &args, key, workspace.as_deref()).await?;
            let mut chat = Chat::open(&environment, output, &address, key, workspace).await?;
            if let Some(model) = &args.model {
                chat.choose_model(model).await?;
            }
            match message {
                Some(text) => chat.once(text).await,
                None => chat.converse().await,
            }
        };
        let exit = talked.await;
        if let Some(served) = own {
            served.stop().await;
        }
        exit
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    exit
}

fn session_key(args: &ChatArgs) -> Result<String> {
    let session = args.session.as_deref().unwrap_or("main");
    match (&args.agent, session.starts_with("agent:")) {
        (Some(_), true) => {
            Err(UsageError("a whole session key already names its agent; remove --agent".into()).into())
        }
        (Some(agent), false) => Ok(format!("agent:{agent}:{session}")),
        (None, _) => Ok(session.to_owned()),
    }
}

fn message(args: &ChatArgs) -> Result<Option<String>> {
    let reads = match args.message.as_deref() {
        Some("-") => true,
        Some(text) => return Ok(Some(text.to_owned())),
        None => !std::io::stdin().is_terminal(),
    };
    if !reads {
        return Ok(None);
    }
    let mut text = String::new();
    std::io::stdin().take(MAX_INPUT + 1).read_to_string(&mut text).context("cannot read standard input")?;
    if text.trim().is_empty() {
        return Err(UsageError("the message is empty: standard input has no text".into()).into());
    }
    Ok(Some(text))
}

/// Returns the workspace of the conversation: the current directory on this machine, unless the agent has its own.
fn workspace(address: &Address, environment: &Environment, args: &ChatArgs) -> Result<Option<String>> {
    // Only the operator may choose a workspace.
    if args.workspace.is_none() && environment.token()?.is_some() {
        return Ok(None);
    }
    let whole = args.session.as_deref().and_then(|key| key.strip_prefix("agent:")?.split(':').next());
    call::workspace(address, environment, args.workspace.as_deref(), args.agent.as_deref().or(whole))
}

/// Returns the running gateway. If there is none, starts one for the duration of this command.
async fn reach(
    environment: &Environment,
    output: &Output,
    args: &ChatArgs,
) -> Result<(Address, Option<RunningGateway>)> {
    match Target::find(environment, output, false)? {
        Target::Gateway(address) => Ok((address, None)),
        Target::InProcess => {
            let mut environment = environment.clone();
            environment.layers.overrides.push("gateway.listen=\"127.0.0.1:0\"".to_owned());
            let workspace = args.workspace.clone().unwrap_or_default();
            let workspace = environment.resolve(&environment.current_dir.join(workspace));
            let notes = output.running_notes().during_a_conversation();
            let served =
                RunningGateway::start(&environment, LocalNode::Included, workspace, None, notes).await?;
            let address = Target::gateway(&environment, output)?;
            Ok((address, Some(served)))
        }
    }
}

struct Chat<'a> {
    output: &'a Output,
    connection: Connection<'a>,
    screen: Screen<'a>,
    /// The workspace of the next runs.
    workspace: Option<String>,
    /// The session's state when the chat started.
    status: ListenResult,
    /// The model that `--model` chose.
    model: Option<String>,
    /// The number of messages sent.
    sent: u32,
}

/// The outcome of a message.
enum Turn {
    Settled(Exit),
    /// The run waits for an answer that cannot be given here.
    Waits(PendingQuestion),
}

/// The question that a run waits for.
enum PendingQuestion {
    Approval(Box<Question>),
    Answer(UserAsked),
}

/// Whether the conversation continues after a run.
enum AfterRun {
    Continue,
    Leave,
}

impl<'a> Chat<'a> {
    async fn open(
        environment: &'a Environment,
        output: &'a Output,
        address: &Address,
        key: String,
        workspace: Option<String>,
    ) -> Result<Chat<'a>> {
        let (connection, status) = Connection::open(environment, output, address, key).await?;
        Ok(Chat { output, connection, screen: Screen::new(output), workspace, status, model: None, sent: 0 })
    }

    /// Sends one message and prints the answer.
    async fn once(mut self, text: String) -> Result<Exit> {
        let asks = std::io::stdin().is_terminal() && !self.output.json;
        // The run that waits for these would also hold up the message, and nobody would say so.
        let open = if text.starts_with('/') { Vec::new() } else { self.open_questions() };
        for question in open {
            match question {
                question if !asks => return Ok(self.refuse(question, "; the message was not sent")),
                PendingQuestion::Answer(asked) => self.ask_user(Asks::new(asked)).await?,
                PendingQuestion::Approval(asked) => self.ask_approval(*asked).await?,
            }
        }
        let id = self.next_id();
        let Some(id) = self.send(&text, &id).await? else { return Ok(Exit::Success) };
        match self.until_settled(&id, asks).await? {
            Turn::Settled(exit) => Ok(exit),
            Turn::Waits(question) => Ok(self.refuse(question, "")),
        }
    }

    /// The questions that were open when the session was opened.
    fn open_questions(&self) -> Vec<PendingQuestion> {
        let ListenResult::Known(status) = &self.status else { return Vec::new() };
        let approvals =
            status.questions.iter().cloned().map(|asked| PendingQuestion::Approval(Box::new(asked)));
        approvals.chain(status.asks.iter().cloned().map(PendingQuestion::Answer)).collect()
    }

    /// Reports an open question and the command that answers it.
    fn refuse(&self, question: PendingQuestion, consequence: &str) -> Exit {
        let (id, message, answers) = match question {
            PendingQuestion::Answer(asked) => {
                let questions = asked.questions.iter().map(|one| one.question.as_str());
                let questions = questions.collect::<Vec<_>>().join(" / ");
                (asked.id, format!("the agent asks: {questions}"), "ANSWER…")
            }
            PendingQuestion::Approval(asked) => {
                let (what, Question { tool, reason, .. }) = (QuestionText::new(&asked.action()), &*asked);
                let message = format!("{tool} needs approval: {} ({reason})", what.whole());
                (asked.id, message, "yes|no|always")
            }
        };
        let hint = format!("gantry sessions answer {} --question {id} {answers}", self.connection.key);
        let refusal =
            Refusal::new(RefusalCode::ApprovalNeeded, format!("{message}{consequence}")).with_hint(hint);
        self.output.refused(&refusal)
    }

    /// Runs the conversation until the input ends.
    async fn converse(mut self) -> Result<Exit> {
        let facts = self.facts().await;
        self.output.done(&format!("{facts}\n{}", self.greeting()));
        let keys =
            "/help shows commands · Alt-Enter or \\ starts a new line · Ctrl-C stops a run · Ctrl-D quits";
        self.output.activity(keys, Tone::Quiet);
        let mut typing = Typing::start();
        let mut leaves = false;
        loop {
            typing.ask(PROMPT);
            let line = tokio::select! {
                line = typing.next() => line,
                () = interrupted() => {
                    if !typing.clear() {
                        if std::mem::replace(&mut leaves, true) {
                            return Ok(Exit::Success);
                        }
                        typing.put_away();
                        self.output.activity("Press Ctrl-C again to quit", Tone::Quiet);
                    }
                    continue;
                }
            };
            leaves = false;
            let Some(line) = line else { return Ok(Exit::Success) };
            if line.trim().is_empty() {
                continue;
            }
            match self.say(&line).await {
                Ok(Some(id)) => {
                    if let AfterRun::Leave = self.turn(id, &mut typing).await? {
                        return Ok(Exit::Success);
                    }
                }
                Ok(None) => {}
                Err(err) => self.failed(&err),
            }
        }
    }

    /// Names the model and how far the agent goes by itself.
    async fn facts(&self) -> String {
        let key = &self.connection.key;
        let id = key.split(':').nth(1).unwrap_or_default();
        let agents = self.connection.request::<AgentList>(method::AGENTS_LIST, &Empty {}).await.ok();
        let agent = agents.and_then(|list| list.agents.into_iter().find(|agent| agent.id == id));
        let model = match &self.status {
            ListenResult::Known(status) if !status.model.is_empty() => Some(status.model.clone()),
            _ => agent.as_ref().and_then(|agent| agent.model.clone()),
        };
        let mut facts = vec![format!("Gantry {}", env!("CARGO_PKG_VERSION"))];
        facts.push(self.model.clone().or(model).unwrap_or_else(|| "the balanced model".to_owned()));
        facts.extend(agent.map(|agent| match agent.autonomy.as_str() {
            "supervised" => "supervised: asks before every change".to_owned(),
            "autonomous" => "autonomous: never asks, stays inside its sandbox".to_owned(),
            "guided" => "guided: asks when a call leaves the sandbox".to_owned(),
            other => other.to_owned(),
        }));
        facts.join(" · ")
    }

    /// Chooses the model of the conversation.
    async fn choose_model(&mut self, model: &str) -> Result<()> {
        let params = MessageParams {
            session_key: Some(self.connection.key.clone()),
            message: format!("/model {model}"),
            ..MessageParams::default()
        };
        let sent: SendResult = self.connection.request(method::SESSIONS_SEND, &params).await?;
        if let SendResult::Command { text, .. } = sent {
            self.output.note(&text);
        }
        self.model = Some(model.to_owned());
        Ok(())
    }

    /// Names the session and its workspace.
    fn greeting(&self) -> String {
        let (before, is_running) = match &self.status {
            ListenResult::Known(status) => (Some(status.workspace.as_str()), status.running.is_some()),
            ListenResult::New(_) => (None, false),
        };
        let key = &self.connection.key;
        match (self.workspace.as_deref(), before) {
            (Some(now), Some(before)) if now != before && is_running => {
                format!("{key} (a run is active in {before}; the next run works in {now})")
            }
            (Some(now), Some(before)) if now != before => format!("{key} in {now} (previously {before})"),
            (Some(workspace), _) | (None, Some(workspace)) => format!("{key} in {workspace}"),
            (None, None) => key.clone(),
        }
    }

    /// Reports an error without ending the conversation: as a line, or as an object with `--json`.
    fn failed(&self, err: &anyhow::Error) {
        match self.output.json {
            true => drop(Exit::report(self.output, err)),
            false => self.output.error(&format!("{err:#}")),
        }
    }

    /// Follows one run. Lines typed meanwhile answer questions, or are sent as messages.
    async fn turn(&mut self, id: String, typing: &mut Typing) -> Result<AfterRun> {
        // Messages that are not answered yet. A message typed during a run may start a run of its own.
        let mut open = vec![id];
        let mut waiting = Waiting::default();
        let mut stopping = false;
        loop {
            tokio::select! {
                heard = self.connection.next_event(&open[0]) => {
                    let event = match heard? {
                        Heard::Event(event) => event,
                        Heard::Nothing => {
                            if waiting.is_empty() {
                                self.screen.tick();
                            }
                            continue;
                        }
                        Heard::Lost => {
                            typing.put_away();
                            let Some(status) = self.reconnect().await else { return Ok(AfterRun::Continue) };
                            waiting = Waiting::of(status);
                            continue;
                        }
                    };
                    typing.put_away();
                    self.screen.show(&event);
                    waiting.on_event(&event);
                    open.retain(|id| !event.settles(id));
                    if open.is_empty() {
                        return Ok(AfterRun::Continue);
                    }
                }
                line = typing.next() => {
                    let Some(line) = line else { return Ok(AfterRun::Leave) };
                    if let Some(asks) = waiting.asks.front_mut() {
                        if asks.take(&line)
                            && let Some(asks) = waiting.asks.pop_front()
                        {
                            self.reply(&asks).await?;
                        }
                    } else if let Some(question) = waiting.approvals.front().cloned() {
                        match questions::answer(&question, &line) {
                            Some(answer) => {
                                if self.answer(&question, answer).await?.is_none() {
                                    waiting.is_answered(&question.id);
                                }
                            }
                            // Other commands, such as /status, do not answer the question.
                            None if line.trim_start().starts_with('/') => {
                                if let Err(err) = self.say(&line).await {
                                    self.failed(&err);
                                }
                            }
                            None => self.screen.note(&questions::valid_answers(&question), Tone::Quiet),
                        }
                    } else if !line.trim().is_empty() {
                        match self.say(&line).await {
                            Ok(id) => open.extend(id),
                            Err(err) => self.failed(&err),
                        }
                    }
                }
                () = interrupted() => {
                    if std::mem::replace(&mut stopping, true) {
                        return Ok(AfterRun::Leave);
                    }
                    typing.put_away();
                    self.screen.end_line();
                    self.say("/stop").await?;
                }
            }
            if let Some(prompt) = waiting.prompt(columns()) {
                self.screen.end_line();
                typing.ask(&prompt);
            }
        }
    }

    async fn until_settled(&mut self, id: &str, asks: bool) -> Result<Turn> {
        let mut stopping = false;
        loop {
            let event = tokio::select! {
                heard = self.connection.next_event(id) => match heard? {
                    Heard::Event(event) => event,
                    Heard::Nothing => {
                        self.screen.tick();
                        continue;
                    }
                    Heard::Lost => return Err(self.lost()),
                },
                () = interrupted() => {
                    if std::mem::replace(&mut stopping, true) {
                        return Ok(Turn::Settled(Exit::Failure));
                    }
                    self.say("/stop").await?;
                    continue;
                }
            };
            self.screen.show(&event);
            if *event == SessionEvent::Suspended {
                self.output.warning(&self.read_later());
                return Ok(Turn::Settled(Exit::Failure));
            }
            if event.settles(id) {
                return Ok(Turn::Settled(match *event {
                    SessionEvent::Final { .. } => Exit::Success,
                    _ => Exit::Failure,
                }));
            }
            match *event {
                SessionEvent::Asked { asked, .. } if !asks => {
                    return Ok(Turn::Waits(PendingQuestion::Answer(asked)));
                }
                SessionEvent::Asked { asked, .. } => self.ask_user(Asks::new(asked)).await?,
                SessionEvent::Approval { question, .. } if !asks => {
                    return Ok(Turn::Waits(PendingQuestion::Approval(Box::new(question))));
                }
                SessionEvent::Approval { question, .. } => self.ask_approval(question).await?,
                _ => {}
            }
        }
    }

    /// Asks the user the agent's questions.
    async fn ask_user(&mut self, mut asked: Asks) -> Result<()> {
        loop {
            question(&asked.prompt(columns()).unwrap_or_default());
            let mut line = String::new();
            let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
            if !matches!(read, Ok(1..)) || asked.take(&line) {
                break;
            }
        }
        self.reply(&asked).await
    }

    /// Asks the user whether a call may run. The end of the input means no.
    async fn ask_approval(&mut self, asked: Question) -> Result<()> {
        let mut asked = Some(asked);
        while let Some(open) = asked.take() {
            question(&approval_prompt(&open, columns()));
            let mut line = String::new();
            let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
            asked = match (read, questions::answer(&open, &line)) {
                (Ok(0) | Err(_), _) => self.answer(&open, questions::answer_of("no")).await?,
                (Ok(_), Some(answer)) => self.answer(&open, answer).await?,
                (Ok(_), None) => Some(open),
            };
        }
        Ok(())
    }

    /// The connection was lost during a run. The gateway resumes the run by itself.
    fn lost(&mut self) -> anyhow::Error {
        self.screen.end_line();
        let message = "the connection to the gateway was lost; the run continues there";
        Refused(Refusal::new(RefusalCode::Unavailable, message).with_hint(self.read_later())).into()
    }

    fn read_later(&self) -> String {
        format!("read the answer with `gantry sessions show {}`", self.connection.key)
    }

    /// Waits until the gateway is back. Returns `None` if it stays offline or an interrupt ends the wait.
    async fn reconnect(&mut self) -> Option<ListenResult> {
        self.screen.end_line();
        self.output.warning("the connection to the gateway was lost; reconnecting (Ctrl-C to stop waiting)");
        let reopened = tokio::select! {
            reopened = self.connection.reopen() => reopened,
            () = interrupted() => Err(anyhow::anyhow!("not connected")),
        };
        match reopened {
            Ok(status) => {
                self.output.activity("reconnected", Tone::Quiet);
                Some(status)
            }
            Err(err) => {
                self.output.error(&format!("{err:#}\nhint: {}", self.read_later()));
                None
            }
        }
    }

    /// Returns a unique id for a message, so that the gateway accepts a repeated message only once.
    fn next_id(&mut self) -> String {
        self.sent += 1;
        let now = jiff::Timestamp::now().as_nanosecond();
        format!("chat-{}-{now}-{}", std::process::id(), self.sent)
    }

    /// Sends a message like [`Chat::send`], and sends it again after a restart of the gateway.
    async fn say(&mut self, text: &str) -> Result<Option<String>> {
        let id = self.next_id();
        match self.send(text, &id).await {
            Err(err) if self.connection.is_lost() => match self.reconnect().await {
                Some(_) => self.send(text, &id).await,
                None => Err(err),
            },
            sent => sent,
        }
    }

    /// Sends a message. Returns its id, unless it was a command.
    async fn send(&mut self, text: &str, id: &str) -> Result<Option<String>> {
        let params = MessageParams {
            session_key: Some(self.connection.key.clone()),
            message: text.to_owned(),
            id: Some(id.to_owned()),
            workspace: self.workspace.clone(),
            ..MessageParams::default()
        };
        let sent: SendResult = self.connection.request(method::SESSIONS_SEND, &params).await?;
        Ok(match sent {
            SendResult::Command { .. } if self.output.json => {
                self.output.value(&sent);
                None
            }
            SendResult::Command { text, .. } => {
                text.lines().for_each(|line| self.output.prose(line, 0));
                None
            }
            SendResult::Accepted { message_id, .. }
            | SendResult::Final { message_id, .. }
            | SendResult::Stopped { message_id, .. }
            | SendResult::Error { message_id, .. }
            | SendResult::Suspended { message_id, .. } => Some(message_id),
        })
    }

    /// Answers a question. Returns the question again if the answer was not accepted.
    async fn answer(&mut self, question: &Question, answer: AnswerParams) -> Result<Option<Question>> {
        let key = self.connection.key.clone();
        let params =
            AnswerParams { session_key: Some(key.clone()), question: Some(question.id.clone()), ..answer };
        let answered = self.connection.request::<AnswerResult>(method::SESSIONS_ANSWER, &params).await;
        let Err(err) = answered else {
            return Ok(None);
        };
        self.output.warning(&format!("{err:#}"));
        // Another client may have answered first.
        let params = SessionParams { session_key: key };
        let status: SessionStatus = self.connection.request(method::SESSIONS_STATUS, &params).await?;
        Ok(status.questions.into_iter().find(|open| open.id == question.id))
    }

    /// Sends the user's answers to the agent.
    async fn reply(&mut self, asks: &Asks) -> Result<()> {
        let params = AnswerParams {
            session_key: Some(self.connection.key.clone()),
            question: Some(asks.id.clone()),
            answers: Some(asks.answers.clone()),
            ..AnswerParams::default()
        };
        if let Err(err) = self.connection.request::<AnswerResult>(method::SESSIONS_ANSWER, &params).await {
            self.output.warning(&format!("{err:#}"));
        }
        Ok(())
    }
}
