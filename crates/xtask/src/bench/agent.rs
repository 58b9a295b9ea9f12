//! Measures the agent runtime: the time it adds to a turn and to the first word of an answer, and the throughput of its
//! journal. A real gateway runs between a model that answers at once and a client that listens.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Row;
use super::corpus::Corpus;
use super::gateway::Gateway;
use super::measure::median;
use crate::shell;

/// The number of calls in one message. Each reads another file, because repeated calls are stopped.
const TURNS: usize = 100;
const ANSWERS: usize = 100;
/// The pause between the head of an answer and its first word, so that every listener is waiting.
pub(super) const THINKING: Duration = Duration::from_millis(20);
const CALL_FILES: &str = "read all the files";

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let files = tempfile::tempdir()?;
    for number in 0..TURNS {
        std::fs::write(files.path().join(format!("{number}.txt")), "a line of text\n")?;
    }
    let model = Model::start(files.path())?;
    let data = tempfile::tempdir()?;
    let config = format!(
        "[models]\n[models.providers.bench]\nbaseUrl = \"http://{}/v1\"\nkey = \"bench\"\n\
         [models.providers.bench.models.instant]\ncontextWindow = 200000\nmaxOutput = 4096\n\
         [agents.main]\nmodel = \"bench/instant\"\nautonomy = \"guided\"\n",
        model.address
    );
    std::fs::write(data.path().join("gantry.toml"), config)?;
    let gateway = Gateway::on(gantry, data)?;

    Client::open(&gateway)?.ask("turns", CALL_FILES)?;
    let mut turns: Vec<f64> = model.turns.try_iter().map(milliseconds).collect();
    ensure!(turns.len() == TURNS, "{} of {TURNS} turns happened", turns.len());
    let mut words = Vec::new();
    for number in 0..ANSWERS {
        let heard = Client::open(&gateway)?.ask("answers", &format!("say something, number {number}"))?;
        let said = model.said.recv_timeout(Duration::from_secs(10)).context("the model was not asked")?;
        words.push(milliseconds(heard.saturating_duration_since(said)));
    }
    let (turn, word) = (median(&mut turns), median(&mut words));
    let mut rows = vec![
        row(
            "turn with one Read, beyond the model's time, journal durable",
            format!("{turn:.2} ms"),
            "< 3 ms",
            turn < 3.0,
        ),
        row("first word from model to client", format!("{word:.2} ms"), "< 1 ms", word < 1.0),
    ];
    rows.extend(journal(gantry)?);
    Ok(rows)
}

fn journal(gantry: &Path) -> Result<Vec<Row>> {
    let example = gantry.with_file_name("examples").join("journal");
    let printed = shell::output(&[&example.to_string_lossy()], &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (appends, resume, bare) = (number("appendsPerSecond"), number("resumeMs"), number("resumeBareMs"));
    Ok(vec![
        row(
            "journal, 64 sessions at once",
            format!("{appends:.0} events/s"),
            "≥ 5,000 /s",
            appends >= 5_000.0,
        ),
        row("resume of a session with 100,000 events", format!("{resume:.1} ms"), "< 200 ms", resume < 200.0),
        row("  without a checkpoint among them", format!("{bare:.0} ms"), "< 200 ms", bare < 200.0),
    ])
}

fn row(work: &'static str, ours: String, goal: &'static str, met: bool) -> Row {
    Row { work, against: "", ours, theirs: String::new(), result: String::new(), goal, met }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A server that answers in the form of chat completions and looks at the clock.
pub(super) struct Model {
    pub(super) address: String,
    /// From the last byte of an answer with a call to the last of the next request.
    turns: Receiver<Duration>,
    /// When the first word of an answer was sent.
    said: Receiver<Instant>,
}

impl Model {
    pub(super) fn start(files: &Path) -> Result<Model> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let (turn, turns) = channel();
        let (word, said) = channel();
        let files = files.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answering = Answering { files: files.clone(), turn: turn.clone(), word: word.clone() };
                // A connection that ends is the client's affair.
                std::thread::spawn(move || drop(answering.serve(stream)));
            }
        });
        Ok(Model { address, turns, said })
    }
}

/// One connection.
struct Answering {
    files: std::path::PathBuf,
    turn: Sender<Duration>,
    word: Sender<Instant>,
}

impl Answering {
    fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut writer = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        let mut answered: Option<Instant> = None;
        loop {
            let body = read_request(&mut reader)?;
            // Before it is looked at: a model's time is not the runtime's.
            let asked = Instant::now();
            let body: Value = serde_json::from_slice(&body)?;
            let messages = body["messages"].as_array().context("no messages")?;
            let calls_files =
                messages.iter().any(|message| message["content"].to_string().contains(CALL_FILES));
            let results = messages.iter().filter(|message| message["role"] == "tool").count();
            if let Some(answered) = answered.take().filter(|_| results > 0) {
                let _ = self.turn.send(asked - answered);
            }
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            writer.write_all(head.as_bytes())?;
            if calls_files && results < TURNS {
                let path = self.files.join(format!("{results}.txt"));
                let arguments = json!({"path": path}).to_string();
                let function = json!({"name": "Read", "arguments": arguments});
                let call = json!({"index": 0, "id": format!("call_{results}"), "type": "function", "function": function});
                write_chunk(&mut writer, &chunk(&json!({"role": "assistant", "tool_calls": [call]}), None))?;
                write_end(&mut writer, "tool_calls")?;
                answered = Some(Instant::now());
            } else {
                std::thread::sleep(THINKING);
                if !calls_files {
                    let _ = self.word.send(Instant::now());
                }
                let delta = json!({"role": "assistant", "content": "Something."});
                write_chunk(&mut writer, &chunk(&delta, None))?;
                std::thread::sleep(THINKING);
                write_end(&mut writer, "stop")?;
            }
        }
    }
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "instant", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn write_end(writer: &mut TcpStream, finish: &str) -> Result<()> {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    let usage = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "instant", "choices": [], "usage": usage});
    write_chunk(writer, &format!("{}data: {usage}\n\ndata: [DONE]\n\n", chunk(&json!({}), Some(finish))))?;
    Ok(writer.write_all(b"0\r\n\r\n")?)
}

fn write_chunk(writer: &mut TcpStream, data: &str) -> Result<()> {
    Ok(writer.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes())?)
}

/// The body of the next request of a connection.
fn read_request(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        ensure!(reader.read_line(&mut line)? > 0, "the connection has ended");
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// A client that listens to one message's events.
struct Client {
    stream: TcpStream,
    host: String,
    token: String,
}

impl Client {
    fn open(gateway: &Gateway) -> Result<Client> {
        let host = gateway.url.trim_start_matches("http://").to_owned();
        let stream = TcpStream::connect(&host)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, host, token: gateway.token()? })
    }

    /// Sends a message, waits for the answer, and returns when its first word arrived.
    fn ask(mut self, session: &str, text: &str) -> Result<Instant> {
        let body = json!({"message": text}).to_string();
        write!(
            self.stream,
            "POST /v1/sessions/{session}/messages HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            self.token,
            body.len(),
        )?;
        let mut first = None;
        for line in BufReader::new(self.stream).lines() {
            let line = line?;
            let Some(event) = line.strip_prefix("data: ") else { continue };
            let now = Instant::now();
            let event: Value = serde_json::from_str(event)?;
            match event["event"].as_str() {
                Some("text") => _ = first.get_or_insert(now),
                Some("final") => return first.context("the answer ended without a first word"),
                Some("error") => anyhow::bail!("the run failed: {event}"),
                _ => {}
            }
        }
        anyhow::bail!("the stream ended before the answer")
    }
}
