//! `gantry chat`: talk with an agent. One message and its answer, or a conversation line by line.

use std::collections::HashMap;
use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use gantry_link::{Event, Link, LinkError, Request, ServeFuture, Service};
use gantry_protocol::{StreamFrame, event, method, raw};
use gantry_tool::{Refusal, RefusalCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::{ANSWER_LIMIT, Address, Target, open, request_error};
use crate::commands::interrupted;
use crate::exit::{Exit, Refused, UsageError};
use crate::output::{Output, Tone, question};
use crate::places::Places;
use crate::served::{LocalNode, Served};
use crate::typing::Typing;

mod questions;

use questions::{Asks, Waiting, approval_prompt};

/// Events that may wait to be shown; what is missed is told, and the answer is asked for.
const WAITING: usize = 4096;
/// How often the answer is asked for once events were missed.
const ASK_AGAIN: Duration = Duration::from_secs(2);
const MAX_INPUT: u64 = 1024 * 1024;
/// Of what a call is made with, in a line about it.
const SHOWN_CHARS: usize = 60;
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
    /// Where relative paths start, if this command has to start the gateway [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<std::path::PathBuf>,
}

pub(crate) fn run(places: Places, output: &Output, args: ChatArgs) -> Result<Exit> {
    let key = session_key(&args)?;
    let message = message(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start")?;
    let exit = runtime.block_on(async {
        let (address, own) = reach(&places, output, &args).await?;
        let talked = async {
            let chat = Chat::open(&address, output, key).await?;
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

/// The gateway that runs; else one of our own, for as long as this takes.
async fn reach(places: &Places, output: &Output, args: &ChatArgs) -> Result<(Address, Option<Served>)> {
    match Target::find(places, output, false)? {
        Target::Gateway(address) => Ok((address, None)),
        Target::InProcess => {
            let mut places = places.clone();
            places.layers.overrides.push("gateway.listen=\"127.0.0.1:0\"".to_owned());
            let workspace = args.workspace.clone().unwrap_or_default();
            let workspace = places.resolve(&places.current_dir.join(workspace));
            let served =
                Served::start(&places, LocalNode::Included, workspace, output.running_notes()).await?;
            let address = Target::gateway(&places, output)?;
            Ok((address, Some(served)))
        }
    }
}

struct Chat<'a> {
    output: &'a Output,
    key: String,
    link: Link,
    events: mpsc::Receiver<Value>,
    missed: Arc<AtomicBool>,
    /// A line of the answer is half said.
    is_in_line: bool,
    /// Calls under way: since when, and what was told of them.
    calls: HashMap<String, (Instant, String)>,
    /// The call that the last line on the screen is about.
    last_line: Option<String>,
}

/// What became of a message.
enum Turn {
    Settled(Exit),
    /// Somebody has to answer, and nobody here can.
    Waits(Value),
}

/// Whether the conversation goes on after a run.
enum Went {
    On,
    Away,
}

impl<'a> Chat<'a> {
    async fn open(address: &Address, output: &'a Output, key: String) -> Result<Chat<'a>> {
        let (told, events) = mpsc::channel(WAITING);
        let missed = Arc::new(AtomicBool::new(false));
        let listener = Arc::new(Listener { told, missed: missed.clone() });
        let (link, _, _) = open(address, listener).await.map_err(Refused)?;
        let calls = HashMap::new();
        let mut chat = Chat { output, key, link, events, missed, is_in_line: false, calls, last_line: None };
        let status = chat.request(method::SESSIONS_LISTEN, json!({"sessionKey": chat.key})).await?;
        if let Some(key) = status["sessionKey"].as_str() {
            key.clone_into(&mut chat.key);
        }
        Ok(chat)
    }

    /// One message and its answer.
    async fn once(mut self, text: String) -> Result<Exit> {
        let Some(id) = self.send(&text).await? else { return Ok(Exit::Success) };
        let asks = std::io::stdin().is_terminal() && !self.output.json;
        match self.until_settled(&id, asks).await? {
            Turn::Settled(exit) => Ok(exit),
            Turn::Waits(question) => {
                let (id, tool) = (text_of(&question["id"]), text_of(&question["tool"]));
                let (message, words) = match question["questions"].as_array() {
                    Some(asked) => {
                        let asked = asked.iter().map(|one| text_of(&one["question"]));
                        (format!("the agent asks: {}", asked.collect::<Vec<_>>().join(" / ")), "ANSWER…")
                    }
                    None => (
                        format!("{tool} needs an approval: {}", text_of(&question["reason"])),
                        "yes|no|always",
                    ),
                };
                let hint = format!("gantry sessions answer {} --question {id} {words}", self.key);
                let refusal = Refusal::new(RefusalCode::ApprovalNeeded, message).with_hint(hint);
                Ok(self.output.refused(&refusal))
            }
        }
    }

    /// Message by message, until the input ends.
    async fn converse(mut self) -> Result<Exit> {
        let keys = "Alt-Enter or \\ begins a new line, Ctrl-C stops a run, Ctrl-D ends";
        self.output.done(&format!("{}; /help shows the commands; {keys}", self.key));
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
            match self.send(&line).await {
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
                event = self.next_event(&open[0]) => {
                    let event = event?;
                    typing.put_away();
                    self.show(&event);
                    waiting.hear(&event);
                    open.retain(|id| !settles(&event, id));
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
                            waiting.is_answered(&question["id"]);
                        }
                    } else if !line.trim().is_empty() {
                        match self.send(&line).await {
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
                    self.end_line();
                    self.send("/stop").await?;
                }
            }
            if let Some(prompt) = waiting.prompt() {
                self.end_line();
                typing.ask(&prompt);
            }
        }
    }

    async fn until_settled(&mut self, id: &str, asks: bool) -> Result<Turn> {
        let mut stopping = false;
        loop {
            let event = tokio::select! {
                event = self.next_event(id) => event?,
                () = interrupted() => {
                    if std::mem::replace(&mut stopping, true) {
                        return Ok(Turn::Settled(Exit::Failure));
                    }
                    self.send("/stop").await?;
                    continue;
                }
            };
            self.show(&event);
            if settles(&event, id) {
                return Ok(Turn::Settled(match event["event"].as_str() {
                    Some("final") => Exit::Success,
                    _ => Exit::Failure,
                }));
            }
            if event["event"] == "asked" {
                if !asks {
                    return Ok(Turn::Waits(event["asked"].clone()));
                }
                let mut asked = Asks::new(&event["asked"]);
                loop {
                    question(&asked.prompt().unwrap_or_default());
                    let mut line = String::new();
                    let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
                    if !matches!(read, Ok(1..)) || asked.take(&line) {
                        break;
                    }
                }
                self.reply(&asked).await?;
            }
            if event["event"] == "approval" {
                if !asks {
                    return Ok(Turn::Waits(event["question"].clone()));
                }
                let mut asked = Some(event["question"].clone());
                while let Some(open) = asked.take() {
                    question(&approval_prompt(&open));
                    let mut line = String::new();
                    let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
                    asked = match (read, questions::answer(&line)) {
                        (Ok(0) | Err(_), _) => self.answer(&open, json!({"answer": "no"})).await?,
                        (Ok(_), Some(answer)) => self.answer(&open, answer).await?,
                        (Ok(_), None) => Some(open),
                    };
                }
            }
        }
    }

    /// The next thing that happens. When some was missed, what settled the message is asked for.
    async fn next_event(&mut self, id: &str) -> Result<Value> {
        loop {
            tokio::select! {
                event = self.events.recv() => {
                    return event.context("the connection to the gateway was lost; the run goes on there");
                }
                () = tokio::time::sleep(ASK_AGAIN), if self.missed.load(Ordering::Relaxed) => {
                    // Said before under this id, so it is not said again.
                    let params = json!({"sessionKey": self.key, "message": "?", "id": id});
                    let answer = self.request(method::SESSIONS_SEND, params).await?;
                    if answer["status"] != "accepted" {
                        let event = answer["status"].clone();
                        return Ok(json!({
                            "event": event, "text": answer["reply"], "message": answer["error"],
                            "messages": [{"id": id}],
                        }));
                    }
                }
            }
        }
    }

    /// Says something; the id under which it will be settled, unless it was a command.
    async fn send(&mut self, text: &str) -> Result<Option<String>> {
        let params = json!({"sessionKey": self.key, "message": text});
        let answer = self.request(method::SESSIONS_SEND, params).await?;
        if answer["status"] == "command" {
            match self.output.json {
                true => self.output.value(&answer),
                false => self.output.line(&text_of(&answer["told"])),
            }
            return Ok(None);
        }
        Ok(Some(text_of(&answer["messageId"])))
    }

    /// The question again, if that was no answer to it.
    async fn answer(&mut self, question: &Value, mut params: Value) -> Result<Option<Value>> {
        (params["sessionKey"], params["question"]) = (json!(self.key), question["id"].clone());
        let Err(err) = self.request(method::SESSIONS_ANSWER, params).await else { return Ok(None) };
        self.output.warning(&format!("{err:#}"));
        // Somebody else may have answered first.
        let status = self.request(method::SESSIONS_STATUS, json!({"sessionKey": self.key})).await?;
        let mut open = status["questions"].as_array().into_iter().flatten();
        Ok(open.find(|open| open["id"] == question["id"]).cloned())
    }

    /// Tells the agent what it wanted to know.
    async fn reply(&mut self, asks: &Asks) -> Result<()> {
        let params = json!({"sessionKey": self.key, "question": asks.id, "answers": asks.answers});
        if let Err(err) = self.request(method::SESSIONS_ANSWER, params).await {
            self.output.warning(&format!("{err:#}"));
        }
        Ok(())
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let answer: Result<_, LinkError> = self.link.request_within(method, raw(&params), ANSWER_LIMIT).await;
        let answer = answer.map_err(request_error)?;
        serde_json::from_str(answer.get()).context("the gateway's answer is not valid")
    }

    fn show(&mut self, event: &Value) {
        if self.output.json {
            return self.output.value(event);
        }
        let streams = self.output.is_terminal();
        match event["event"].as_str().unwrap_or_default() {
            "text" if streams => {
                self.output.piece(&text_of(&event["delta"]));
                self.is_in_line = true;
                self.last_line = None;
            }
            "restart" => self.note(&format!("asked again: {}", text_of(&event["reason"])), Tone::Bad),
            "tool_start" => self.call_began(event),
            "tool_end" => self.call_ended(event),
            "approval" | "asked" => self.end_line(),
            "compacted" => self.note("the conversation was summed up", Tone::Quiet),
            "final" if streams && self.is_in_line => self.end_line(),
            "final" => self.output.page(&text_of(&event["text"])),
            "stopped" => self.note("stopped", Tone::Quiet),
            "error" => {
                self.end_line();
                self.output.error(&text_of(&event["message"]));
            }
            "suspended" => self.output.warning("the gateway is stopping; the run goes on when it is back"),
            _ => {}
        }
    }

    fn call_began(&mut self, event: &Value) {
        let told = format!("{} {}", text_of(&event["tool"]), shown(&event["input"]));
        self.note(&format!("\u{2026} {told}"), Tone::Quiet);
        let call = text_of(&event["call"]);
        self.last_line = Some(call.clone());
        self.calls.insert(call, (Instant::now(), told));
    }

    /// One line a call, where nothing came in between.
    fn call_ended(&mut self, event: &Value) {
        let call = text_of(&event["call"]);
        let Some((began, told)) = self.calls.remove(&call) else { return };
        let took = duration(began.elapsed());
        if self.last_line.take() == Some(call) {
            self.output.takes_activity_back();
        }
        match event["isError"] == true {
            false => self.note(&format!("\u{2713} {told} ({took})"), Tone::Quiet),
            true => {
                self.note(&format!("\u{2717} {told} ({took}): {}", shown(&event["result"])), Tone::Bad);
            }
        }
    }

    /// What the agent does, for who watches.
    fn note(&mut self, text: &str, tone: Tone) {
        self.end_line();
        self.last_line = None;
        self.output.activity(text, tone);
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.is_in_line) {
            self.output.line("");
        }
    }
}

fn duration(took: Duration) -> String {
    match took.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}

fn settles(event: &Value, id: &str) -> bool {
    let mut messages = event["messages"].as_array().into_iter().flatten();
    messages.any(|message| message["id"] == id) || event["event"] == "suspended"
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A value in a few words.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let short: String = text.chars().take(SHOWN_CHARS).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", short.replace('\n', " "))
}

/// Hears what happens in the session.
struct Listener {
    told: mpsc::Sender<Value>,
    missed: Arc<AtomicBool>,
}

impl Service for Listener {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, told: Event) {
        if told.name != event::SESSION_EVENT {
            return;
        }
        let Some(data) = told.parse::<Value>() else { return };
        let lost = data["event"]["event"] == "missed" || self.told.try_send(data["event"].clone()).is_err();
        if lost {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}
