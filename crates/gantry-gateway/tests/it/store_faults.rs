//! Transfers into a bucket whose server goes away, and between nodes that get another name meanwhile.

use std::sync::Arc;
use std::time::Duration;

use gantry_store::Objects;
use gantry_testkit::{S3Proxy, S3Server, eventually_async};

use crate::fleet::Fleet;

const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(30);
/// Five parts on their way into a bucket.
const SIZE: usize = 40 * MIB - 77;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 777) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_waited_for() {
    let server = S3Server::start();
    let wire = S3Proxy::to(&server);
    let fleet = Arc::new(Fleet::start_on(Objects::s3(wire.config(&server)).unwrap()).await);
    fleet.write("local", "large", content());
    wire.cut_with_part(4);
    let own = fleet.clone();
    let transfer = tokio::spawn(async move { own.transfer("local:large", "gsv:large").await });
    eventually_async("the upload begins", LIMIT, || wire.is_down()).await;
    // Longer than one request is tried again by itself.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!transfer.is_finished());
    let before = wire.parts();
    wire.heal();
    assert_eq!(transfer.await.unwrap().unwrap().bytes_transferred, SIZE as u64);
    let again = wire.parts() - before;
    assert!((1..5).contains(&again), "{again} of 5 parts were sent again");
    let stored = fleet.objects.get("agents/main/large", 1 << 30).await.unwrap().unwrap();
    assert!(stored.bytes == content());
    assert_eq!(server.open_uploads(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_called_off_while_the_store_is_away_leaves_no_upload() {
    let server = S3Server::start();
    let wire = S3Proxy::to(&server);
    let fleet = Fleet::start_on(Objects::s3(wire.config(&server)).unwrap()).await;
    fleet.write("local", "large", content());
    // A new one does not wait.
    wire.cut_with_part(4);
    let call = fleet.call();
    let cancel = call.cancel.clone();
    let calling_off = async {
        eventually_async("the upload begins", LIMIT, || wire.is_down()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let (said, ()) = tokio::join!(fleet.transfer_as(call, "local:large", "gsv:large"), calling_off);
    said.unwrap_err();
    assert!(!server.open_uploads().is_empty());
    let said = fleet.transfer("local:large", "gsv:other").await.unwrap_err().to_string();
    assert!(said.contains("the store says"), "a new transfer does not wait: {said}");
    // Whoever had it in hand has noticed by now.
    tokio::time::sleep(Duration::from_secs(6)).await;
    wire.heal();
    let transfers = fleet.transfers.clone();
    let tidying = tokio::spawn(async move { transfers.keep_tidy().await });
    eventually_async("the upload is aborted", LIMIT, || server.open_uploads().is_empty()).await;
    tidying.abort();
    assert!(fleet.objects.head("agents/main/large").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_renamed_is_gone_on_with_under_its_new_name() {
    let mut fleet = Fleet::start(&["a"]).await;
    let stop = fleet.start_process("b", "b", None).await;
    fleet.write("a", "large", content());
    fleet.wire.slow_down(Duration::from_millis(20));
    let hub = gantry_gateway::GatewayNodes(fleet.transfers.clone());
    let (call, to) = (Arc::new(fleet.call()), fleet.at("b", "large"));
    let destination = gantry_toolsets::Endpoint::parse(&format!("b:{}", to.display())).unwrap();
    let source = gantry_toolsets::Endpoint::parse("a:large").unwrap();
    let transfer = tokio::spawn(async move {
        gantry_toolsets::NodeServices::transfer(&hub, call, source, destination).await
    });
    eventually_async("a part comes", LIMIT, || fleet.names("b").iter().any(|name| name.ends_with(".part")))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    fleet.rename("b", "c").await;
    stop.cancel();
    fleet.wire.slow_down(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!transfer.is_finished(), "{:?}", transfer.await);
    // In the database too, for the next start of the gateway.
    let rows = fleet.database.unfinished_transfers().await.unwrap();
    assert_eq!(rows[0].destination, format!("c:{}", to.display()));
    assert_eq!(rows[0].source, "a:large");
    fleet.start_process("c", "b", None).await;
    assert_eq!(transfer.await.unwrap().unwrap().bytes_transferred, SIZE as u64);
    assert!(std::fs::read(&to).unwrap() == content());
    assert_eq!(fleet.names("b"), ["large"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_only_named_like_a_part_is_sent() {
    let fleet = Fleet::start(&["a", "b"]).await;
    fleet.write("a", "tree/.gantry-x.part", "mine");
    fleet.write("a", "tree/file", "x");
    let part = fleet.write("a", "tree/.gantry-t-1.part", "coming").canonicalize().unwrap();
    // Of another gateway: this one would have what it does not know removed.
    let records = fleet.folder.path().join("a-data/parts/another/t-1");
    std::fs::create_dir_all(&records).unwrap();
    std::os::unix::fs::symlink(&part, records.join("t-1")).unwrap();
    let done = fleet.transfer("a:tree", "b:copy").await.unwrap();
    assert_eq!(done.files, Some(2));
    assert_eq!(done.skipped, [".gantry-t-1.part: it is a part file of a running transfer"]);
    assert_eq!(fleet.names("b"), ["copy", "copy/.gantry-x.part", "copy/file"]);
}
