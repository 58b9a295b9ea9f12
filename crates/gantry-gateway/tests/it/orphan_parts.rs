//! Part files that no transfer will continue are removed from nodes, the gateway's machine and storage.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gantry_store::NewTransfer;

use crate::fleet::Fleet;

/// Creates a part file and its record, as an earlier process left them.
fn leave_part(fleet: &Fleet, node: &str, data: &str, transfer: &str) -> PathBuf {
    let part = fleet.write(node, &format!(".gantry-{transfer}.part"), "some bytes");
    let part = part.canonicalize().unwrap();
    let records = fleet.folder.path().join(data).join("parts/gateway").join(transfer);
    std::fs::create_dir_all(&records).unwrap();
    symlink(&part, records.join(transfer)).unwrap();
    part
}

/// Records a running transfer, as a killed gateway left it.
async fn record_running(fleet: &Fleet, id: &str, destination: &str) {
    let new = NewTransfer {
        id: id.into(),
        agent: "main".into(),
        principal: "operator".into(),
        autonomy: "supervised".into(),
        source: "away:large".into(),
        destination: destination.into(),
        standing: None,
    };
    fleet.database.insert_transfer(&new, now()).await.unwrap();
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn id(number: u8) -> String {
    format!("01990000-0000-7000-8000-0000000000{number:02}")
}

async fn until_gone(parts: &[&PathBuf]) {
    let until = Instant::now() + Duration::from_secs(20);
    while parts.iter().any(|part| part.exists()) {
        assert!(Instant::now() < until, "{parts:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_node_loses_parts_of_ended_and_unknown_transfers() {
    let mut fleet = Fleet::start(&["a"]).await;
    let known: Vec<String> = (0..4).map(id).collect();
    let parts: Vec<PathBuf> = known.iter().map(|id| leave_part(&fleet, "b", "b-data", id)).collect();
    let stranger = fleet.write("b", ".gantry-somebody-elses.part", "not written down");
    record_running(&fleet, &known[0], "b:one").await;
    record_running(&fleet, &known[1], "b:two").await;
    fleet.database.finish_transfer(&known[1], Err("cancelled while b was offline"), now()).await.unwrap();
    record_running(&fleet, &known[2], "a:three").await;
    fleet.add_node("b", None).await;
    until_gone(&[&parts[1], &parts[2], &parts[3]]).await;
    assert!(parts[0].exists(), "its transfer runs");
    assert!(stranger.exists());
    // The next connection removes it too.
    fleet.database.finish_transfer(&known[0], Err("cancelled"), now()).await.unwrap();
    fleet.wire.cut();
    until_gone(&[&parts[0]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_parts_than_one_answer_lists_are_removed() {
    let mut fleet = Fleet::start(&[]).await;
    let parts: Vec<PathBuf> =
        (0..1200).map(|number| leave_part(&fleet, "b", "b-data", &format!("t-{number}"))).collect();
    fleet.add_node("b", None).await;
    until_gone(&parts.iter().collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_on_the_gateways_machine_and_in_storage_are_removed() {
    let fleet = Fleet::start(&["b"]).await;
    record_running(&fleet, &id(0), "local:one").await;
    record_running(&fleet, &id(1), "gsv:two").await;
    let local =
        [leave_part(&fleet, "local", "gateway", &id(0)), leave_part(&fleet, "local", "gateway", &id(2))];
    let staging = fleet.folder.path().join("gateway/staging");
    std::fs::create_dir_all(&staging).unwrap();
    let staged = [id(1), format!("{}-0123456789abcdef", id(1)), id(3), format!("{}-0123456789abcdef", id(3))];
    let staged = staged.map(|name| staging.join(name));
    staged.iter().for_each(|path| std::fs::write(path, "some bytes").unwrap());
    // A node that stayed connected is cleaned too.
    let on_node = leave_part(&fleet, "b", "b-data", &id(4));
    let transfers = fleet.transfers.clone();
    let tidying = tokio::spawn(async move { transfers.keep_tidy().await });
    until_gone(&[&local[1], &staged[2], &staged[3], &on_node]).await;
    tidying.abort();
    assert!(local[0].exists() && staged[0].exists() && staged[1].exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_removed_when_the_destination_restarts_after_a_cancellation() {
    let mut fleet = Fleet::start(&["a"]).await;
    let stop = fleet.start_process("b", "b", None).await;
    fleet.write("a", "tree/large", vec![5; 64 << 20]);
    fleet.wire.slow_down(Duration::from_millis(20));
    let call = fleet.call();
    let cancel = call.cancel.clone();
    {
        let transfer = fleet.transfer_as(call, "a:tree", "b:copy");
        let meddle = async {
            let until = Instant::now() + Duration::from_secs(20);
            while !fleet.names("b").iter().any(|name| name.ends_with(".part")) {
                assert!(Instant::now() < until, "nothing arrives");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
            tokio::time::sleep(Duration::from_millis(300)).await;
            cancel.cancel();
        };
        let (said, ()) = tokio::join!(transfer, meddle);
        assert!(said.is_err());
    }
    fleet.wire.slow_down(Duration::ZERO);
    let unfinished = async || fleet.database.unfinished_transfers().await.unwrap().len();
    while unfinished().await > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let part =
        fleet.names("b").into_iter().find(|name| name.ends_with(".part")).expect("its part file is left");
    let part = fleet.at("b", &part);
    fleet.start_process("b", "b", None).await;
    until_gone(&[&part]).await;
    assert_eq!(fleet.names("b"), ["copy"]);
}
