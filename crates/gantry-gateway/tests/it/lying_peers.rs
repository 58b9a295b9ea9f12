//! Ends of transfers that do not say what is.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gantry_link::{Link, Request, ServeFuture};
use gantry_node::StreamSink;
use gantry_protocol::{RawJson, StreamFrame, method, raw};
use serde_json::{Value, json};

use crate::fleet::Fleet;

/// Changes the answers to one method.
struct Liar {
    honest: Arc<dyn StreamSink>,
    method: &'static str,
    lie: Lie,
}

type Lie = Arc<dyn Fn(&mut Value) + Send + Sync>;

impl StreamSink for Liar {
    fn take(&self, link: &Link, frame: StreamFrame) {
        self.honest.take(link, frame);
    }

    fn request(&self, bulk: Option<Link>, request: Request) -> ServeFuture {
        let lies = request.method == self.method;
        let lie = self.lie.clone();
        let honest = self.honest.request(bulk, request);
        Box::pin(async move {
            let answer: RawJson = honest.await?;
            if !lies {
                return Ok(answer);
            }
            let mut answer: Value = serde_json::from_str(answer.get()).unwrap();
            lie(&mut answer);
            Ok(raw(&answer))
        })
    }
}

async fn fleet_with(method: &'static str, lie: impl Fn(&mut Value) + Send + Sync + 'static) -> Fleet {
    let mut fleet = Fleet::start(&["b"]).await;
    add_liar(&mut fleet, method, lie).await;
    fleet
}

async fn add_liar(fleet: &mut Fleet, method: &'static str, lie: impl Fn(&mut Value) + Send + Sync + 'static) {
    fleet.add_hostile("a", |honest| Arc::new(Liar { honest, method, lie: Arc::new(lie) })).await;
}

/// An honest end that keeps what it is asked.
struct Witness {
    honest: Arc<dyn StreamSink>,
    asked: Asked,
}

type Asked = Arc<Mutex<Vec<(String, String)>>>;

impl StreamSink for Witness {
    fn take(&self, link: &Link, frame: StreamFrame) {
        self.honest.take(link, frame);
    }

    fn request(&self, bulk: Option<Link>, request: Request) -> ServeFuture {
        let asked = (request.method.clone(), request.params.get().to_owned());
        self.asked.lock().unwrap().push(asked);
        self.honest.request(bulk, request)
    }
}

fn times(asked: &Asked, method: &str) -> usize {
    asked.lock().unwrap().iter().filter(|(of, _)| of == method).count()
}

/// Never answers one method, nor does what it asks.
struct Silent {
    honest: Arc<dyn StreamSink>,
    method: &'static str,
}

impl StreamSink for Silent {
    fn take(&self, link: &Link, frame: StreamFrame) {
        self.honest.take(link, frame);
    }

    fn request(&self, bulk: Option<Link>, request: Request) -> ServeFuture {
        if request.method == self.method {
            return Box::pin(std::future::pending());
        }
        self.honest.request(bulk, request)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_source_does_not_stand_by_gets_no_name() {
    let lies: [fn(&mut Value); 3] = [
        |answer| answer["hash"] = "0".repeat(64).into(),
        |answer| answer["bytes"] = 7.into(),
        |answer| answer["bytes"] = u64::MAX.into(),
    ];
    for lie in lies {
        let fleet = fleet_with(method::TRANSFER_SEND, lie).await;
        fleet.write("a", "file", vec![1; 3 << 20]);
        fleet.write("a", "tree/file", "good data");
        fleet.write("b", "taken", "old");
        for (source, destination) in
            [("a:file", "b:new"), ("a:file", "b:taken"), ("a:tree", "b:copy"), ("a:file", "gsv:stored")]
        {
            let said = fleet.transfer(source, destination).await.unwrap_err().to_string();
            assert!(said.contains("the ends do not agree"), "{destination}: {said}");
        }
        assert_eq!(fleet.names("b"), ["copy", "taken"]);
        assert_eq!(std::fs::read(fleet.at("b", "taken")).unwrap(), b"old");
        let stored = fleet.objects.list("", gantry_store::Depth::All).await.unwrap().objects;
        assert!(stored.is_empty(), "{stored:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mode_that_is_none_is_refused() {
    let fleet = fleet_with(method::TRANSFER_OPEN, |answer| answer["mode"] = 1_000_000_000.into()).await;
    fleet.write("a", "file", "x");
    let said = fleet.transfer("a:file", "b:file").await.unwrap_err().to_string();
    assert!(said.contains("its mode is none: 1000000000"), "{said}");
    let fleet = fleet_with(method::TRANSFER_MANIFEST, |answer| {
        for entry in answer["entries"].as_array_mut().unwrap() {
            let bad = entry["path"].as_str().unwrap().ends_with("bad");
            entry["mode"] = if bad { 1_000_000_000.into() } else { 0o7755.into() };
        }
    })
    .await;
    fleet.write("a", "tree/bad", "x");
    fleet.write("a", "tree/setuid", "x");
    fleet.write("a", "tree/sub/setuid", "x");
    let done = fleet.transfer("a:tree", "b:tree").await.unwrap();
    assert_eq!(done.skipped, ["bad: its mode is none: 1000000000"]);
    for (path, mode) in [("tree/setuid", 0o755), ("tree/sub", 0o1755), ("tree/sub/setuid", 0o755)] {
        assert_eq!(fleet.mode("b", path), mode, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_longer_than_it_said_is_told_both_numbers() {
    let fleet = fleet_with(method::TRANSFER_OPEN, |answer| answer["size"] = 100_000.into()).await;
    fleet.write("a", "file", vec![1; 100_004]);
    let said = fleet.transfer("a:file", "b:file").await.unwrap_err().to_string();
    assert!(said.contains("100004 bytes came, 100000 were announced"), "{said}");
    assert_eq!(fleet.names("b"), [""; 0]);
}

/// Far from the three minutes of forty attempts.
async fn soon<T>(transfer: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), transfer).await.expect("it ends by itself, and soon")
}

/// Longer than the longest pause between two attempts.
const QUIET: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_name_that_leaves_the_directory_ends_the_transfer_and_is_told_to_nobody() {
    let checks =
        ["../pwned", "/pwned", "sub/../../pwned", "pwned\0", "", "pwned//x", "./pwned"].map(async |bad| {
            let mut fleet = Fleet::start(&[]).await;
            add_liar(&mut fleet, method::TRANSFER_MANIFEST, move |answer| {
                let entry = json!({"path": bad, "kind": "file", "size": 5, "mode": 420});
                answer["entries"].as_array_mut().unwrap().insert(0, entry);
            })
            .await;
            let asked = Asked::default();
            let of_b = asked.clone();
            fleet.add_hostile("b", |honest| Arc::new(Witness { honest, asked: of_b })).await;
            fleet.write("a", "tree/zfile", "good");
            for destination in ["b:copy", "gsv:copy"] {
                let said = soon(fleet.transfer("a:tree", destination)).await.unwrap_err().to_string();
                assert!(said.starts_with("on the node \"a\": the source breaks the rules"), "{said}");
                assert!(said.contains(&format!("{bad:?} is not a path below a directory")), "{said}");
            }
            tokio::time::sleep(QUIET).await;
            assert_eq!(times(&asked, method::TRANSFER_PREPARE), 1, "{bad:?}");
            assert_eq!(times(&asked, method::TRANSFER_ABANDON), 1, "{bad:?}");
            let told = asked.lock().unwrap().iter().any(|(_, params)| params.contains("pwned"));
            assert!(!told, "{bad:?}: {asked:?}");
            assert_eq!(fleet.names("b"), ["copy"], "{bad:?}");
        });
    futures_util::future::join_all(checks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_called_off_is_abandoned_once_and_never_prepared_again() {
    let mut fleet = Fleet::start(&["a"]).await;
    let asked = Asked::default();
    let of_b = asked.clone();
    fleet.add_hostile("b", |honest| Arc::new(Witness { honest, asked: of_b })).await;
    fleet.write("a", "tree/large", vec![5; 64 << 20]);
    fleet.wire.slow_down(Duration::from_millis(20));
    let call = fleet.call();
    let cancel = call.cancel.clone();
    let calling_off = async {
        while times(&asked, method::TRANSFER_RECEIVE) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel();
    };
    let (said, ()) = tokio::join!(fleet.transfer_as(call, "a:tree", "b:copy"), calling_off);
    said.unwrap_err();
    fleet.wire.slow_down(Duration::ZERO);
    tokio::time::sleep(QUIET).await;
    assert_eq!(times(&asked, method::TRANSFER_PREPARE), 1);
    assert_eq!(times(&asked, method::TRANSFER_ABANDON), 1);
    assert_eq!(fleet.names("b"), ["copy"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_hold_nothing_and_promise_more_end_the_transfer() {
    let fleet = fleet_with(method::TRANSFER_MANIFEST, |answer| {
        *answer = json!({"entries": [], "last": false});
    })
    .await;
    fleet.write("a", "tree/file", "x");
    let said = soon(fleet.transfer("a:tree", "b:copy")).await.unwrap_err().to_string();
    assert!(said.contains("a page without entries"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_does_nothing_is_given_up_after_the_idle_limit() {
    for (silent, other, method) in [
        ("b", "a", method::TRANSFER_RECEIVE),
        ("a", "b", method::TRANSFER_SEND),
        ("b", "a", method::TRANSFER_HAVE),
    ] {
        let mut fleet = Fleet::start_with(&[other], Duration::from_millis(1500)).await;
        fleet.add_hostile(silent, |honest| Arc::new(Silent { honest, method })).await;
        fleet.write("a", "file", vec![1; 3 << 20]);
        fleet.write("a", "tree/file", vec![1; 3 << 20]);
        for (source, destination) in [("a:file", "b:file"), ("a:tree", "b:tree")] {
            // A directory's files are asked after only when it goes on.
            if method == method::TRANSFER_HAVE && source == "a:tree" {
                continue;
            }
            let begun = Instant::now();
            let said = soon(fleet.transfer(source, destination)).await.unwrap_err().to_string();
            let took = begun.elapsed();
            assert!(said.contains("nothing moved for"), "{method}: {said}");
            assert!(took > Duration::from_millis(1400) && took < Duration::from_secs(15), "{took:?}");
        }
        assert!(!fleet.names("b").iter().any(|name| name.contains("file")), "{:?}", fleet.names("b"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_the_destination_cannot_have_are_left_out_and_told() {
    let fleet = fleet_with(method::TRANSFER_MANIFEST, |answer| {
        let entries = answer["entries"].as_array_mut().unwrap();
        let long = "n".repeat(300);
        entries.push(json!({"path": long, "kind": "file", "size": 5, "mode": 420}));
        entries.push(json!({"path": format!("{long}d"), "kind": "directory", "mode": 493}));
        entries.push(
            json!({"path": format!("o{}", "/deep".repeat(1000)), "kind": "file", "size": 5, "mode": 420}),
        );
    })
    .await;
    fleet.write("a", "tree/file", "good");
    let done = soon(fleet.transfer("a:tree", "b:copy")).await.unwrap();
    assert_eq!(done.files, Some(1));
    assert_eq!(done.skipped.len(), 3, "{:?}", done.skipped);
    assert!(done.skipped[0].contains("too long"), "{:?}", done.skipped);
    assert!(done.skipped[1].contains("too long"), "{:?}", done.skipped);
    assert!(done.skipped[2].contains("… (5001 bytes): its path is too long: 5001 bytes, at most 4096"));
    assert_eq!(fleet.names("b"), ["copy", "copy/file"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_there_ends_the_transfer_at_once_and_is_named() {
    let fleet = Fleet::start(&["a", "b"]).await;
    fleet.write("a", "tree/sub/file", "x");
    fleet.write("b", "copy/sub", "a file");
    let long = format!("b:{}", "n".repeat(300));
    for (destination, named) in [("b:copy", "sub"), (long.as_str(), "nnnn")] {
        let source = if destination == "b:copy" { "a:tree" } else { "a:tree/sub/file" };
        let said = soon(fleet.transfer(source, destination)).await.unwrap_err().to_string();
        assert!(said.contains(named), "{said}");
        assert!(!said.contains("attempts"), "{said}");
    }
    assert_eq!(std::fs::read(fleet.at("b", "copy/sub")).unwrap(), b"a file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_files_that_the_source_cannot_read_no_part_stays() {
    let fleet = fleet_with(method::TRANSFER_MANIFEST, |answer| {
        let entries = answer["entries"].as_array_mut().unwrap();
        entries.push(json!({"path": "z/gone", "kind": "file", "size": 5, "mode": 420}));
    })
    .await;
    fleet.write("a", "tree/file", "good");
    let closed = fleet.at("a", "tree/z");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    for destination in ["b:copy", "gsv:copy"] {
        let done = soon(fleet.transfer("a:tree", destination)).await.unwrap();
        assert_eq!((done.files, done.skipped.len()), (Some(1), 1), "{:?}", done.skipped);
        assert!(done.skipped[0].starts_with("z/gone: "), "{:?}", done.skipped);
    }
    assert_eq!(fleet.names("b"), ["copy", "copy/file", "copy/z"]);
    assert_eq!(fleet.mode("b", "copy/z"), 0o555);
    assert_eq!(fleet.staged(), [""; 0]);
}
