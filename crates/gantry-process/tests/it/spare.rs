//! The spare keeper is used once, replaced when it dies, and ends with the engine.

use std::time::Duration;

use gantry_testkit::eventually_async;
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, bench, keeper};

const LIMIT: Duration = Duration::from_secs(5);

/// Returns the PID of the process that the engine started, which is the guard above the command's
/// keeper.
async fn keeper_of(bench: &Bench) -> String {
    let command = bench.shell("cut -d' ' -f4 /proc/$PPID/stat");
    bench.processes.run(command, CancellationToken::new()).await.unwrap().stdout.text.trim().to_owned()
}

/// Lists living children of this process that run the keeper.
fn keepers() -> Vec<i32> {
    let name = keeper();
    let children = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?);
        let ours = parent == std::process::id().to_string() && state != "Z";
        (ours && std::fs::read_link(entry.path().join("exe")).ok()? == name.canonicalize().ok()?)
            .then_some(pid)
    });
    children.collect()
}

#[tokio::test]
async fn each_command_uses_the_spare_and_a_new_one_starts() {
    let bench = bench();
    keeper_of(&bench).await;
    for _ in 0..3 {
        eventually_async("a spare is ready", LIMIT, || keepers().len() == 1).await;
        let spare = keepers()[0].to_string();
        assert_eq!(keeper_of(&bench).await, spare);
    }
}

#[tokio::test]
async fn dead_spare_is_replaced() {
    let bench = bench();
    keeper_of(&bench).await;
    eventually_async("a spare is ready", LIMIT, || keepers().len() == 1).await;
    let spare = keepers()[0];
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(spare).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    eventually_async("the spare is dead", LIMIT, || keepers().is_empty()).await;
    assert_ne!(keeper_of(&bench).await, spare.to_string());
}

#[tokio::test]
async fn spare_ends_with_the_engine() {
    let bench = bench();
    keeper_of(&bench).await;
    eventually_async("a spare is ready", LIMIT, || keepers().len() == 1).await;
    bench.processes.shutdown().await;
    eventually_async("no keeper is left", LIMIT, || keepers().is_empty()).await;
}
