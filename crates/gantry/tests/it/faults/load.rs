//! Calls of every kind, with effects that the tests count afterwards.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gantry_testkit::{Machine, Random, Socket};
use serde_json::{Value, json};

/// Every call has its answer by then, whatever happens.
pub(super) const DEADLINE: Duration = Duration::from_secs(25);

/// How much later than its deadline an answer may come on a busy machine.
const LATE: Duration = Duration::from_secs(5);

pub(super) const CONTENT_BYTES: usize = 300_000;

enum Kind {
    Read,
    /// Appends its number to a file.
    Count,
    /// Writes a file of its own.
    Write,
    /// Replaces one file again and again.
    Replace,
}

struct Begun {
    id: u64,
    number: usize,
    kind: Kind,
    at: Instant,
}

/// What is under way, and what was acknowledged.
#[derive(Default)]
pub(super) struct Load {
    next: usize,
    begun: Vec<Begun>,
    counted: HashMap<usize, bool>,
    written: Vec<usize>,
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) slowest: Duration,
}

pub(super) fn content(number: usize) -> String {
    let line = format!("{number:08}\n");
    line.repeat(CONTENT_BYTES / line.len())
}

impl Load {
    /// A few calls of each kind, over one socket.
    pub(super) fn begin(&mut self, socket: &Socket, node: &str, random: &mut Random) {
        for _ in 0..3 {
            for kind in [Kind::Read, Kind::Count, Kind::Write, Kind::Replace] {
                let number = self.next;
                self.next += 1;
                let (tool, input) = match kind {
                    Kind::Read => ("Read", json!({"path": "read.txt"})),
                    Kind::Count => {
                        self.counted.insert(number, false);
                        let pause = random.below(1000);
                        let command =
                            format!("echo {number} >> count; sleep 0.{pause:03}; echo done-{number}");
                        ("Bash", json!({ "command": command }))
                    }
                    Kind::Write => {
                        let path = format!("written-{number}");
                        ("Write", json!({"path": path, "content": content(number)}))
                    }
                    Kind::Replace => ("Write", json!({"path": "replaced", "content": content(number)})),
                };
                let id = socket.begin_call(&format!("{node}__{tool}"), &input, DEADLINE);
                self.begun.push(Begun { id, number, kind, at: Instant::now() });
            }
        }
    }

    /// Every call is answered by its deadline. Gives the messages of those that failed.
    pub(super) fn finish(&mut self, socket: &Socket) -> Vec<String> {
        let mut failures = Vec::new();
        for call in std::mem::take(&mut self.begun) {
            let left = (DEADLINE + LATE).saturating_sub(call.at.elapsed());
            let answer = socket.answer(call.id, left).unwrap_or_else(|| {
                let closed = socket.closed(Duration::ZERO);
                panic!("call {} was not answered by its deadline; closed: {closed:?}", call.number)
            });
            self.slowest = self.slowest.max(call.at.elapsed());
            if answer["ok"] == true {
                self.succeeded += 1;
                self.acknowledge(&call, &answer["result"]);
            } else {
                self.failed += 1;
                failures.push(answer["error"].to_string());
            }
        }
        failures
    }

    /// The calls of a socket whose other end was killed: some answers came, the others are unknown.
    pub(super) fn abandon(&mut self, socket: &Socket) {
        assert!(socket.closed(Duration::from_secs(10)).is_some(), "the end of the gateway ends its sockets");
        for call in std::mem::take(&mut self.begun) {
            match socket.answer(call.id, Duration::ZERO) {
                Some(answer) if answer["ok"] == true => {
                    self.succeeded += 1;
                    self.acknowledge(&call, &answer["result"]);
                }
                _ => self.failed += 1,
            }
        }
    }

    fn acknowledge(&mut self, call: &Begun, result: &Value) {
        assert_ne!(result["isError"], true, "{result}");
        let json = &result["json"];
        match call.kind {
            Kind::Read => assert_eq!(json["content"], "1\tstill here", "{json}"),
            Kind::Count => {
                assert_eq!(json["output"], format!("done-{}\n", call.number), "{json}");
                self.counted.insert(call.number, true);
            }
            Kind::Write => self.written.push(call.number),
            Kind::Replace => {}
        }
    }

    /// Files are whole, acknowledged ones are there, nothing ran twice, and what was acknowledged ran.
    pub(super) fn check(&self, machine: &Machine) {
        let count = std::fs::read_to_string(machine.path("count")).unwrap_or_default();
        let mut runs: HashMap<usize, usize> = HashMap::new();
        count.lines().for_each(|line| *runs.entry(line.parse().unwrap()).or_default() += 1);
        for (number, acknowledged) in &self.counted {
            let runs = runs.get(number).copied().unwrap_or(0);
            assert!(runs <= 1, "call {number} ran {runs} times");
            assert!(runs == 1 || !acknowledged, "call {number} was acknowledged and did not run");
        }
        for number in &self.written {
            let found = std::fs::read_to_string(machine.path(&format!("written-{number}")));
            assert_eq!(found.unwrap(), content(*number), "an acknowledged write is lost");
        }
        for entry in std::fs::read_dir(machine.world.workspace()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("written-") || name == "replaced" {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let number: usize = text[..8].parse().unwrap();
                assert_eq!(text, content(number), "{name} is not whole");
            }
        }
    }
}
