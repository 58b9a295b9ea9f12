//! Transfers over connections that are cut, gateways that restart, and callers that give up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_testkit::{Random, scaled, seed};
use gantry_tool::ToolError;

use crate::fleet::Fleet;

const MIB: usize = 1 << 20;

fn content(random: &mut Random, size: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..MIB + 13).map(|_| random.below(256) as u8).collect();
    block.iter().copied().cycle().take(size).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_arrives_complete_after_cuts_at_random_moments() {
    let seed = seed();
    let mut random = Random::from_seed(seed);
    let fleet = Arc::new(Fleet::start(&["a", "b"]).await);
    let wanted = scaled(100, 10);
    let size = scaled(1024, 64) * MIB;
    let expected = content(&mut random, size);
    let hash = blake3::hash(&expected);
    fleet.write("a", "large", &expected);
    drop(expected);
    let mut cuts = 0;
    while cuts < wanted {
        let _ = std::fs::remove_file(fleet.at("b", "large"));
        let own = fleet.clone();
        let transfer = tokio::spawn(async move {
            loop {
                match own.transfer("a:large", "b:large").await {
                    // The last cut came after the previous transfer ended, and a new one does not wait for nodes.
                    Err(err) if err.to_string().contains("is offline") => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    ended => return ended,
                }
            }
        });
        while !transfer.is_finished() && cuts < wanted {
            tokio::time::sleep(Duration::from_millis(20 + random.below(200) as u64)).await;
            assert!(
                !fleet.at("b", "large").exists() || transfer.is_finished() || {
                    // It may have been renamed since; then it has to be complete.
                    std::fs::metadata(fleet.at("b", "large")).unwrap().len() == size as u64
                }
            );
            fleet.wire.cut();
            cuts += 1;
        }
        let done = tokio::time::timeout(Duration::from_secs(120), transfer)
            .await
            .expect("it ends")
            .unwrap()
            .unwrap();
        assert_eq!(done.bytes_transferred, size as u64);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&std::fs::read(fleet.at("b", "large")).unwrap());
        assert_eq!(hasher.finalize(), hash, "seed {seed}");
        assert_eq!(fleet.names("b"), ["large"], "no part is left, seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_resumes_after_cuts_and_counts_each_file_once() {
    let fleet = Arc::new(Fleet::start(&["a", "b"]).await);
    for number in 0..200 {
        fleet.write(
            "a",
            &format!("tree/{}/f{number}", number % 9),
            format!("content {number}").repeat(number),
        );
    }
    fleet.write("a", "tree/5/large", vec![7; 6 * MIB]);
    let own = fleet.clone();
    let transfer = tokio::spawn(async move { own.transfer("a:tree", "b:tree").await });
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        fleet.wire.cut();
    }
    let done = transfer.await.unwrap().unwrap();
    assert_eq!(done.files, Some(201));
    for number in 0..200 {
        let path = format!("tree/{}/f{number}", number % 9);
        assert_eq!(
            std::fs::read(fleet.at("a", &path)).unwrap(),
            std::fs::read(fleet.at("b", &path)).unwrap()
        );
    }
    assert_eq!(fleet.names("a"), fleet.names("b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_transfer_stops_both_ends_and_leaves_no_part() {
    let fleet = Arc::new(Fleet::start(&["a", "b"]).await);
    fleet.write("a", "large", vec![3; 48 * MIB]);
    fleet.write("b", "large", "old");
    for destination in ["b:large", "gsv:large"] {
        fleet.wire.slow_down(Duration::from_millis(20));
        let call = fleet.call();
        let cancel = call.cancel.clone();
        let own = fleet.clone();
        let transfer = tokio::spawn(async move { own.transfer_as(call, "a:large", destination).await });
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(!transfer.is_finished());
        cancel.cancel();
        let said = transfer.await.unwrap().unwrap_err();
        assert!(matches!(said, ToolError::Cancelled), "{said}");
        fleet.wire.slow_down(Duration::ZERO);
        let until = Instant::now() + Duration::from_secs(20);
        let staging = fleet.folder.path().join("gateway/staging");
        loop {
            let staged = std::fs::read_dir(&staging).map_or(0, Iterator::count);
            let unfinished = fleet.database.unfinished_transfers().await.unwrap().len();
            if fleet.names("b") == ["large"] && staged == 0 && unfinished == 0 {
                break;
            }
            assert!(Instant::now() < until, "{:?} {staged} {unfinished}", fleet.names("b"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(std::fs::read(fleet.at("b", "large")).unwrap(), b"old");
    // The next transfer of the same file works.
    fleet.transfer("a:large", "b:large").await.unwrap();
    assert_eq!(std::fs::metadata(fleet.at("b", "large")).unwrap().len(), 48 * MIB as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_gateway_resumes_a_transfer() {
    let fleet = Arc::new(Fleet::start(&["a", "b"]).await);
    let expected: Vec<u8> = (0..40 * MIB).map(|at| (at / 11) as u8).collect();
    fleet.write("a", "large", &expected);
    fleet.wire.slow_down(Duration::from_millis(15));
    let own = fleet.clone();
    let transfer = tokio::spawn(async move { own.transfer("a:large", "b:large").await });
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(!transfer.is_finished());
    // The task holds the last handle.
    let stopping = fleet.clone();
    let fleet = {
        drop(fleet);
        let waiting = tokio::spawn(async move {
            stopping.stop_serving().await;
            stopping
        });
        let said = transfer.await.unwrap().unwrap_err().to_string();
        assert!(said.contains("resumes when it is back"), "{said}");
        Arc::into_inner(waiting.await.unwrap()).unwrap().restart_gateway().await
    };
    assert!(fleet.names("b").iter().any(|name| name.ends_with(".part")), "{:?}", fleet.names("b"));
    fleet.wire.slow_down(Duration::ZERO);
    assert_eq!(fleet.resume().await.unwrap(), 1);
    // The same call joins the resumed transfer.
    let done = fleet.transfer("a:large", "b:large").await.unwrap();
    assert_eq!(done.bytes_transferred, expected.len() as u64);
    assert!(std::fs::read(fleet.at("b", "large")).unwrap() == expected);
    assert_eq!(fleet.names("b"), ["large"]);
    assert!(fleet.database.unfinished_transfers().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_gateway_does_not_send_arrived_files_of_a_directory_again() {
    use std::os::unix::fs::{MetadataExt, symlink};

    let fleet = Arc::new(Fleet::start(&["a", "b"]).await);
    for number in 0..60 {
        fleet.write("a", &format!("tree/d{}/file{number:02}", number / 20), vec![number; MIB]);
    }
    symlink("/etc/passwd", fleet.at("a", "tree/d0/outer")).unwrap();
    fleet.wire.slow_down(Duration::from_millis(10));
    let own = fleet.clone();
    let transfer = tokio::spawn(async move { own.transfer("a:tree", "b:tree").await });
    let files = |fleet: &Fleet| {
        let names = fleet.names("b").into_iter().filter(|name| name.contains("/file"));
        names.map(|name| (std::fs::metadata(fleet.at("b", &name)).unwrap().ino(), name)).collect::<Vec<_>>()
    };
    let until = Instant::now() + Duration::from_secs(20);
    while files(&fleet).len() < 30 {
        assert!(Instant::now() < until && !transfer.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopping = fleet.clone();
    drop(fleet);
    let waiting = tokio::spawn(async move {
        stopping.stop_serving().await;
        stopping
    });
    transfer.await.unwrap().unwrap_err();
    let fleet = Arc::into_inner(waiting.await.unwrap()).unwrap().restart_gateway().await;
    let before = files(&fleet);
    fleet.wire.slow_down(Duration::ZERO);
    assert_eq!(fleet.resume().await.unwrap(), 1);
    let done = fleet.transfer("a:tree", "b:tree").await.unwrap();
    assert_eq!((done.files, done.bytes_transferred), (Some(60), 60 * MIB as u64));
    assert_eq!(done.skipped.len(), 1, "also what was left out before: {:?}", done.skipped);
    let after = files(&fleet);
    let kept = before.iter().filter(|file| after.contains(file)).count();
    println!("{} had arrived, {kept} of them were not sent again", before.len());
    // Files that were copied in parallel with the first incomplete one may be sent again.
    assert!(after.len() == 60 && kept + 16 >= before.len() && kept > 10, "{kept} of {}", before.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_transfer_fails_with_a_reason() {
    let fleet = Arc::new(Fleet::start_with(&["a", "b"], Duration::from_millis(1500)).await);
    fleet.write("a", "large", vec![1; 32 * MIB]);
    fleet.wire.slow_down(Duration::from_millis(20));
    let own = fleet.clone();
    let transfer = tokio::spawn(async move { own.transfer("a:large", "b:large").await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    fleet.wire.set_down(true);
    let said = tokio::time::timeout(Duration::from_secs(20), transfer).await.unwrap().unwrap();
    let said = said.unwrap_err().to_string();
    assert!(said.contains("nothing moved"), "{said}");
    assert!(!fleet.at("b", "large").exists());
    // The part file is removed when its node is back.
    fleet.wire.slow_down(Duration::ZERO);
    fleet.wire.set_down(false);
    fleet.wait_for("b").await;
    let until = Instant::now() + Duration::from_secs(20);
    while !fleet.names("b").is_empty() {
        assert!(Instant::now() < until, "{:?}", fleet.names("b"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
