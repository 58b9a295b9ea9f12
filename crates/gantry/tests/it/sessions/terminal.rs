//! `gantry chat` at a terminal: `script` gives it one, keys are typed, and what is on the screen is read.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_model::testing::{Say, Turn};
use serde_json::json;

use super::{Model, call};
use crate::gateway::{Up, eventually};
use crate::run::World;

struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
    /// How much of it was looked at.
    seen: usize,
}

impl Terminal {
    fn open(world: &World, args: &str) -> Terminal {
        let chat = format!("{} chat {args}", env!("CARGO_BIN_EXE_gantry"));
        let like = world.command(&[]);
        let mut command = std::process::Command::new("script");
        command.args(["-qfec", &chat, "/dev/null"]).current_dir(world.workspace()).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        let keys = child.stdin.take().unwrap();
        Terminal { child, keys, screen, seen: 0 }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for a text that was not there before.
    fn sees(&mut self, text: &str) {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(std::time::Instant::now() < until, "{text:?} is not on {:?}", &screen[self.seen..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ends(&mut self) {
        let child = &mut self.child;
        eventually("the chat ends", Duration::from_secs(20), || child.try_wait().unwrap().is_some());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn model() -> Model {
    Model::deciding(|heard| {
        let last = heard.last_text();
        match last.as_str() {
            "run it" => call("Bash", json!({"command": "echo ran >> notes"})),
            "run both" => Turn {
                say: ["one", "two"]
                    .map(|name| Say::Call {
                        name: "Bash".into(),
                        input: json!({"command": format!("echo {name} >> both")}),
                    })
                    .into(),
                ..Turn::default()
            },
            "read it" => call("Read", json!({"path": "nothing.txt"})),
            "for long" => Turn {
                say: vec![Say::Text("a long answer ".repeat(200))],
                piece: Some(5),
                pause_ms: 50,
                ..Turn::default()
            },
            other => Turn::text(format!("heard <{}>", other.replace('\n', "|"))),
        }
    })
}

#[test]
fn a_conversation_at_a_terminal() {
    let model = model();
    let world = model.world("autonomy = \"supervised\"");
    let up = Up::start(&world);
    let mut terminal = Terminal::open(&world, "");
    terminal.sees("/help shows the commands");
    terminal.sees("> ");
    // Edited, of several lines, and brought back.
    terminal.type_keys("helo\x1b[Dl\r");
    terminal.sees("heard <hello>");
    terminal.sees("> ");
    // What goes wrong is one line.
    terminal.type_keys("/nosuch\r");
    terminal.sees("is no command");
    terminal.sees("> ");
    assert!(!terminal.screen.lock().unwrap().contains("invalid_input\""), "an object is for programs");
    terminal.type_keys("one\x1b\rtwo\\\rthree\r");
    terminal.sees("heard <one|two|three>");
    terminal.sees("> ");
    terminal.type_keys("\x1b[A\x1b[A\x1b[A\r");
    terminal.sees("heard <hello>");
    // A call is asked about where it is typed, and told in a line with how long it took.
    terminal.type_keys("run it\r");
    terminal.sees("\u{2026} Bash");
    terminal.sees("allow? [y]es, [n]o, [a]lways");
    terminal.type_keys("perhaps\r");
    terminal.sees("allow? [y]es, [n]o, [a]lways");
    assert!(!world.workspace().join("notes").exists());
    terminal.type_keys("y\r");
    terminal.sees("\u{2713} Bash");
    terminal.sees("ms)");
    terminal.sees("heard <");
    assert_eq!(std::fs::read_to_string(world.workspace().join("notes")).unwrap(), "ran\n");
    // Whoever says always says for how long, and how far.
    terminal.type_keys("run it\r");
    terminal.sees("allow? [y]es, [n]o, [a]lways");
    terminal.type_keys("a 8 hours\r");
    terminal.sees("allow? [y]es, [n]o, [a]lways");
    terminal.type_keys("a 8h any\r");
    terminal.sees("for these arguments only");
    terminal.sees("allow? [y]es, [n]o, [a]lways");
    terminal.type_keys("a 8h\r");
    terminal.sees("\u{2713} Bash");
    terminal.sees("heard <");
    let history = up.get("/v1/sessions/main/events").json()["events"].clone();
    let given =
        history.as_array().unwrap().iter().rfind(|event| event["kind"] == "approval_answered").unwrap();
    let lasts = given["data"]["answer"]["until"].as_i64().unwrap() - given["at"].as_i64().unwrap();
    // It is written down a moment after it was given.
    assert!((8 * 3_600_000 - 60_000..=8 * 3_600_000).contains(&lasts), "{given}");
    assert_eq!(given["data"]["answer"]["scope"], "call", "{given}");
    terminal.type_keys("read it\r");
    terminal.sees("\u{2717} Read");
    terminal.sees("nothing.txt");
    // Colours, since this is a terminal.
    assert!(terminal.screen.lock().unwrap().contains("\x1b[1;31m\u{2717} Read"));
    terminal.sees("> ");
    terminal.type_keys("\x04");
    terminal.ends();
    model.check();
}

#[test]
fn calls_side_by_side_are_asked_about_one_after_the_other() {
    let model = model();
    let world = model.world("autonomy = \"supervised\"");
    let _up = Up::start(&world);
    let mut terminal = Terminal::open(&world, "");
    terminal.sees("> ");
    terminal.type_keys("run both\r");
    for _ in 0..2 {
        terminal.sees("allow? [y]es, [n]o, [a]lways");
        // The second question is there before the first is answered.
        std::thread::sleep(Duration::from_millis(300));
        terminal.type_keys("y\r");
        terminal.sees("\u{2713} Bash");
    }
    terminal.sees("heard <");
    let mut lines: Vec<String> =
        std::fs::read_to_string(world.workspace().join("both")).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "two"]);
    model.check();
}

#[test]
fn an_interrupt_stops_the_run_and_another_one_leaves() {
    let model = model();
    let world = model.world("");
    let up = Up::start(&world);
    let mut terminal = Terminal::open(&world, "");
    terminal.sees("> ");
    terminal.type_keys("for long\r");
    terminal.sees("a long answer");
    terminal.type_keys("\x03");
    terminal.sees("stopped");
    terminal.sees("> ");
    assert!(up.get("/v1/sessions/main").json()["running"].is_null());
    // What was begun is taken back first; then it is asked again, then left.
    terminal.type_keys("never mind\x03");
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_keys("\x03");
    terminal.sees("Ctrl-C again leaves");
    terminal.type_keys("\x03");
    terminal.ends();
    model.check();
}
