//! Measures reads of mails through a real gateway against Google's client library for Python: `reads PROGRAM SCRIPT`.
//! Both read the same mails from the same server, in turns. Prints one line of JSON.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for measuring starts programs and fails by panicking"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gantry_testkit::google::{CLIENT_ID, CLIENT_SECRET, FakeGoogle, installed};
use serde_json::{Value, json};

const READS: usize = 1_000;
const TURNS: usize = 3;
const MAILS: usize = 100;

/// A gateway that ends with this value.
struct Gateway {
    child: Child,
    address: String,
    token: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start(program: &str, data: &Path) -> Gateway {
        let mut up = command(program, data, &["up", "--json", "--listen", "127.0.0.1:0"]);
        let mut child = up.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let address = started["url"].as_str().unwrap().trim_start_matches("http://").to_owned();
        let token = std::fs::read_to_string(data.join("token")).unwrap().trim().to_owned();
        Gateway { child, address, token }
    }

    /// Resident memory in KB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// A connection that stays open.
    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        BufReader::new(stream)
    }

    fn request(
        &self,
        stream: &mut BufReader<TcpStream>,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).unwrap();
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        (status, String::from_utf8(answer).unwrap())
    }

    fn google_tools(&self) -> usize {
        let (_, listed) = self.request(&mut self.connect(), "GET", "/v1/tools", "");
        listed.matches("\"google_").count()
    }
}

fn command(program: &str, data: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("GANTRY_DATA_DIR", data).env("HOME", data).current_dir(data);
    command
}

fn mail(number: usize) -> String {
    let text = "A line of an ordinary mail, with a few words in it.\n".repeat(40);
    format!(
        "From: Jo <jo@c.example>\nTo: ann@example.com\nSubject: Number {number}\nMessage-ID: <m{number}@c.example>\n\
         MIME-Version: 1.0\nContent-Type: text/plain\n\n{text}"
    )
}

fn sign_in(program: &str, data: &Path) {
    let mut auth = command(program, data, &["google", "auth", "--no-browser"]);
    let mut child = auth.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.find_map(|line| line.strip_prefix("Sign in here: ").map(str::to_owned)).unwrap();
    assert!(Command::new("curl").args(["-sL", "--max-time", "10", &url]).output().unwrap().status.success());
    assert!(child.wait().unwrap().success());
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let program = std::env::args().nth(1).expect("the path of the program");
    let script = std::env::args().nth(2).expect("the path of the script");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fake = runtime.block_on(FakeGoogle::start());
    let ids: Vec<String> = (0..MAILS).map(|number| fake.state().gmail.receive(&mail(number))).collect();
    let token = fake.token("ann@example.com", &["gmail.readonly"]);

    let data = tempfile::tempdir().unwrap();
    let plain = Gateway::start(&program, data.path());
    std::thread::sleep(Duration::from_secs(2));
    let (tools_without, memory_without) = (plain.google_tools(), plain.memory());
    drop(plain);
    let config = format!(
        "[google]\nclientId = \"{CLIENT_ID}\"\nclientSecret = \"{CLIENT_SECRET}\"\napiUrl = \"{}\"\n",
        fake.url()
    );
    std::fs::write(data.path().join("gantry.toml"), config).unwrap();
    let idle = Gateway::start(&program, data.path());
    std::thread::sleep(Duration::from_secs(2));
    let memory_with = idle.memory();
    drop(idle);
    sign_in(&program, data.path());
    let gateway = Gateway::start(&program, data.path());

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let mut stream = gateway.connect();
        let started = Instant::now();
        for number in 0..READS {
            let body = json!({"action": "read", "message_id": ids[number % MAILS]}).to_string();
            let (status, answer) = gateway.request(&mut stream, "POST", "/v1/tools/google_gmail", &body);
            assert!(status == 200 && answer.contains("ordinary mail"), "{status}: {answer}");
        }
        ours.push(started.elapsed().as_secs_f64() * 1e3);
        // The script measures itself, without the time that Python takes to start.
        let output = Command::new(installed("venv-google/bin/python"))
            .args([&script, &fake.url(), &token, &READS.to_string()])
            .args(&ids)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        theirs.push(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap());
    }
    let found = json!({
        "ours": median(ours), "theirs": median(theirs), "toolsWithout": tools_without,
        "idleKb": memory_with.saturating_sub(memory_without),
    });
    println!("{found}");
}
