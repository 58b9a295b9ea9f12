//! Many nodes on one gateway, and the cost of an idle one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use gantry_testkit::peers::{Client, Node, runtime};
use gantry_testkit::{Gateway, World, eventually, is_soak};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// Goals are for the release build; a debug build may take this much more.
const DEBUG_FACTOR: u64 = if cfg!(debug_assertions) { 4 } else { 1 };

#[test]
fn idle_gateway_uses_little_memory() {
    let world = World::new();
    let up = Gateway::start(&world);
    assert_eq!(up.call("exec", &json!({"command": "true"})).status, 200);
    std::thread::sleep(Duration::from_millis(500));
    let resident = up.resident_kb();
    println!("idle gateway: {resident} KB (goal in a release build: {} KB)", 30 * 1024);
    assert!(resident < 30 * 1024 * DEBUG_FACTOR, "{resident} KB");
}

#[test]
fn gateway_raises_its_file_limit_and_commands_keep_the_old_one() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(1024), maximum: limit.maximum }).unwrap();
    let world = World::new();
    let up = Gateway::start(&world);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", up.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert_eq!(soft, hard.min(64 * 1024), "{line}");
    // Commands get the limit they would have had: some programs close every file that they could have.
    let shown = up.call("exec", &json!({"command": "ulimit -n"}));
    assert_eq!(shown.json()["stdout"], "1024\n");
}

#[test]
fn every_one_of_200_nodes_answers() {
    let count = if is_soak() { 2_000 } else { 200 };
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let world = World::new();
    let up = Arc::new(Gateway::start_with(&world, "serve", &[]));
    let runtime = runtime();
    let began = Instant::now();
    let (client, nodes) = runtime.block_on(async {
        let client = Client::operator(&up).await;
        let mut nodes = Vec::with_capacity(count);
        for number in 0..count {
            let id = format!("node-{number}");
            let added = client.ask("nodes.add", json!({"id": id, "tags": ["load"]})).await.unwrap();
            nodes.push(Node::new(&id, added["token"].as_str().unwrap()));
        }
        (client, nodes)
    });
    println!("{count} nodes added in {:?}", began.elapsed());
    let before = up.resident_kb();
    let began = Instant::now();
    let links = runtime.block_on(async {
        let joining = nodes.iter().map(|node| node.join(&up));
        futures_util::stream::iter(joining).buffer_unordered(32).collect::<Vec<_>>().await
    });
    println!("joined in {:?}", began.elapsed());
    std::thread::sleep(Duration::from_secs(1));
    let each = up.resident_kb().saturating_sub(before) / count as u64;
    println!("{each} KB per idle connected node (goal in a release build: 48 KB)");
    let began = Instant::now();
    runtime.block_on(async {
        let calls = nodes.iter().map(|node| {
            let client = &client;
            async move {
                let answer =
                    client.call(&format!("{}__Echo", node.id), json!({"text": "here"})).await.unwrap();
                assert_eq!(answer["json"], json!({"text": "here", "on": node.id}));
            }
        });
        futures_util::stream::iter(calls).buffer_unordered(64).collect::<Vec<()>>().await;
        println!("each called by name in {:?}", began.elapsed());
        let began = Instant::now();
        let all = client.call("Echo", json!({"text": "all", "node": "tag:load"})).await.unwrap();
        assert_eq!(all["json"]["results"].as_array().unwrap().len(), count);
        assert!(all["json"]["results"].as_array().unwrap().iter().all(|one| one["ok"] == true));
        println!("all called at once in {:?}", began.elapsed());
    });
    assert!(nodes.iter().all(|node| node.runs() == 2), "each ran twice");
    assert!(links.iter().all(|link| !link.is_closed()));
    assert!(each < 48 * DEBUG_FACTOR, "{each} KB");
}

/// Connected clients are served, even if other connections use up the rest.
#[test]
fn low_file_limit_keeps_existing_connections_working() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let log = world.folder.path().join("said");
    let up = Gateway::start_with_file_limit(&world, 256, &log);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("only 256 files") && said.contains("128 connections"), "{said}");
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        let strangers: Vec<_> = (0..360)
            .map(|_| {
                let mut stranger = std::net::TcpStream::connect(up.address).unwrap();
                std::io::Write::write_all(&mut stranger, b"GET /health HTTP/1.1\r\nHost: localh").unwrap();
                stranger
            })
            .collect();
        let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", up.pid())).unwrap().count();
        eventually("strangers have what they get", Duration::from_secs(5), || descriptors() > 128);
        for _ in 0..20 {
            client.call("local__Bash", json!({"command": "cat a.txt"})).await.unwrap();
            client.call("local__Glob", json!({"pattern": "*"})).await.unwrap();
        }
        assert!(descriptors() < 220, "{} of 256 are in use", descriptors());
        drop(strangers);
    });
    eventually("others are answered again", Duration::from_secs(20), || up.get("/health").status == 200);
}
