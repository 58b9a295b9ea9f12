//! Answers that are designed to do harm. A separate process measures their cost in memory and time.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use async_compression::Level;
use async_compression::brotli::EncoderParams;
use async_compression::tokio::bufread as encode;
use gantry_net::Request;
use gantry_net::testing::site::{Say, Site, answer};
use tokio::io::AsyncReadExt;

use crate::answers::{client, encoded};

const MIB: usize = 1 << 20;
/// How much the reader wants. The rest must stay on the wire.
const LIMIT: usize = 8 * MIB;
const MORE_MEMORY: usize = 16 * MIB;
/// The deadline of answers that never end.
const DEADLINE: Duration = Duration::from_millis(1500);
/// The deadline of answers that end by themselves, which may take a while on a busy machine.
const LONG_DEADLINE: Duration = Duration::from_secs(30);
/// How the client reports that an answer did not end in time.
const LATE: &str = "127.0.0.1 did not finish";
const URL: &str = "GANTRY_HOSTILE_URL";
const DEADLINE_MS: &str = "GANTRY_HOSTILE_DEADLINE_MS";
const TEST: &str = "hostile::hostile_answers_use_bounded_memory_and_time";

/// `Take` says how the client reads the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Reads at most the limit.
    Read,
    /// Reads everything and keeps nothing.
    Drain,
}

struct Case {
    name: &'static str,
    say: Vec<Say>,
    take: Take,
    /// How the client's output must begin.
    expected: &'static str,
}

fn forever(headers: &str, bytes: Vec<u8>) -> Vec<Say> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
    vec![Say::Bytes(head.into_bytes()), Say::Forever(bytes, Duration::ZERO)]
}

fn encoded_answer(encoding: &str, body: &[u8]) -> Vec<Say> {
    answer("200 OK", &[("Content-Encoding", encoding)], body)
}

async fn brotli(plain: &[u8], window_bits: i32) -> Vec<u8> {
    let parameters = EncoderParams::default().quality(Level::Precise(1)).window_size(window_bits);
    let mut bytes = Vec::new();
    encode::BrotliEncoder::with_params(plain, parameters).read_to_end(&mut bytes).await.unwrap();
    bytes
}

async fn cases() -> Vec<Case> {
    let case = |name, say: Vec<Say>, take, expected| Case { name, say, take, expected };
    let zeros = vec![0; 32 * MIB];
    let gzip = encoded(&["gzip"], &zeros).await;
    let deflate = encoded(&["deflate"], &zeros).await;
    let raw = encoded(&["raw deflate"], &zeros).await;
    let zstd = encoded(&["zstd"], &zeros).await;
    let brotli_bomb = brotli(&zeros, 23).await;
    // These gzip members are empty: the inner decoder consumes them all and produces nothing.
    let nothings = encoded(&["gzip"], b"").await.repeat(MIB);
    let nothing_twice = encoded(&["gzip"], &nothings).await;
    let both_brotli = brotli(&brotli(&zeros, 22).await, 22).await;
    let too_wide = brotli(&brotli(&zeros, 23).await, 23).await;
    let wide = brotli(&zeros, 24).await;
    let gzip_head = [0x1f, 0x8b, 8, 0b1000, 0, 0, 0, 0, 0, 0];
    let chunk = [&b"1000\r\n"[..], &[b'x'; 4096], b"\r\n"].concat();
    let many: String = (0..10_000).map(|number| format!("X-{number}: a\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "a".repeat(MIB));
    let slow = |bytes: &[u8]| Say::Forever(bytes.to_vec(), Duration::from_secs(1));
    let late = LATE;
    let mut cases = Vec::new();
    for (name, say) in [
        ("gzip bomb", encoded_answer("gzip", &gzip)),
        ("gzip bomb without end", forever("Content-Encoding: gzip\r\n", gzip)),
        ("deflate bomb", encoded_answer("deflate", &deflate)),
        ("bare deflate bomb", encoded_answer("deflate", &raw)),
        ("brotli bomb", encoded_answer("br", &brotli_bomb)),
        ("zstd bomb", encoded_answer("zstd", &zstd)),
        ("zstd bomb without end", forever("Content-Encoding: zstd\r\n", zstd)),
        ("brotli in brotli", encoded_answer("br, br", &both_brotli)),
        ("endless chunks", forever("Transfer-Encoding: chunked\r\n", chunk)),
        ("endless body", forever("", vec![b'x'; 65536])),
    ] {
        let ends = !name.contains("end");
        cases.push(case(name, say.clone(), Take::Read, "cut at 8388608"));
        cases.push(case(name, say, Take::Drain, if ends { "drained 33554432" } else { late }));
    }
    let refused = "127.0.0.1 answered with something that is not HTTP";
    for (name, say, expected) in [
        ("endless nothings", forever("Content-Encoding: gzip, gzip\r\n", nothing_twice), late),
        (
            "endless file name",
            [
                forever("Content-Encoding: gzip\r\n", vec![b'a'; 65536])[..1].to_vec(),
                vec![Say::Bytes(gzip_head.to_vec()), Say::Forever(vec![b'a'; 65536], Duration::ZERO)],
            ]
            .concat(),
            late,
        ),
        (
            "wide windows in a chain",
            encoded_answer("br, br", &too_wide),
            "the body cannot be decoded: its window is too large",
        ),
        (
            "brotli window of 16 MiB",
            encoded_answer("br", &wide),
            "the body cannot be decoded: its window is too large",
        ),
        (
            "a window beyond the standard",
            encoded_answer("br", &[0x11, 0x1e, 0, 0, 0]),
            "the body cannot be decoded: its window is too large",
        ),
        (
            "zstd window of 128 MiB",
            encoded_answer("zstd", &[0x28, 0xb5, 0x2f, 0xfd, 0, 0x88, 1, 0, 0]),
            "the body cannot be decoded",
        ),
        (
            "zstd of one segment of 1 GiB",
            encoded_answer("zstd", &[0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0x40, 0, 0, 0, 0, 1, 0, 0]),
            "the body cannot be decoded",
        ),
        (
            "six encodings",
            encoded_answer("gzip, br, zstd, gzip, br, zstd", b"x"),
            "the body cannot be decoded: it is encoded more than twice",
        ),
        ("1 MB header", forever(&long, b"x".to_vec()), refused),
        ("10,000 headers", forever(&many, b"x".to_vec()), refused),
        (
            "a header without end",
            vec![
                Say::Bytes(b"HTTP/1.1 200 OK\r\nX: ".to_vec()),
                Say::Forever(vec![b'a'; 65536], Duration::ZERO),
            ],
            refused,
        ),
        (
            "a status line without end",
            vec![Say::Bytes(b"HTTP/1.1 200 ".to_vec()), Say::Forever(vec![b'a'; 65536], Duration::ZERO)],
            refused,
        ),
        (
            "interim answers without end",
            vec![Say::Forever(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100), Duration::ZERO)],
            late,
        ),
        (
            "trailers without end",
            forever("Transfer-Encoding: chunked\r\n", b"0\r\nX: y\r\n".to_vec())[..1]
                .iter()
                .cloned()
                .chain([Say::Bytes(b"0\r\n".to_vec()), Say::Forever(b"X: y\r\n".repeat(100), Duration::ZERO)])
                .collect(),
            refused,
        ),
        ("a chunk size without end", forever("Transfer-Encoding: chunked\r\n", vec![b'0'; 65536]), late),
        (
            "a chunk note without end",
            forever("Transfer-Encoding: chunked\r\n", b"1;".iter().copied().chain([b'a'; 65536]).collect()),
            refused,
        ),
        ("an unknown transfer encoding", forever("Transfer-Encoding: garbage\r\n", vec![b'x']), refused),
        ("1 byte a second", vec![Say::Bytes(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), slow(b"x")], late),
        ("1 byte of header a second", vec![Say::Bytes(b"HTTP/1.1 200 OK\r\nX: ".to_vec()), slow(b"x")], late),
        ("nothing at all", vec![Say::Close], refused),
        ("no HTTP", vec![Say::Bytes(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()), Say::Close], refused),
        (
            "two lengths",
            vec![Say::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_vec())],
            refused,
        ),
        (
            "a body that breaks off",
            vec![Say::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nxx".to_vec()), Say::Close],
            refused,
        ),
    ] {
        cases.push(case(name, say, Take::Drain, expected));
    }
    cases
}

#[test]
fn hostile_answers_use_bounded_memory_and_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Ok(url) = std::env::var(URL) {
        runtime.block_on(be_the_client(&url));
        return;
    }
    let mut wrong = Vec::new();
    for case in runtime.block_on(cases()) {
        let site = runtime.block_on(Site::start(move |heard| match heard.target.as_str() {
            "/warm" => answer("200 OK", &[], b"warm"),
            _ => case.say.clone(),
        }));
        let url = site.url(if case.take == Take::Read { "/read" } else { "/drain" });
        let is_late = case.expected == LATE;
        let deadline = if is_late { DEADLINE } else { LONG_DEADLINE };
        // A machine that is busy with other tests may be late, but not three times in a row.
        for attempt in 1..=3 {
            let said = client_process(&url, deadline);
            let measured = said.lines().find_map(|line| line.strip_prefix("measured: ")).unwrap_or("nothing");
            let mut words = measured.splitn(3, ' ');
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(u64::MAX);
            let (kib, took) = (number(), number());
            let outcome = words.next().unwrap_or_default();
            println!(
                "{:30} {:5?} {:6.1} MiB {took:5} ms  {outcome}",
                case.name,
                case.take,
                kib as f64 / 1024.0
            );
            let allowed = MORE_MEMORY + if case.take == Take::Read { LIMIT } else { 0 };
            let in_memory = kib <= allowed as u64 / 1024;
            let in_time = u128::from(took) <= deadline.as_millis() * 11 / 10;
            if in_memory && in_time && outcome.starts_with(case.expected) {
                break;
            }
            if !in_memory || attempt == 3 {
                wrong.push(format!("{} {:?}: {measured}, expected {}", case.name, case.take, case.expected));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns what the client printed, or nothing if it had to be killed.
fn client_process(url: &str, deadline: Duration) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(URL, url)
        .env(DEADLINE_MS, deadline.as_millis().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() && started.elapsed() < 5 * deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The client has ended by itself, or must be ended.
    let _ = child.kill();
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

/// Prints the additional peak memory, the time and the result.
async fn be_the_client(url: &str) {
    let client = client();
    let deadline = Duration::from_millis(std::env::var(DEADLINE_MS).unwrap().parse().unwrap());
    let request = |url: &str| Request::get(url.parse().unwrap(), tokio::time::Instant::now() + deadline);
    let warm = url.replace("/read", "/warm").replace("/drain", "/warm");
    client.send(request(&warm)).await.unwrap().body.read(10).await.unwrap();
    // This resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory_kib("VmRSS:");
    let started = Instant::now();
    let outcome = match client.send(request(url)).await {
        Err(err) => err.to_string(),
        Ok(response) if url.ends_with("/read") => match response.body.read(LIMIT).await {
            Ok(body) if body.cut => format!("cut at {}", body.bytes.len()),
            Ok(body) => format!("read {}", body.bytes.len()),
            Err(err) => err.to_string(),
        },
        Ok(mut response) => {
            let mut drained = 0;
            loop {
                match response.body.chunk().await {
                    Ok(Some(chunk)) => drained += chunk.len(),
                    Ok(None) => break format!("drained {drained}"),
                    Err(err) => break err.to_string(),
                }
            }
        }
    };
    let took = started.elapsed().as_millis();
    println!("measured: {} {took} {outcome}", memory_kib("VmHWM:").saturating_sub(before));
}

fn memory_kib(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
