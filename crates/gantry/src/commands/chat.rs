//! `gantry chat`: talk with an agent. One message and its answer, or a conversation line by line.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use gantry_protocol::{
    AnswerParams, AnswerResult, ListenResult, MessageParams, Question, SendResult, SessionEvent,
    SessionParams, SessionStatus, UserAsked, method,
};
use gantry_tool::{Refusal, RefusalCode};

use crate::client::{Address, Target};
use crate::commands::{call, interrupted};
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::output::{Output, Tone, question};
use crate::running_gateway::{LocalNode, RunningGateway};
use crate::terminal_input::Typing;

mod connection;
mod questions;
mod screen;

use connection::{Connection, Heard};
pub(crate) use questions::proposal;
use questions::{Asks, Waiting, approval_prompt};
use screen::Screen;

const MAX_INPUT: u64 = 1024 * 1024;
const PROMPT: &str = "> ";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry chat                                      a conversation; /help shows the commands\n  \
    gantry chat 'What changed here since yesterday?'\n  \
    git diff | gantry chat -                         the message is read from standard input\n  \
    gantry chat --agent reviewer --session pr-12 'Look at this again'\n  \
    gantry chat --json 'List the TODOs'              every event as a line of JSON")]
pub(crate) struct ChatArgs {
    /// What to say; - reads it from standard input; without it, a conversation begins
    message: Option<String>,
    /// Which conversation: a word, or a whole key [default: main]
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Which agent [default: main]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Where the conversation works, on this machine [default: the current directory]
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
            let chat = Chat::open(&environment, output, &address, key, workspace).await?;
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
            Err(UsageError("a whole session key names its agent; leave --agent out".into()).into())
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
        return Err(UsageError("there is nothing to say: standard input is empty".into()).into());
    }
    Ok(Some(text))
}

/// Where the conversation works: here, on our own machine, unless its agent has a workspace of its own.
fn workspace(address: &Address, environment: &Environment, args: &ChatArgs) -> Result<Option<String>> {
    // Only the operator chooses.
    if args.workspace.is_none() && environment.token()?.is_some() {
        return Ok(None);
    }
    let whole = args.session.as_deref().and_then(|key| key.strip_prefix("agent:")?.split(':').next());
    call::workspace(address, environment, args.workspace.as_deref(), args.agent.as_deref().or(whole))
}

/// The gateway that runs; else one of our own, for as long as this takes.
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
            let served = RunningGateway::start(&environment, LocalNode::Included, workspace, notes).await?;
            let address = Target::gateway(&environment, output)?;
            Ok((address, Some(served)))
        }
    }
}

struct Chat<'a> {
    output: &'a Output,
    connection: Connection<'a>,
    screen: Screen<'a>,
    /// Where the conversation works from now on.
    workspace: Option<String>,
    /// How the session was when this began.
    status: ListenResult,
    said: u32,
}

/// What became of a message.
enum Turn {
    Settled(Exit),
    /// Somebody has to answer, and nobody here can.
    Waits(Waits),
}

/// What a run waits for.
enum Waits {
    Approval(Box<Question>),
    Answer(UserAsked),
}

/// Whether the conversation goes on after a run.
enum Went {
    On,
    Away,
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
        Ok(Chat { output, connection, screen: Screen::new(output), workspace, status, said: 0 })
    }

    /// One message and its answer.
    async fn once(mut self, text: String) -> Result<Exit> {
        let id = self.next_id();
        let Some(id) = self.send(&text, &id).await? else { return Ok(Exit::Success) };
        let asks = std::io::stdin().is_terminal() && !self.output.json;
        match self.until_settled(&id, asks).await? {
            Turn::Settled(exit) => Ok(exit),
            Turn::Waits(question) => {
                let (id, message, words) = match question {
                    Waits::Answer(asked) => {
                        let questions = asked.questions.iter().map(|one| one.question.as_str());
                        let questions = questions.collect::<Vec<_>>().join(" / ");
                        (asked.id, format!("the agent asks: {questions}"), "ANSWER…")
                    }
                    Waits::Approval(asked) => {
                        let (what, Question { tool, reason, .. }) = (proposal(&asked), &*asked);
                        let message = format!("{tool} needs an approval: {what} ({reason})");
                        (asked.id, message, "yes|no|always")
                    }
                };
                let hint = format!("gantry sessions answer {} --question {id} {words}", self.connection.key);
                let refusal = Refusal::new(RefusalCode::ApprovalNeeded, message).with_hint(hint);
                Ok(self.output.refused(&refusal))
            }
        }
    }

    /// Message by message, until the input ends.
    async fn converse(mut self) -> Result<Exit> {
        let keys = "Alt-Enter or \\ begins a new line, Ctrl-C stops a run, Ctrl-D ends";
        self.output.done(&format!("{}; /help shows the commands; {keys}", self.greeting()));
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
                        self.output.activity("Ctrl-C again leaves", Tone::Quiet);
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
                    if let Went::Away = self.turn(id, &mut typing).await? {
                        return Ok(Exit::Success);
                    }
                }
                Ok(None) => {}
                Err(err) => self.failed(&err),
            }
        }
    }

    /// Which conversation it is, and where it works.
    fn greeting(&self) -> String {
        let (before, is_running) = match &self.status {
            ListenResult::Known(status) => (Some(status.workspace.as_str()), status.running.is_some()),
            ListenResult::New(_) => (None, false),
        };
        let key = &self.connection.key;
        match (self.workspace.as_deref(), before) {
            (Some(now), Some(before)) if now != before && is_running => {
                format!("{key} (a run is under way in {before}; the next one works in {now})")
            }
            (Some(now), Some(before)) if now != before => format!("{key} in {now} (before: {before})"),
            (Some(workspace), _) | (None, Some(workspace)) => format!("{key} in {workspace}"),
            (None, None) => key.clone(),
        }
    }

    /// A conversation goes on: the error is a line of it, and an object only for programs.
    fn failed(&self, err: &anyhow::Error) {
        match self.output.json {
            true => drop(Exit::report(self.output, err)),
            false => self.output.error(&format!("{err:#}")),
        }
    }

    /// One run of a conversation: what is typed meanwhile answers questions, or is said.
    async fn turn(&mut self, id: String, typing: &mut Typing) -> Result<Went> {
        // Messages that were said and are not answered: those typed during a run may have one of their own.
        let mut open = vec![id];
        let mut waiting = Waiting::default();
        let mut stopping = false;
        loop {
            tokio::select! {
                heard = self.connection.next_event(&open[0]) => {
                    typing.put_away();
                    let Heard::Event(event) = heard? else {
                        let Some(status) = self.reconnect().await else { return Ok(Went::On) };
                        waiting = Waiting::of(status);
                        continue;
                    };
                    self.screen.show(&event);
                    waiting.hear(&event);
                    open.retain(|id| !event.settles(id));
                    if open.is_empty() {
                        return Ok(Went::On);
                    }
                }
                line = typing.next() => {
                    let Some(line) = line else { return Ok(Went::Away) };
                    if let Some(asks) = waiting.asks.front_mut() {
                        if asks.take(&line)
                            && let Some(asks) = waiting.asks.pop_front()
                        {
                            self.reply(&asks).await?;
                        }
                    } else if let Some(question) = waiting.approvals.front().cloned() {
                        if let Some(answer) = questions::answer(&line)
                            && self.answer(&question, answer).await?.is_none()
                        {
                            waiting.is_answered(&question.id);
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
                        return Ok(Went::Away);
                    }
                    typing.put_away();
                    self.screen.end_line();
                    self.say("/stop").await?;
                }
            }
            if let Some(prompt) = waiting.prompt() {
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
                SessionEvent::Asked { asked, .. } if !asks => return Ok(Turn::Waits(Waits::Answer(asked))),
                SessionEvent::Asked { asked, .. } => self.ask_user(Asks::new(asked)).await?,
                SessionEvent::Approval { question, .. } if !asks => {
                    return Ok(Turn::Waits(Waits::Approval(Box::new(question))));
                }
                SessionEvent::Approval { question, .. } => self.ask_approval(question).await?,
                _ => {}
            }
        }
    }

    /// Asks whoever sits here what the agent wants to know.
    async fn ask_user(&mut self, mut asked: Asks) -> Result<()> {
        loop {
            question(&asked.prompt().unwrap_or_default());
            let mut line = String::new();
            let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
            if !matches!(read, Ok(1..)) || asked.take(&line) {
                break;
            }
        }
        self.reply(&asked).await
    }

    /// Asks whoever sits here whether a call may run. The end of the input means no.
    async fn ask_approval(&mut self, asked: Question) -> Result<()> {
        let mut asked = Some(asked);
        while let Some(open) = asked.take() {
            question(&approval_prompt(&open));
            let mut line = String::new();
            let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
            asked = match (read, questions::answer(&line)) {
                (Ok(0) | Err(_), _) => self.answer(&open, questions::answer_of("no")).await?,
                (Ok(_), Some(answer)) => self.answer(&open, answer).await?,
                (Ok(_), None) => Some(open),
            };
        }
        Ok(())
    }

    /// The gateway is gone in the middle of a run, which it takes up again by itself.
    fn lost(&mut self) -> anyhow::Error {
        self.screen.end_line();
        let message = "the connection to the gateway was lost; the run goes on there";
        Refused(Refusal::new(RefusalCode::Unavailable, message).with_hint(self.read_later())).into()
    }

    fn read_later(&self) -> String {
        format!("read the answer with `gantry sessions show {}`", self.connection.key)
    }

    /// Waits for a gateway that is away, and says so. `None` when it stays away, or an interrupt ends the wait.
    async fn reconnect(&mut self) -> Option<ListenResult> {
        self.screen.end_line();
        self.output.warning("the connection to the gateway was lost; reconnecting (Ctrl-C ends the wait)");
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
                self.output.error(&format!("{err:#}; {}", self.read_later()));
                None
            }
        }
    }

    /// Tells a message from every other, so that one that is sent twice counts once.
    fn next_id(&mut self) -> String {
        self.said += 1;
        let now = jiff::Timestamp::now().as_nanosecond();
        format!("chat-{}-{now}-{}", std::process::id(), self.said)
    }

    /// As [`Chat::send`]. After a restart of the gateway the message is sent again.
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

    /// Says something; the id under which it will be settled, unless it was a command.
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
                self.output.page(&text);
                None
            }
            SendResult::Accepted { message_id, .. }
            | SendResult::Final { message_id, .. }
            | SendResult::Stopped { message_id, .. }
            | SendResult::Error { message_id, .. }
            | SendResult::Suspended { message_id, .. } => Some(message_id),
        })
    }

    /// The question again, if that was no answer to it.
    async fn answer(&mut self, question: &Question, answer: AnswerParams) -> Result<Option<Question>> {
        let key = self.connection.key.clone();
        let params =
            AnswerParams { session_key: Some(key.clone()), question: Some(question.id.clone()), ..answer };
        let answered = self.connection.request::<AnswerResult>(method::SESSIONS_ANSWER, &params).await;
        let Err(err) = answered else {
            return Ok(None);
        };
        self.output.warning(&format!("{err:#}"));
        // Somebody else may have answered first.
        let params = SessionParams { session_key: key };
        let status: SessionStatus = self.connection.request(method::SESSIONS_STATUS, &params).await?;
        Ok(status.questions.into_iter().find(|open| open.id == question.id))
    }

    /// Tells the agent what it wanted to know.
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
