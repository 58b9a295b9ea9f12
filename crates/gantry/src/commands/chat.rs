//! `gantry chat` sends one message to an agent, or runs a conversation line by line.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use gantry_protocol::{
    AnswerParams, AnswerResult, ListenResult, MessageParams, Question, SendResult, SessionParams,
    SessionStatus, method,
};

use crate::client::{Address, Target};
use crate::commands::call;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::line_editor::Keys;
use crate::live_screen::{LiveScreen, ShownScreen};
use crate::output::Output;
use crate::running_gateway::{LocalNode, RunningGateway};

mod completion;
mod connection;
mod conversation;
mod conversations;
mod greeting;
mod history;
mod missed;
mod one_shot;
mod pictures;
mod questions;
mod screen;
mod tool_lines;

use connection::Connection;
use questions::Asks;
use screen::Screen;

const MAX_INPUT: u64 = 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry chat                                      start a conversation; /help shows commands\n  \
    gantry chat 'What changed here since yesterday?'\n  \
    git diff | gantry chat -                         read the message from standard input\n  \
    gantry chat --continue 'And the tests?'          go on in this directory's newest conversation\n  \
    gantry chat --agent reviewer --session pr-12 'Look at this again'\n  \
    gantry chat 'What is wrong here? @shot.png'      attach a picture\n  \
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
    /// Keys that edit a line
    #[arg(
        long,
        value_name = "KEYS",
        value_enum,
        default_value_t,
        env = "GANTRY_CHAT_KEYS",
        hide_env_values = true
    )]
    keys: Keys,
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
            chat.keys = args.keys;
            chat.has_own_gateway = own.is_some();
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
    environment: &'a Environment,
    output: &'a Output,
    connection: Connection<'a>,
    screen: Screen<'a>,
    /// The changing rows and the prompt. `None` if the terminal cannot show them.
    live: Option<ShownScreen>,
    /// Where the gateway runs, for people.
    machine: String,
    /// The workspace of the next runs.
    workspace: Option<String>,
    /// The session's state when the chat started.
    status: ListenResult,
    /// The model that `--model` chose.
    model: Option<String>,
    keys: Keys,
    /// The gateway stops together with the conversation.
    has_own_gateway: bool,
    /// The number of messages sent.
    sent: u32,
    /// Messages that were typed here.
    own: Vec<String>,
    /// Answers that were shown since `shown_events` was current.
    answers: Vec<String>,
    /// The journal's next event that was not shown.
    shown_events: i64,
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
        let live = (!output.json && environment.terminal_moves_cursor()).then(LiveScreen::show);
        let screen = Screen::new(output, live.as_deref().cloned());
        Ok(Chat {
            environment,
            output,
            connection,
            screen,
            live,
            machine: greeting::machine(address),
            workspace,
            status,
            model: None,
            keys: Keys::default(),
            has_own_gateway: false,
            sent: 0,
            own: Vec::new(),
            answers: Vec::new(),
            shown_events: 0,
        })
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

    /// Reports an error without ending the conversation: as a line, or as an object with `--json`.
    fn failed(&self, err: &anyhow::Error) {
        match self.output.json {
            true => drop(Exit::report(self.output, err)),
            false => self.output.error(&format!("{err:#}")),
        }
    }

    fn read_later(&self) -> String {
        format!("read the answer with `gantry sessions show {}`", self.connection.key)
    }

    /// Returns a unique id for a message, so that the gateway accepts a repeated message only once.
    fn next_id(&mut self) -> String {
        self.sent += 1;
        let now = jiff::Timestamp::now().as_nanosecond();
        format!("chat-{}-{now}-{}", std::process::id(), self.sent)
    }

    /// Sends a message. Returns its id, unless it was a command.
    async fn send(&mut self, text: &str, id: &str) -> Result<Option<String>> {
        // Paths in a message are those of this machine, for pictures too.
        let directory = self.environment.current_dir.join(self.workspace.as_deref().unwrap_or_default());
        let is_command = text.trim_start().starts_with('/');
        let pictures =
            if is_command { Vec::new() } else { pictures::of(self.environment, &directory, text)? };
        let params = MessageParams {
            session_key: Some(self.connection.key.clone()),
            message: text.to_owned(),
            id: Some(id.to_owned()),
            workspace: self.workspace.clone(),
            pictures,
            ..MessageParams::default()
        };
        let sent: SendResult = self.connection.request(method::SESSIONS_SEND, &params).await?;
        Ok(match sent {
            SendResult::Command { .. } if self.output.json => {
                self.output.value(&sent);
                None
            }
            SendResult::Command { text, .. } => {
                text.lines().for_each(|line| self.command_answer(line));
                None
            }
            SendResult::Accepted { message_id, .. }
            | SendResult::Final { message_id, .. }
            | SendResult::Stopped { message_id, .. }
            | SendResult::Error { message_id, .. }
            | SendResult::Suspended { message_id, .. } => Some(message_id),
        })
    }

    /// Prints a line of a command's answer. Further rows of a table's line start at its last column.
    fn command_answer(&self, line: &str) {
        let column = line.find("  ").map(|at| at + line[at..].len() - line[at..].trim_start().len());
        self.output.prose(line, column.unwrap_or_default());
    }

    /// Stops the run. The session's event says so.
    async fn stop(&self) -> Result<()> {
        let params = MessageParams {
            session_key: Some(self.connection.key.clone()),
            message: "/stop".to_owned(),
            ..MessageParams::default()
        };
        self.connection.request::<SendResult>(method::SESSIONS_SEND, &params).await?;
        Ok(())
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
