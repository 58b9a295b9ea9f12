//! Two processes with one node's id and token.

use std::time::Duration;

use gantry_node::Phase;

use crate::fleet::Fleet;

/// How often the phases of both are looked at, and for how long: a process that is refused tries again every 20 to 40 ms.
const LOOKS: usize = 150;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_process_has_the_place_and_the_older_one_waits_for_it() {
    let mut fleet = Fleet::start(&["a"]).await;
    let newer = fleet.start_process("a", "newer", None).await;
    let phase = |fleet: &Fleet, process: &str| fleet.state("a", process).unwrap().phase;
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK_PAUSE).await;
        assert_eq!(phase(&fleet, "newer"), Phase::Connected, "it keeps the place");
    }
    let error = fleet.state("a", "a").unwrap().last_error.unwrap();
    assert!(error.contains("a newer process"), "{error}");
    // After a cut the process that connects last is served, and the other one waits.
    fleet.wire.cut();
    let connected = |fleet: &Fleet| {
        let processes = ["a", "newer"].into_iter();
        processes.filter(|process| phase(fleet, process) == Phase::Connected).collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let one = connected(&fleet);
    assert_eq!(one.len(), 1, "{one:?}");
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK_PAUSE).await;
        assert_eq!(connected(&fleet), one);
    }
    if one == ["a"] {
        fleet.start_process("a", "newest", None).await.cancel();
    }
    newer.cancel();
    fleet.wait_for("a").await;
}
