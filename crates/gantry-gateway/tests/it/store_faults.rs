//! Transfers into a bucket that cannot be reached for a while, and transfers whose node is renamed.

use std::sync::Arc;
use std::time::Duration;

use gantry_store::Objects;
use gantry_testkit::{S3Proxy, S3Server, eventually_async};
use gantry_toolsets::{Endpoint, NodeServices};
use gantry_transfers::TransfersDomain;

use crate::fleet::Fleet;

const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(30);
/// A bucket gets this in five parts.
const SIZE: usize = 40 * MIB - 77;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 777) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_waits_for_a_store_that_is_away() {
    let server = S3Server::start();
    let wire = S3Proxy::to(&server);
    let fleet = Arc::new(Fleet::start_on(Objects::s3(wire.config(&server)).unwrap()).await);
    fleet.write("local", "large", content());
    wire.cut_with_part(4);
    let own = fleet.clone();
    let transfer = tokio::spawn(async move { own.transfer("local:large", "gsv:large").await });
    eventually_async("the upload begins", LIMIT, || wire.is_down()).await;
    // Longer than the retries of one request.
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
async fn transfer_cancelled_while_the_store_is_away_leaves_no_upload() {
    let server = S3Server::start();
    let wire = S3Proxy::to(&server);
    let fleet = Fleet::start_on(Objects::s3(wire.config(&server)).unwrap()).await;
    fleet.write("local", "large", content());
    wire.cut_with_part(4);
    let call = fleet.call();
    let cancel = call.cancel.clone();
    let cancelling = async {
        eventually_async("the upload begins", LIMIT, || wire.is_down()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let (said, ()) = tokio::join!(fleet.transfer_as(call, "local:large", "gsv:large"), cancelling);
    said.unwrap_err();
    assert!(!server.open_uploads().is_empty());
    let said = fleet.transfer("local:large", "gsv:other").await.unwrap_err().to_string();
    assert!(said.contains("the store reported"), "a new transfer does not wait: {said}");
    // By then the receiver has noticed the cancellation.
    tokio::time::sleep(Duration::from_secs(6)).await;
    wire.heal();
    let transfers = fleet.transfers.clone();
    let tidying = tokio::spawn(async move { transfers.keep_tidy().await });
    eventually_async("the upload is aborted", LIMIT, || server.open_uploads().is_empty()).await;
    tidying.abort();
    assert!(fleet.objects.head("agents/main/large").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_continues_under_the_new_name_of_a_renamed_node() {
    let mut fleet = Fleet::start(&["a"]).await;
    let stop = fleet.start_process("b", "b", None).await;
    fleet.write("a", "large", content());
    fleet.wire.slow_down(Duration::from_millis(20));
    let domain = TransfersDomain(fleet.transfers.clone());
    let (call, to) = (Arc::new(fleet.call()), fleet.at("b", "large"));
    let destination = Endpoint::parse(&format!("b:{}", to.display())).unwrap();
    let source = Endpoint::parse("a:large").unwrap();
    let transfer = tokio::spawn(async move { domain.transfer(call, source, destination).await });
    eventually_async("a part comes", LIMIT, || fleet.names("b").iter().any(|name| name.ends_with(".part")))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    fleet.rename("b", "c").await;
    stop.cancel();
    fleet.wire.slow_down(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!transfer.is_finished(), "{:?}", transfer.await);
    // The database has the new name too, for the next start of the gateway.
    let rows = fleet.database.unfinished_transfers().await.unwrap();
    assert_eq!(rows[0].destination, format!("c:{}", to.display()));
    assert_eq!(rows[0].source, "a:large");
    fleet.start_process("c", "b", None).await;
    assert_eq!(transfer.await.unwrap().unwrap().bytes_transferred, SIZE as u64);
    assert!(std::fs::read(&to).unwrap() == content());
    assert_eq!(fleet.names("b"), ["large"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_that_is_only_named_like_a_part_is_sent() {
    let fleet = Fleet::start(&["a", "b"]).await;
    fleet.write("a", "tree/.gantry-x.part", "mine");
    fleet.write("a", "tree/file", "x");
    let part = fleet.write("a", "tree/.gantry-t-1.part", "coming").canonicalize().unwrap();
    // A part of another gateway. This gateway would remove an unknown part of its own.
    let records = fleet.folder.path().join("a-data/parts/another/t-1");
    std::fs::create_dir_all(&records).unwrap();
    std::os::unix::fs::symlink(&part, records.join("t-1")).unwrap();
    let done = fleet.transfer("a:tree", "b:copy").await.unwrap();
    assert_eq!(done.files, Some(2));
    assert_eq!(done.skipped, [".gantry-t-1.part: it is a part file of a running transfer"]);
    assert_eq!(fleet.names("b"), ["copy", "copy/.gantry-x.part", "copy/file"]);
}
