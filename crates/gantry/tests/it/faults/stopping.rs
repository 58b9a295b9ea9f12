//! An orderly stop under load answers every started call exactly once.

use std::time::Duration;

use gantry_testkit::{Fleet, Random, SOON, Socket, eventually};
use serde_json::json;

use super::load::Load;

/// A result large enough to be on its way for a while.
const LARGE: &str = "sleep 0.5; head -c 60000 /dev/zero | tr '\\0' x";

#[test]
fn stopping_gateway_answers_started_calls_once() {
    let mut random = Random::new();
    for _ in 0..3 {
        let mut fleet = Fleet::start();
        let machine = fleet.join("box");
        machine.world.write("read.txt", "still here\n");
        let socket = Socket::connect(fleet.address, &fleet.token);
        let mut load = Load::default();
        load.begin(&socket, "box", &mut random);
        let large: Vec<u64> =
            (0..20).map(|_| socket.begin_call("box__Bash", &json!({"command": LARGE}), SOON)).collect();
        eventually("all are on their way", SOON, || fleet.node("box")["inFlight"].as_u64() >= Some(20));
        let over_http = std::thread::scope(|scope| {
            let (fleet, socket) = (&fleet, &socket);
            let asking = scope.spawn(move || {
                fleet.try_call("box__Bash", &json!({"command": "touch asked; sleep 1; echo whole"}), &[])
            });
            eventually("the HTTP call runs", SOON, || machine.path("asked").exists());
            fleet.begin_stop();
            assert!(load.finish(socket).iter().all(|failure| failure.contains("stopping")));
            asking.join().unwrap()
        });
        for id in large {
            let answer = socket.answer(id, SOON);
            let answer = answer.unwrap_or_else(|| panic!("{id} was not answered: {:?}", socket.closed(SOON)));
            assert_eq!(answer["result"]["json"]["exitCode"], 0, "{answer}");
        }
        let over_http = over_http.unwrap();
        assert!(over_http.status == 200 && over_http.text().contains("whole"), "{over_http:?}");
        assert!(fleet.wait_stopped(SOON).success());
        assert_eq!(socket.closed(SOON).as_deref(), Some("the gateway is stopping"));
        assert_eq!(socket.answered_twice(), [0; 0]);
        load.check(&machine);
        assert_eq!(fleet.run(&["audit", "verify"]).code, 0);
    }
}

#[test]
fn stopping_node_answers_started_calls_once() {
    let mut random = Random::new();
    let fleet = Fleet::start();
    let mut machine = fleet.join("box");
    machine.world.write("read.txt", "still here\n");
    let socket = Socket::connect(fleet.address, &fleet.token);
    let mut load = Load::default();
    for _ in 0..3 {
        load.begin(&socket, "box", &mut random);
        let id =
            socket.begin_call("box__Bash", &json!({"command": "touch begun; sleep 1; echo whole"}), SOON);
        eventually("the last one runs", SOON, || machine.path("begun").exists());
        machine.begin_stop();
        let answer = socket.answer(id, SOON).unwrap();
        assert_eq!(answer["result"]["json"]["output"], "whole\n", "{answer}");
        assert_eq!(load.finish(&socket), [""; 0]);
        assert!(machine.wait_stopped(SOON).success());
        eventually("it is away", Duration::from_secs(2), || !fleet.is_online("box"));
        std::fs::remove_file(machine.path("begun")).unwrap();
        machine.start();
        fleet.wait_online("box");
    }
    load.check(&machine);
    assert_eq!(socket.answered_twice(), [0; 0]);
}
