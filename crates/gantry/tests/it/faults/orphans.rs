//! No process is left after everything stops.

use std::time::Duration;

use gantry_testkit::{Fleet, SOON, eventually};
use serde_json::json;

/// Children, grandchildren in sessions of their own, and some that ignore what they can.
const STUBBORN: &str =
    "trap '' HUP TERM INT; (setsid sh -c \"trap '' HUP TERM; sleep 1000\" &); sleep 1000 & sleep 1000";

#[test]
fn no_process_remains_after_stop_and_kill() {
    let mut fleet = Fleet::start();
    let mut machine = fleet.join("box");
    let start = |node: &str| {
        let started = fleet.call(&format!("{node}__Bash"), &json!({"command": STUBBORN, "background": true}));
        assert_eq!(started.status, 200, "{started:?}");
    };
    let sleeping = || fleet.processes().iter().filter(|(_, line)| line.starts_with("sleep 1000")).count();
    start("box");
    start("box");
    start("local");
    eventually("they all run", SOON, || sleeping() == 9);
    // A node that is killed leaves them running; the next one ends them.
    machine.kill();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(sleeping(), 9, "what runs in the background outlives its node");
    machine.start();
    fleet.wait_online("box");
    let ran = machine.stop_and_kill();
    assert!(ran.stdout.contains("Ended 2 background processes"), "{}", ran.stdout);
    eventually("those of the node are gone", SOON, || sleeping() == 3);
    fleet.begin_stop();
    assert!(fleet.wait_stopped(SOON).success());
    let still = fleet.processes();
    assert_eq!(
        still.iter().filter(|(_, line)| line.starts_with("sleep 1000")).count(),
        3,
        "the gateway's own go on: {still:?}"
    );
    let sessions = gantry_store::DataDir::new(fleet.world.data()).process_logs();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(gantry_process::end_sessions(&sessions)).unwrap(), 1);
    eventually("nothing is left", SOON, || fleet.processes().is_empty());
}

#[test]
fn foreground_commands_end_with_their_killed_node() {
    let fleet = Fleet::start();
    let mut machine = fleet.join("box");
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            fleet.try_call("box__Bash", &json!({ "command": STUBBORN }), &[("Gantry-Deadline-Ms", "8000")])
        });
        let sleeping = || fleet.processes().iter().filter(|(_, line)| line.starts_with("sleep 1000")).count();
        eventually("it runs", SOON, || sleeping() == 3);
        machine.kill();
        eventually("nothing is left of it", SOON, || sleeping() == 0);
        let answer = calling.join().unwrap().unwrap();
        assert!([503, 504].contains(&answer.status), "{answer:?}");
    });
}
