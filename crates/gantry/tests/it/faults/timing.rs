//! Time limits: revoked nodes are closed, replaced ones yield, and disconnected ones reconnect.

use std::time::{Duration, Instant};

use gantry_testkit::{Fleet, Proxy, SOON, eventually};
use serde_json::json;

#[test]
fn revoked_node_disconnects_within_a_second_during_a_call() {
    let fleet = Fleet::start();
    let machine = fleet.join("box");
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let began = Instant::now();
            let answer = fleet.call("box__Bash", &json!({"command": "touch begun; sleep 100"}));
            (answer, began.elapsed())
        });
        eventually("the call runs", SOON, || machine.path("begun").exists());
        let before = connections(&fleet);
        assert!(before > 0);
        assert_eq!(fleet.run(&["nodes", "revoke", "box"]).code, 0);
        let revoked = Instant::now();
        eventually("its socket is closed", Duration::from_secs(1), || {
            !fleet.is_online("box") && node_log(&machine).contains("revoked")
        });
        println!("revoked: closed after {:?}", revoked.elapsed());
        let (answer, _) = calling.join().unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
    });
    assert_eq!(fleet.node("box")["revoked"], true);
    assert_eq!(fleet.call("box__Read", &json!({"path": "begun"})).status, 503);
}

fn connections(fleet: &Fleet) -> usize {
    let nodes = fleet.get("/v1/nodes").json();
    nodes["nodes"].as_array().unwrap().iter().filter(|node| node["online"] == true).count()
}

fn node_log(machine: &gantry_testkit::Machine) -> String {
    machine.world.run(&["node", "logs", "--id", &machine.id]).stdout
}

#[test]
fn second_process_replaces_the_first_which_stays_disconnected() {
    let fleet = Fleet::start();
    let first = fleet.join("box");
    first.world.write("which", "first");
    let mut second = fleet.add("spare", &[]);
    (second.id, second.token) = (first.id.clone(), first.token.clone());
    second.world.write("which", "second");
    second.start();
    let who = || fleet.call("box__Read", &json!({"path": "which"})).text();
    eventually("the second one answers", SOON, || who().contains("second"));
    eventually("the first one knows", SOON, || node_log(&first).contains("replaced"));
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert!(who().contains("second"), "they fight for the place");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn node_reconnects_within_its_backoff_limit() {
    let fleet = Fleet::start();
    let proxy = Proxy::to(fleet.address);
    let mut machine = fleet.add("box", &[]);
    machine.gateway = proxy.address;
    machine.start();
    fleet.wait_online("box");
    for _ in 0..3 {
        // It has lived longer than the first wait can be, so the next one is the first again.
        std::thread::sleep(Duration::from_millis(1_100));
        proxy.cut();
        eventually("it is away", SOON, || !fleet.is_online("box"));
        proxy.heal();
        let back = fleet.wait_online("box");
        // A dial into the cut may have doubled the bound once or twice.
        assert!(back < Duration::from_secs(5), "{back:?}");
    }
    let log = node_log(&machine);
    let waits: Vec<u64> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| line["retryInMs"].as_u64())
        .collect();
    assert!(waits.len() >= 3 && waits.iter().all(|wait| *wait <= 4_000), "{waits:?} in {log}");
}
