//! The node, then the gateway, is killed with SIGKILL at random moments under load.

use std::time::{Duration, Instant};

use gantry_testkit::{Fleet, Random, SOON, Socket, eventually};
use serde_json::{Value, json};

use super::load::{Load, content};
use super::rounds;

/// How far the background command counts; it takes about two seconds.
const LINES: usize = 40;

fn begin_counting(fleet: &Fleet, node: &str, round: usize) -> String {
    let command = format!(
        "i=1; while [ $i -le {LINES} ]; do echo \"{round} $i\"; echo \"{round} $i\" >> lines; i=$((i+1)); sleep 0.05; done"
    );
    let started = fleet.call(&format!("{node}__Bash"), &json!({"command": command, "background": true}));
    assert_eq!(started.status, 200, "{started:?}");
    started.json()["sessionId"].as_str().unwrap().to_owned()
}

/// The session is still ours, and its log has every line once.
fn check_counted(fleet: &Fleet, node: &str, session: &str, round: usize) {
    let process = |input: Value| {
        let answer = fleet.call(&format!("{node}__Process"), &input);
        assert_eq!(answer.status, 200, "{input}: {answer:?}");
        answer.json()
    };
    let listed = process(json!({"action": "list"}));
    assert!(listed.to_string().contains(session), "{session} is not in {listed}");
    let mut polled = Value::Null;
    eventually("the command ends", Duration::from_secs(30), || {
        polled = process(json!({"action": "poll", "sessionId": session, "waitMs": 5_000}));
        polled["running"] == false
    });
    assert_eq!(polled["exitCode"], 0, "{polled}");
    let log = process(json!({"action": "log", "sessionId": session, "limit": 1_000}));
    let expected: Vec<String> = (1..=LINES).map(|line| format!("{round} {line}")).collect();
    assert_eq!(log["lines"], json!(expected));
}

#[test]
fn killed_node_keeps_acknowledged_results() {
    let mut random = Random::new();
    let fleet = Fleet::start();
    let mut machine = fleet.join("box");
    machine.world.write("read.txt", "still here\n");
    let socket = Socket::connect(fleet.address, &fleet.token);
    let (mut load, mut slowest) = (Load::default(), Duration::ZERO);
    for round in 0..rounds() {
        let session = begin_counting(&fleet, "box", round);
        load.begin(&socket, "box", &mut random);
        std::thread::sleep(random.duration_below(Duration::from_millis(900)));
        machine.kill();
        if random.below(2) == 0 {
            eventually("the gateway has noticed", SOON, || !fleet.is_online("box"));
        }
        machine.start();
        eventually("the next process answers", SOON, || {
            fleet.call("box__Process", &json!({"action": "list"})).status == 200
        });
        let restarted = Instant::now();
        for failure in load.finish(&socket) {
            let reported = ["restarted during the call", "offline", "lost during the call"];
            assert!(reported.iter().any(|words| failure.contains(words)), "round {round}: {failure}");
        }
        // Those in flight fail at once when the node is back, not at their deadline.
        slowest = slowest.max(restarted.elapsed());
        assert!(restarted.elapsed() < Duration::from_secs(5), "{:?}", restarted.elapsed());
        check_counted(&fleet, "box", &session, round);
        load.check(&machine);
    }
    assert_eq!(socket.answered_twice(), [0; 0]);
    let lines = std::fs::read_to_string(machine.path("lines")).unwrap();
    assert_eq!(lines.lines().count(), rounds() * LINES, "every line was written once");
    assert!(load.succeeded > 0 && load.failed > 0, "{} {}", load.succeeded, load.failed);
    println!(
        "killed node: {} calls answered, {} failed, within {slowest:?} of the restart",
        load.succeeded, load.failed
    );
}

#[test]
fn killed_gateway_keeps_acknowledged_results() {
    let mut random = Random::new();
    let mut fleet = Fleet::start();
    let machine = fleet.join("box");
    machine.world.write("read.txt", "still here\n");
    let (mut load, mut back) = (Load::default(), Duration::ZERO);
    let mut objects = Vec::new();
    for round in 0..rounds() {
        let socket = Socket::connect(fleet.address, &fleet.token);
        let sessions = [
            ("box", begin_counting(&fleet, "box", round)),
            ("local", begin_counting(&fleet, "local", round)),
        ];
        load.begin(&socket, "box", &mut random);
        let storing: Vec<(usize, u64)> = (0..4)
            .map(|number| {
                let number = round * 4 + number;
                let input = json!({"path": format!("object-{number}"), "content": content(number)});
                (number, socket.begin_call("gsv__WriteFile", &input, SOON))
            })
            .collect();
        std::thread::sleep(random.duration_below(Duration::from_millis(900)));
        fleet.kill_gateway();
        load.abandon(&socket);
        assert_eq!(socket.answered_twice(), [0; 0]);
        let acknowledged = storing
            .into_iter()
            .filter(|(_, id)| socket.answer(*id, Duration::ZERO).is_some_and(|answer| answer["ok"] == true));
        objects.extend(acknowledged.map(|(number, _)| number));
        let verified = fleet.run(&["audit", "verify"]);
        assert_eq!(verified.code, 0, "round {round}: {} {}", verified.stdout, verified.stderr);
        let started = Instant::now();
        fleet.start_gateway();
        fleet.wait_online("box");
        back = back.max(started.elapsed());
        for (node, session) in sessions {
            check_counted(&fleet, node, &session, round);
        }
        load.check(&machine);
    }
    for number in &objects {
        let read = fleet.call("gsv__ReadFile", &json!({"path": format!("object-{number}")}));
        assert_eq!(read.json()["result"]["content"], content(*number), "an acknowledged object is lost");
    }
    for place in [machine.path("lines"), fleet.world.workspace().join("lines")] {
        assert_eq!(std::fs::read_to_string(place).unwrap().lines().count(), rounds() * LINES);
    }
    assert!(load.succeeded > 0 && load.failed > 0, "{} {}", load.succeeded, load.failed);
    println!(
        "killed gateway: {} calls and {} objects acknowledged, {} unknown, nodes back within {back:?}",
        load.succeeded,
        objects.len(),
        load.failed
    );
}
