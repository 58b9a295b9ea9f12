//! Measures channels with a real gateway and servers of chat services: `chats PROGRAM`. Prints one line of JSON.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for measuring starts programs and fails by panicking"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gantry_model::testing::{Heard, KEY, Script, ScriptedServer, Turn};
use gantry_testkit::chat::discord::{self, FakeDiscord};
use gantry_testkit::chat::slack::{self, FakeSlack};
use gantry_testkit::chat::telegram::{FakeTelegram, TOKEN, message};
use gantry_testkit::chat::whatsapp::{self, FakeWhatsApp};
use gantry_testkit::chat::{MailServer, Synapse};
use serde_json::{Value, json};

const MESSAGES: usize = 100;
const AT_ONCE: usize = 1_000;
const CHATS: usize = 100;
const IDLE: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(60);

/// A gateway with a data directory of its own.
struct Gateway {
    child: Child,
    program: String,
    data: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start(program: &str, config: &str, secrets: &[(&str, &str)]) -> Gateway {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("gantry.toml"), config).unwrap();
        for (name, value) in secrets {
            let mut command = base(program, data.path(), &["secrets", "set", name, "--host", "127.0.0.1"]);
            let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
        }
        let mut command = base(program, data.path(), &["up", "--json", "--listen", "127.0.0.1:0"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Gateway { child, program: program.to_owned(), data }
    }

    fn connected(&self, count: usize) {
        until("the accounts are connected", || {
            let output = base(&self.program, self.data.path(), &["channels", "--json"]).output().unwrap();
            let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let accounts = listed["accounts"].as_array().cloned().unwrap_or_default();
            accounts.iter().filter(|account| account["state"] == "connected").count() >= count
        });
    }

    /// Resident memory in KB: now, or the highest.
    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Processor time in seconds.
    fn processor(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

fn base(program: &str, data: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("GANTRY_DATA_DIR", data).env("HOME", data).current_dir(data);
    command
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// A message in one of the listed groups.
fn said(number: usize, chat: usize) -> Value {
    let id = -1_000 - i64::try_from(chat).unwrap();
    let chat = json!({ "id": id, "type": "supergroup", "title": "Room" });
    let from = json!({ "id": 5, "is_bot": false, "first_name": "Bob" });
    let text = format!("hello {number}");
    message(chat, json!({ "message_id": number + 10, "date": now(), "text": text, "from": from }))
}

fn main() {
    let program = std::env::args().nth(1).expect("the path of the program");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let times = asked.clone();
    let decide = move |_: &Heard| {
        times.lock().unwrap().push(Instant::now());
        Turn::text("an answer")
    };
    let model = runtime.block_on(ScriptedServer::deciding(Script::default(), decide));
    let models = format!(
        "[models]\n[models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n[models.providers.lab.models.scripted-1]\n\
         contextWindow = 100000\n[agents.main]\nmodel = \"lab/scripted-1\"\n",
        model.base_url()
    );
    let telegram = runtime.block_on(FakeTelegram::start());
    let account = format!(
        "[channels.telegram.default]\ntoken = \"secret:TELEGRAM\"\napiUrl = \"{}\"\n",
        telegram.url()
    );
    let group = |chat: usize| {
        let id = 1_000 + chat;
        format!("[channels.telegram.default.groups.-{id}]\nallow = [\"*\"]\nanswerAll = true\n")
    };
    let groups: String = (0..CHATS).map(group).collect();
    let gateway = Gateway::start(&program, &format!("{models}{account}{groups}"), &[("TELEGRAM", TOKEN)]);
    gateway.connected(1);

    let (mut started, mut sent) = (Vec::new(), Vec::new());
    for number in 0..MESSAGES {
        let before = telegram.calls("sendMessage").len();
        let at = Instant::now();
        telegram.push("message", said(number, number % CHATS));
        until("an answer", || telegram.calls("sendMessage").len() > before);
        let arrived = Instant::now();
        let asked = *asked.lock().unwrap().last().unwrap();
        started.push(asked.duration_since(at).as_secs_f64() * 1e3);
        sent.push(arrived.duration_since(asked).as_secs_f64() * 1e3);
    }
    let memory_before = gateway.memory("VmRSS:");
    let at = Instant::now();
    for number in 0..AT_ONCE {
        telegram.push("message", said(MESSAGES + number, number % CHATS));
    }
    until("all messages are accepted", || telegram.backlog() == 0);
    let accepted = at.elapsed().as_secs_f64();
    let grown = gateway.memory("VmHWM:").saturating_sub(memory_before);
    drop(gateway);

    let plain = Gateway::start(&program, &models, &[]);
    std::thread::sleep(Duration::from_secs(5));
    let memory_without = plain.memory("VmRSS:");
    drop(plain);
    let (slack, discord) = (runtime.block_on(FakeSlack::start()), runtime.block_on(FakeDiscord::start()));
    let whatsapp = runtime.block_on(FakeWhatsApp::start());
    let (synapse, mail) = (Synapse::start(), MailServer::start(&[]));
    let bot = synapse.register("gantry");
    let config = format!(
        "{models}{account}[channels.slack.default]\nbotToken = \"secret:SLACK_BOT\"\nappToken = \"secret:SLACK_APP\"\n\
         apiUrl = \"{}\"\n[channels.discord.default]\ntoken = \"secret:DISCORD\"\napiUrl = \"{}\"\n\
         [channels.whatsapp.default]\nphoneNumberId = \"{}\"\ntoken = \"secret:WA\"\nappSecret = \"secret:WA_APP\"\n\
         verifyToken = \"secret:WA_VERIFY\"\napiUrl = \"{}\"\n[channels.matrix.default]\ntoken = \"secret:MATRIX\"\n\
         homeserver = \"{}\"\n[channels.email.default]\naddress = \"agent@example.org\"\npassword = \"secret:MAIL\"\n\
         imap = \"127.0.0.1:{}\"\nsmtp = \"127.0.0.1:{}\"\n[channels.webhook.default]\nsecret = \"secret:HOOK\"\n\
         url = \"http://127.0.0.1:9/\"\n",
        slack.api_url(),
        discord.api_url(),
        whatsapp::PHONE_NUMBER_ID,
        whatsapp.api_url(),
        synapse.url(),
        mail.imap_port,
        mail.smtp_port
    );
    let secrets = [
        ("TELEGRAM", TOKEN),
        ("SLACK_BOT", slack::BOT_TOKEN),
        ("SLACK_APP", slack::APP_TOKEN),
        ("DISCORD", discord::TOKEN),
        ("WA", whatsapp::TOKEN),
        ("WA_APP", whatsapp::APP_SECRET),
        ("WA_VERIFY", whatsapp::VERIFY_TOKEN),
        ("MATRIX", bot.1.as_str()),
        ("MAIL", "password"),
        ("HOOK", "a key of enough length"),
    ];
    let gateway = Gateway::start(&program, &config, &secrets);
    gateway.connected(7);
    std::thread::sleep(Duration::from_secs(5));
    let before = gateway.processor();
    std::thread::sleep(IDLE);
    let share = (gateway.processor() - before) / IDLE.as_secs_f64() * 100.0;
    let added = gateway.memory("VmRSS:").saturating_sub(memory_without);
    println!(
        "{}",
        json!({
            "startedMs": median(started), "sentMs": median(sent), "acceptedS": accepted, "grownKb": grown,
            "idlePercent": share, "idleAddedKb": added,
        })
    );
}
