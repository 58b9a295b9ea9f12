//! Endpoints that lie, stay silent or break the protocol.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gantry_protocol::method;
use gantry_transfer::TransferService;
use gantry_transfer::testing::Conduct;
use serde_json::{Value, json};

use crate::fleet::Fleet;

/// Starts an honest node `b`, and a node `a` that changes its answers to one method.
async fn fleet_with(method: &'static str, lie: impl Fn(&mut Value) + Send + Sync + 'static) -> Fleet {
    let mut fleet = Fleet::start(&["b"]).await;
    add_liar(&mut fleet, method, lie).await;
    fleet
}

async fn add_liar(fleet: &mut Fleet, method: &'static str, lie: impl Fn(&mut Value) + Send + Sync + 'static) {
    let lie = Arc::new(lie);
    let tamper = move |service: &TransferService| {
        service.tamper_with(Box::new(move |request| match request.method == method {
            true => {
                let lie = lie.clone();
                Conduct::Lie(Box::new(move |answer| lie(answer)))
            }
            false => Conduct::Honest,
        }));
    };
    fleet.add_hostile("a", tamper).await;
}

/// The method and parameters of each request that an endpoint got.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// Adds an honest node that records its requests.
async fn add_witness(fleet: &mut Fleet, name: &str) -> Requests {
    let requests = Requests::default();
    let recorded = requests.clone();
    let record = move |service: &TransferService| {
        service.tamper_with(Box::new(move |request| {
            let entry = (request.method.clone(), request.params.get().to_owned());
            recorded.lock().unwrap().push(entry);
            Conduct::Honest
        }));
    };
    fleet.add_hostile(name, record).await;
    requests
}

fn count(requests: &Requests, method: &str) -> usize {
    requests.lock().unwrap().iter().filter(|(of, _)| of == method).count()
}

/// Adds a node that neither does nor answers what one method requests.
async fn add_silent(fleet: &mut Fleet, name: &str, method: &'static str) {
    let silence = move |service: &TransferService| {
        service.tamper_with(Box::new(move |request| match request.method == method {
            true => Conduct::Silent,
            false => Conduct::Honest,
        }));
    };
    fleet.add_hostile(name, silence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_is_not_renamed_if_the_source_reports_another_hash_or_length() {
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
            assert!(said.contains("source and destination disagree"), "{destination}: {said}");
        }
        assert_eq!(fleet.names("b"), ["copy", "taken"]);
        assert_eq!(std::fs::read(fleet.at("b", "taken")).unwrap(), b"old");
        let stored = fleet.objects.list("", gantry_store::Depth::All).await.unwrap().objects;
        assert!(stored.is_empty(), "{stored:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_mode_is_rejected() {
    let fleet = fleet_with(method::TRANSFER_OPEN, |answer| answer["mode"] = 1_000_000_000.into()).await;
    fleet.write("a", "file", "x");
    let said = fleet.transfer("a:file", "b:file").await.unwrap_err().to_string();
    assert!(said.contains("invalid mode 1000000000"), "{said}");
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
    assert_eq!(done.skipped, ["bad: invalid mode 1000000000"]);
    for (path, mode) in [("tree/setuid", 0o755), ("tree/sub", 0o1755), ("tree/sub/setuid", 0o755)] {
        assert_eq!(fleet.mode("b", path), mode, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_names_both_sizes_when_the_source_is_longer_than_announced() {
    let fleet = fleet_with(method::TRANSFER_OPEN, |answer| answer["size"] = 100_000.into()).await;
    fleet.write("a", "file", vec![1; 100_004]);
    let said = fleet.transfer("a:file", "b:file").await.unwrap_err().to_string();
    assert!(said.contains("100004 bytes came, 100000 were announced"), "{said}");
    assert_eq!(fleet.names("b"), [""; 0]);
}

/// Fails if a transfer does not end long before the three minutes of forty attempts.
async fn soon<T>(transfer: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), transfer).await.expect("the transfer ends soon")
}

/// Is longer than the longest pause between two attempts.
const QUIET: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn path_outside_the_directory_fails_the_transfer_and_reaches_no_destination() {
    let checks =
        ["../pwned", "/pwned", "sub/../../pwned", "pwned\0", "", "pwned//x", "./pwned"].map(async |bad| {
            let mut fleet = Fleet::start(&[]).await;
            add_liar(&mut fleet, method::TRANSFER_MANIFEST, move |answer| {
                let entry = json!({"path": bad, "kind": "file", "size": 5, "mode": 420});
                answer["entries"].as_array_mut().unwrap().insert(0, entry);
            })
            .await;
            let requests = add_witness(&mut fleet, "b").await;
            fleet.write("a", "tree/zfile", "good");
            for destination in ["b:copy", "gsv:copy"] {
                let said = soon(fleet.transfer("a:tree", destination)).await.unwrap_err().to_string();
                assert!(
                    said.starts_with("on the node \"a\": the source violates the transfer protocol"),
                    "{said}"
                );
                assert!(said.contains(&format!("{bad:?} is not a path below a directory")), "{said}");
            }
            tokio::time::sleep(QUIET).await;
            assert_eq!(count(&requests, method::TRANSFER_PREPARE), 1, "{bad:?}");
            assert_eq!(count(&requests, method::TRANSFER_ABANDON), 1, "{bad:?}");
            let passed_on = requests.lock().unwrap().iter().any(|(_, params)| params.contains("pwned"));
            assert!(!passed_on, "{bad:?}: {requests:?}");
            assert_eq!(fleet.names("b"), ["copy"], "{bad:?}");
        });
    futures_util::future::join_all(checks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_transfer_is_abandoned_once_and_not_prepared_again() {
    let mut fleet = Fleet::start(&["a"]).await;
    let requests = add_witness(&mut fleet, "b").await;
    fleet.write("a", "tree/large", vec![5; 64 << 20]);
    fleet.wire.slow_down(Duration::from_millis(20));
    let call = fleet.call();
    let cancel = call.cancel.clone();
    let cancelling = async {
        while count(&requests, method::TRANSFER_RECEIVE) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel();
    };
    let (said, ()) = tokio::join!(fleet.transfer_as(call, "a:tree", "b:copy"), cancelling);
    said.unwrap_err();
    fleet.wire.slow_down(Duration::ZERO);
    tokio::time::sleep(QUIET).await;
    assert_eq!(count(&requests, method::TRANSFER_PREPARE), 1);
    assert_eq!(count(&requests, method::TRANSFER_ABANDON), 1);
    assert_eq!(fleet.names("b"), ["copy"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_page_that_is_not_the_last_fails_the_transfer() {
    let fleet = fleet_with(method::TRANSFER_MANIFEST, |answer| {
        *answer = json!({"entries": [], "last": false});
    })
    .await;
    fleet.write("a", "tree/file", "x");
    let said = soon(fleet.transfer("a:tree", "b:copy")).await.unwrap_err().to_string();
    assert!(said.contains("a page without entries"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_endpoint_fails_the_transfer_after_the_idle_limit() {
    for (silent, other, method) in [
        ("b", "a", method::TRANSFER_RECEIVE),
        ("a", "b", method::TRANSFER_SEND),
        ("b", "a", method::TRANSFER_HAVE),
    ] {
        let mut fleet = Fleet::start_with(&[other], Duration::from_millis(1500)).await;
        add_silent(&mut fleet, silent, method).await;
        fleet.write("a", "file", vec![1; 3 << 20]);
        fleet.write("a", "tree/file", vec![1; 3 << 20]);
        for (source, destination) in [("a:file", "b:file"), ("a:tree", "b:tree")] {
            // `transfer.have` is only sent for entries of a resumed directory.
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
async fn entries_with_names_that_the_destination_cannot_store_are_skipped_and_listed() {
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
async fn path_conflict_at_the_destination_fails_at_once_and_is_named() {
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
async fn unreadable_source_files_leave_no_part_files() {
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
