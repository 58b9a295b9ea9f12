//! The connection between a node and its gateway is cut and restored at random moments during calls.

use std::time::{Duration, Instant};

use gantry_testkit::{Fleet, Machine, Proxy, Random, Socket, is_soak};
use serde_json::json;

use super::load::Load;
use super::rounds;

/// A connection that lived this long counts as one that worked.
const STEADY: Duration = Duration::from_millis(1_050);

fn behind_a_cable(fleet: &Fleet) -> (Machine, Proxy) {
    let proxy = Proxy::to(fleet.address);
    let mut machine = fleet.add("box", &[]);
    machine.gateway = proxy.address;
    machine.world.write("read.txt", "still here\n");
    machine.start();
    fleet.wait_online("box");
    (machine, proxy)
}

#[test]
fn calls_survive_cuts_and_run_once() {
    let mut random = Random::new();
    let fleet = Fleet::start();
    let (machine, proxy) = behind_a_cable(&fleet);
    let socket = Socket::connect(fleet.address, &fleet.token);
    let (mut load, mut back) = (Load::default(), Vec::new());
    let mut online = Instant::now();
    for round in 0..rounds() {
        // Connections that do not last are dialled ever more slowly, and this is not about those.
        std::thread::sleep(STEADY.saturating_sub(online.elapsed()));
        load.begin(&socket, "box", &mut random);
        std::thread::sleep(random.duration_below(Duration::from_millis(1_200)));
        proxy.cut();
        std::thread::sleep(random.duration_below(Duration::from_millis(200)));
        proxy.heal();
        back.push(fleet.wait_online("box"));
        online = Instant::now();
        // The same process is behind it, so every call goes on; only what began while nobody was there is refused.
        for failure in load.finish(&socket) {
            assert!(failure.contains("offline"), "round {round}: {failure}");
        }
    }
    load.check(&machine);
    assert_eq!(socket.answered_twice(), [0; 0]);
    assert_eq!(fleet.node("box")["inFlight"], 0);
    assert!(load.succeeded > 4 * load.failed, "{} of {}", load.succeeded, load.succeeded + load.failed);
    let longest = back.iter().max().unwrap();
    println!(
        "cuts: {} calls answered, {} refused, slowest {:?}, back within {longest:?}",
        load.succeeded, load.failed, load.slowest
    );
}

#[test]
fn half_open_connection_is_detected_by_timeout() {
    let fleet = Fleet::start();
    let (_machine, proxy) = behind_a_cable(&fleet);
    let socket = Socket::connect(fleet.address, &fleet.token);
    assert_eq!(socket.call("box__Bash", &json!({"command": "echo one"}))["ok"], true);
    proxy.mute();
    let muted = Instant::now();
    // A call into the silence fails by its own deadline, not by the connection's.
    let id = socket.begin_call("box__Bash", &json!({"command": "echo two"}), Duration::from_secs(2));
    let late = socket.answer(id, Duration::from_secs(10)).unwrap();
    assert_eq!(late["error"]["code"], "deadline", "{late}");
    assert!(muted.elapsed() < Duration::from_secs(6), "{:?}", muted.elapsed());
    if is_soak() {
        // One with time enough is answered over the next connection.
        let id = socket.begin_call("box__Bash", &json!({"command": "echo three"}), Duration::from_secs(100));
        let answer = socket.answer(id, Duration::from_secs(100)).unwrap();
        assert_eq!(answer["result"]["json"]["output"], "three\n", "{answer}");
        let noticed = muted.elapsed();
        assert!(noticed < Duration::from_secs(48), "{noticed:?}");
        println!("half-open: noticed and back after {noticed:?}");
    }
}
