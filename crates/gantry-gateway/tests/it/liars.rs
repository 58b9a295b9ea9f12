//! Ends of transfers that do not say what is.

use std::sync::Arc;

use gantry_link::{Link, Request, ServeFuture};
use gantry_node::StreamSink;
use gantry_protocol::{RawJson, StreamFrame, method, raw};
use serde_json::Value;

use crate::fleet::Fleet;

/// Changes the answers to one method.
struct Liar {
    honest: Arc<dyn StreamSink>,
    method: &'static str,
    lie: fn(&mut Value),
}

impl StreamSink for Liar {
    fn take(&self, link: &Link, frame: StreamFrame) {
        self.honest.take(link, frame);
    }

    fn request(&self, bulk: Option<Link>, request: Request) -> ServeFuture {
        let lies = request.method == self.method;
        let lie = self.lie;
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

async fn fleet_with(method: &'static str, lie: fn(&mut Value)) -> Fleet {
    let mut fleet = Fleet::start(&["b"]).await;
    fleet.add_hostile("a", |honest| Arc::new(Liar { honest, method, lie })).await;
    fleet
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
