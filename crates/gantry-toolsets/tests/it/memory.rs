//! The memory cost of one response for `http_request`. Each hostile response is read in a separate
//! process, which reports its peak memory.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use gantry_net::testing::site::{Say, Site, answer};
use gantry_toolsets::testing::{Bench, reach_this_machine};
use serde_json::json;
use tokio::io::AsyncReadExt;

const MIB: usize = 1 << 20;
/// The most bytes of a response that are stored, and the memory that it may need in addition.
const LIMIT: usize = 16 * MIB;
const MORE_MEMORY: usize = 16 * MIB;
const URL: &str = "GANTRY_MEMORY_URL";
const TEST: &str = "memory::response_needs_bounded_memory";
const PATIENCE: Duration = Duration::from_secs(60);
const SENT: &str = "LITERALTOKEN99";
const STORED: &str = "STOREDSECRETVALUE";

struct Case {
    name: &'static str,
    say: Vec<Say>,
    /// Text that the tool's result must contain.
    expected: &'static str,
}

fn endless(headers: &str, bytes: Vec<u8>) -> Vec<Say> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
    vec![Say::Bytes(head.into_bytes()), Say::Forever(bytes, Duration::ZERO)]
}

async fn cases() -> Vec<Case> {
    let text = vec![b'a'; 2 * LIMIT];
    let zeros = vec![0; 2 * LIMIT];
    let (mut gzip, mut brotli, mut zstd) = (Vec::new(), Vec::new(), Vec::new());
    GzipEncoder::new(&text[..]).read_to_end(&mut gzip).await.unwrap();
    BrotliEncoder::new(&text[..]).read_to_end(&mut brotli).await.unwrap();
    ZstdEncoder::new(&zeros[..]).read_to_end(&mut zstd).await.unwrap();
    let encoded = |encoding, body: &[u8]| answer("200 OK", &[("Content-Encoding", encoding)], body);
    let json = |body: String| answer("200 OK", &[("Content-Type", "application/json")], body.as_bytes());
    let flat = format!("[{}1]", "1,".repeat(LIMIT / 2 - 2));
    let deep = format!("{}{}1{}", "[".repeat(60), "1,".repeat(LIMIT / 2 - 100), "]".repeat(60));
    let escapes = format!("[\"{}\"]", "\\u0041".repeat(LIMIT / 6 - 2));
    let plain = "Content-Type: text/plain\r\n";
    let secrets = format!("{SENT} {STORED} ").repeat(1_000).into_bytes();
    let latin = "Content-Type: text/plain; charset=iso-8859-1\r\n";
    let utf16 = "Content-Type: text/plain; charset=utf-16le\r\n";
    let cut = "the rest was not read";
    let case = |name, say, expected| Case { name, say, expected };
    vec![
        case("endless text", endless(plain, vec![b'x'; 65_536]), cut),
        case("endless bytes", endless("", vec![0; 65_536]), cut),
        case("gzip bomb of text", encoded("gzip", &gzip), cut),
        case("brotli bomb of text", encoded("br", &brotli), cut),
        case("zstd bomb of bytes", encoded("zstd", &zstd), cut),
        case("flat JSON", json(flat), "truncated: "),
        case("deep JSON", json(deep), "truncated: "),
        case("JSON in escapes", json(escapes), "truncated: "),
        case("endless secrets", endless(plain, secrets), cut),
        case("endless Latin-1", endless(latin, vec![0x80; 65_536]), cut),
        case("endless UTF-16", endless(utf16, vec![0x20; 65_536]), cut),
    ]
}

#[test]
fn response_needs_bounded_memory() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Ok(url) = std::env::var(URL) {
        runtime.block_on(be_the_caller(&url));
        return;
    }
    let mut wrong = Vec::new();
    for case in runtime.block_on(cases()) {
        let site = runtime.block_on(Site::start(move |heard| match heard.target.as_str() {
            "/warm" => answer("200 OK", &[("Content-Type", "application/json")], b"{\"small\": 1}"),
            _ => case.say.clone(),
        }));
        let output = caller_process(&site.url(""));
        let report = output.lines().find_map(|line| line.strip_prefix("report: ")).unwrap_or("nothing");
        let (kib, outcome) = report.split_once(' ').unwrap_or_default();
        let kib: u64 = kib.parse().unwrap_or(u64::MAX);
        println!("{:20} {:6.1} MiB  {outcome}", case.name, kib as f64 / 1024.0);
        if kib > (LIMIT + MORE_MEMORY) as u64 / 1024 || !outcome.contains(case.expected) {
            wrong.push(format!("{}: {report}, expected {}", case.name, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the output of the caller process; empty if it had to be killed.
fn caller_process(url: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(URL, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    // It has already exited, or it must be killed.
    let _ = child.kill();
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

/// Prints how much more memory the peak needed than a small response, and the last line of the
/// result.
#[expect(clippy::print_stdout, reason = "what it prints is its report to the test that started it")]
async fn be_the_caller(url: &str) {
    let bench = Bench::with(reach_this_machine);
    bench.secrets().set("STORED", STORED, &["127.0.0.1".to_owned()], 0).unwrap();
    let send = async |path: &str| {
        let headers = json!({"Authorization": format!("Bearer {SENT}")});
        let input = json!({"url": format!("{url}{path}"), "headers": headers, "timeout_ms": 60_000});
        bench.call("http_request", input).await.unwrap()
    };
    send("/warm").await;
    // Resets the recorded peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory_kib("VmRSS:");
    let answer = send("/hostile").await;
    let more = memory_kib("VmHWM:").saturating_sub(before);
    let answer = answer.as_str().unwrap();
    assert!(!answer.contains(SENT) && !answer.contains(STORED));
    println!("report: {more} {}", answer.trim_end().lines().last().unwrap());
}

fn memory_kib(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
