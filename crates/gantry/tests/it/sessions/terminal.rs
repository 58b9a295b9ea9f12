//! `gantry chat` at a terminal.

use std::time::Duration;

use gantry_model::testing::{Say, Turn};
use gantry_testkit::{Gateway, Terminal, World};
use serde_json::json;

use super::{Model, call};

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
            "count" => call("Bash", json!({"command": "for n in $(seq 30); do echo number $n; done"})),
            "fail" => call("Bash", json!({"command": "echo tests failed; exit 101"})),
            "read it" => call("Read", json!({"path": "nothing.txt"})),
            "for long" => Turn {
                say: vec![Say::Text("a long answer ".repeat(200))],
                piece: Some(5),
                pause_ms: 50,
                ..Turn::default()
            },
            "for a while" => Turn {
                say: vec![Say::Text(format!("{}the end of it", "some words ".repeat(40)))],
                piece: Some(5),
                pause_ms: 50,
                ..Turn::default()
            },
            other => Turn::text(format!("heard <{}>", other.replace('\n', "|"))),
        }
    })
}

#[test]
fn approval_text_wraps_at_the_width_of_the_terminal() {
    let model = model();
    let world = model.world("autonomy = \"supervised\"");
    let _up = Gateway::start(&world);
    for columns in [50, 70] {
        let mut terminal = Terminal::open_sized(&world, columns, &format!("chat --session wide-{columns}"));
        terminal.sees("> ");
        terminal.type_keys("run it\r");
        terminal.sees("[1] this session: this exact command");
        let screen = terminal.screen();
        let asked = screen.rsplit("Run on local?").next().unwrap_or_default();
        // The prompt below has codes of the terminal.
        let lines = asked.lines().skip(1).map(str::trim_end).take_while(|line| !line.contains("\x1b"));
        let lines: Vec<&str> = lines.collect();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(lines.len() > 3, "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= usize::from(columns)), "{lines:?}");
        let expected = "main asks before every command and change (autonomy: supervised)";
        let shown = words(&lines.join(" "));
        assert!(shown.windows(words(expected).len()).any(|part| part == words(expected)), "{lines:?}");
        terminal.type_keys("n\r");
    }
}

#[test]
fn conversation_works_at_a_terminal() {
    let model = model();
    // Without the flow rule, which asks about each call by itself.
    let world = model.world("autonomy = \"supervised\"\nflow = \"off\"");
    let up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("lab/scripted-1 \u{b7} supervised: asks before every change");
    terminal.sees(world.workspace().to_str().unwrap());
    terminal.sees("/help shows commands");
    terminal.sees("> ");
    // Edited, of several lines, and brought back.
    terminal.type_keys("helo\x1b[Dl\r");
    terminal.sees("heard <hello>");
    terminal.sees("> ");
    // What goes wrong is one line.
    terminal.type_keys("/nosuch\r");
    terminal.sees("unknown command /nosuch");
    terminal.sees("> ");
    assert!(!terminal.screen().contains("invalid_input\""), "an object is for programs");
    terminal.type_keys("one\x1b\rtwo\\\rthree\r");
    terminal.sees("heard <one|two|three>");
    terminal.sees("> ");
    // The three rows of the last message are passed first.
    terminal.type_keys(&"\x1b[A".repeat(5));
    terminal.type_keys("\r");
    terminal.sees("heard <hello>");
    // The call is approved at the terminal, and its line shows how long it took.
    terminal.type_keys("run it\r");
    terminal.sees("[1] this session: this exact command");
    terminal.sees("? ");
    // A wrong answer stays in the line.
    terminal.type_keys("perhaps\r");
    terminal.sees("Answer y, n, 1");
    assert!(!world.workspace().join("notes").exists());
    terminal.type_keys("\x15y\r");
    terminal.sees("\u{2713} $ echo ");
    terminal.sees("ms)");
    terminal.sees("heard");
    assert_eq!(std::fs::read_to_string(world.workspace().join("notes")).unwrap(), "ran\n");
    // `always` has a time and a scope.
    terminal.type_keys("run it\r");
    terminal.sees("[1] this session: this exact command");
    terminal.type_keys("a 8 hours\r");
    terminal.sees("Answer y, n, 1");
    terminal.type_keys("\x15a 8h\r");
    terminal.sees("\u{2713} $ echo ");
    terminal.sees("heard");
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
    assert!(terminal.screen().contains("\x1b[1;31m\u{2717} Read"));
    terminal.sees("> ");
    terminal.type_keys("\x04");
    terminal.ends();
    model.check();
}

#[test]
fn parallel_calls_are_approved_one_at_a_time() {
    let model = model();
    let world = model.world("autonomy = \"supervised\"");
    let _up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("> ");
    terminal.type_keys("run both\r");
    for _ in 0..2 {
        terminal.sees("[1] this session: this exact command");
        // The second question is there before the first is answered.
        std::thread::sleep(Duration::from_millis(300));
        terminal.type_keys("y\r");
    }
    terminal.sees("\u{2713} $ echo ");
    terminal.sees("heard");
    let mut lines: Vec<String> =
        std::fs::read_to_string(world.workspace().join("both")).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "two"]);
    model.check();
}

#[test]
fn first_interrupt_stops_the_run_and_second_exits() {
    let model = model();
    let world = model.world("");
    let up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat");
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
    terminal.sees("Press Ctrl-C again to quit");
    terminal.type_keys("\x03");
    terminal.ends();
    model.check();
}

/// The messages in the history files of this data directory.
fn history(world: &World) -> String {
    let Ok(files) = std::fs::read_dir(world.data().join("chat-history")) else { return String::new() };
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn slash_commands_and_files_are_completed() {
    let model = model();
    let world = model.world("");
    let _up = Gateway::start(&world);
    std::fs::write(world.workspace().join("notes-of-today.md"), "x").unwrap();
    let mut terminal = Terminal::open_sized(&world, 80, "chat");
    terminal.sees("> ");
    // Several candidates are listed with what they do.
    terminal.type_keys("/s\t");
    terminal.sees("/stop          Stop the run");
    terminal.type_keys("\x15/hel\t\r");
    terminal.sees("Start over; the journal");
    terminal.sees("/quit");
    terminal.sees("> ");
    terminal.type_keys("read @notes-\t\r");
    terminal.sees("heard <read @notes-of-today.md>");
    terminal.type_keys("/quit\r");
    terminal.ends();
    model.check();
}

#[test]
fn history_is_per_directory_and_has_no_answers() {
    let model = model();
    let world = model.world("autonomy = \"supervised\"\nflow = \"off\"");
    let _up = Gateway::start(&world);
    let elsewhere = world.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let leave = |mut terminal: Terminal| {
        terminal.type_keys("\x04");
        terminal.ends();
    };
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("> ");
    terminal.type_keys("run it\r");
    terminal.sees("[1] this session: this exact command");
    terminal.type_keys("n\r");
    terminal.sees("the user said no");
    terminal.sees("heard");
    terminal.sees("> ");
    terminal.type_keys(" a secret line\r");
    terminal.sees("heard < a secret line>");
    // The answer is not in the history of this conversation, nor is a line that starts with a space.
    terminal.type_keys("\x1b[A");
    terminal.sees("run it");
    terminal.type_keys("\x15");
    leave(terminal);
    assert_eq!(history(&world), "\"run it\"\n");
    let mut terminal = Terminal::open(&world, &format!("chat --workspace {}", elsewhere.display()));
    terminal.sees("> ");
    terminal.type_keys("\x1b[Aover there\r");
    terminal.sees("heard <over there>");
    leave(terminal);
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("> ");
    terminal.type_keys("\x1b[A");
    terminal.sees("run it");
    terminal.type_keys("\x15");
    leave(terminal);
    assert_eq!(history(&world).lines().count(), 2, "{}", history(&world));
    model.check();
}

#[test]
fn long_output_is_folded_and_can_be_shown() {
    let model = model();
    let world = model.world("autonomy = \"guided\"\nflow = \"off\"");
    let _up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("> ");
    terminal.type_keys("count\r");
    terminal.sees("\u{2026} 25 more lines; /output shows all");
    terminal.sees("heard");
    terminal.sees("> ");
    assert!(!terminal.screen().contains("number 7\r\n"));
    terminal.type_keys("/output\r");
    terminal.sees("number 7\r\n");
    terminal.sees("number 30\r\n");
    terminal.type_keys("\x04");
    terminal.ends();
    model.check();
}

#[test]
fn options_choose_the_conversation() {
    let model = model();
    let world = model.world("");
    let up = Gateway::start(&world);
    let sessions = || up.get("/v1/sessions").json()["sessions"].as_array().unwrap().len();
    assert_eq!(world.run(&["chat", "--new", "first"]).code, 0);
    assert_eq!(world.run(&["chat", "--continue", "second"]).code, 0);
    assert_eq!(sessions(), 1);
    assert_eq!(world.run(&["chat", "third"]).code, 0);
    assert_eq!(sessions(), 2, "without an option it is the main conversation");
    let elsewhere = world.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let none = world.run(&["chat", "--continue", "--workspace", elsewhere.to_str().unwrap(), "x"]);
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("`gantry chat --new`"), "{none:?}");
    let mut terminal = Terminal::open(&world, "chat --resume");
    terminal.sees("first");
    terminal.sees("Which one? [1] ");
    terminal.type_keys("7\n");
    terminal.sees("type a number from 1 to 2");
    terminal.type_keys("2\n");
    terminal.sees("agent:main:chat-");
    terminal.sees("> ");
    terminal.type_keys("fourth\r");
    terminal.sees("heard <fourth>");
    terminal.type_keys("\x04");
    terminal.ends();
    assert_eq!(sessions(), 2);
    model.check();
}

#[test]
fn message_typed_during_a_run_is_queued() {
    let model = model();
    let world = model.world("");
    let _up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("> ");
    terminal.type_keys("for a while\r");
    terminal.sees("some words");
    terminal.type_keys("the next one\r");
    terminal.sees("queued: the agent reads it when this run has ended");
    terminal.sees("the end of it");
    terminal.sees("heard <the next one>");
    terminal.type_keys("\x04");
    terminal.ends();
    model.check();
}

#[test]
fn line_can_be_edited_with_the_keys_of_vi() {
    let model = model();
    let world = model.world("");
    let _up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat --keys vi");
    terminal.sees("> ");
    terminal.type_keys("one wrong\x1b");
    // A lone escape is told from a sequence by the time after it.
    std::thread::sleep(Duration::from_millis(700));
    terminal.type_keys("bDaright\r");
    terminal.sees("heard <one right>");
    terminal.type_keys("\x04");
    terminal.ends();
    model.check();
}

/// The smallest PNG picture that has the right first bytes.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

#[test]
fn picture_is_attached_by_its_path() {
    let model = Model::deciding(|heard| {
        let pictures = heard.body.to_string().matches("data:image/png;base64,iVBORw0KGgo").count();
        Turn::text(format!("{pictures} pictures"))
    });
    let world = model.world("");
    let up = Gateway::start(&world);
    std::fs::write(world.workspace().join("shot.png"), PNG).unwrap();
    std::fs::write(world.workspace().join("text.png"), "no picture").unwrap();
    let ran = world.run(&["chat", "What is wrong here? @shot.png"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 pictures\n"), "{ran:?}");
    for (path, why) in
        [("nosuch.png", "nosuch.png"), ("text.png", "it is not a PNG, JPEG, GIF or WebP picture")]
    {
        let ran = world.run(&["chat", "--session", "other", &format!("see @{path}")]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("cannot attach") && ran.stderr.contains(why), "{ran:?}");
    }
    assert_eq!(model.asked(), 1, "a message without its picture is not sent");
    // The gateway checks pictures of any client, because a bad one would spoil the conversation.
    let body = json!({"message": "hi", "pictures": [{"mediaType": "image/png", "data": "bm8="}]});
    let refused = up.ask("POST", "/v1/sessions/other/messages", &[], body.to_string().as_bytes());
    assert_eq!(refused.status, 400, "{:?}", refused.json());
    model.check();
}

#[test]
fn conversation_without_colors_or_terminal_has_no_codes() {
    let model = model();
    let world = model.world("autonomy = \"guided\"\nflow = \"off\"");
    let _up = Gateway::start(&world);
    let mut terminal = Terminal::open_with(&world, 80, "NO_COLOR=1", "chat");
    terminal.sees("> ");
    terminal.type_keys("fail\r");
    terminal.sees("exit code 101");
    terminal.sees("heard");
    terminal.type_keys("\x04");
    terminal.ends();
    let screen = terminal.screen();
    // Movements of the cursor are no colors.
    let colors = screen
        .split("\x1b[")
        .skip(1)
        .filter(|code| code.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m'));
    assert_eq!(colors.count(), 0, "{screen:?}");
    let ran = world.run(&["chat", "fail"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "{ran:?}");
    assert!(!ran.stderr.contains("thinking"), "{ran:?}");
    model.check();
}

#[test]
fn failed_command_is_marked_as_failed() {
    let model = model();
    let world = model.world("autonomy = \"guided\"\nflow = \"off\"");
    let _up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat fail");
    terminal.sees("\u{2717} $ echo tests failed; exit 101");
    terminal.sees("exit code 101");
    terminal.sees("heard");
    terminal.ends();
    assert!(!terminal.screen().contains('\u{2713}'), "{}", terminal.screen());
    model.check();
}

#[test]
fn open_chat_reconnects_after_gateway_restart() {
    let model = model();
    let world = model.world("");
    let mut up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat");
    terminal.sees("> ");
    terminal.type_keys("before\r");
    terminal.sees("heard <before>");
    terminal.sees("> ");
    up.signal(rustix::process::Signal::TERM);
    assert_eq!(up.wait(Duration::from_secs(30)), Some(0));
    terminal.type_keys("after\r");
    terminal.sees("reconnecting");
    // It may listen on another port.
    let up = Gateway::start(&world);
    terminal.sees("reconnected");
    terminal.sees("heard <after>");
    terminal.sees("> ");
    // In the middle of an answer: the run goes on in the next gateway, and is heard to its end.
    terminal.type_keys("for a while\r");
    terminal.sees("some words");
    up.kill();
    terminal.sees("reconnecting");
    let _up = Gateway::start(&world);
    terminal.sees("reconnected");
    terminal.sees("the end of it");
    terminal.sees("> ");
    terminal.type_keys("\x04");
    terminal.ends();
    assert_eq!(terminal.screen().matches("reconnecting").count(), 2, "{}", terminal.screen());
    model.check();
}

#[test]
fn one_shot_chat_names_the_session_when_the_gateway_dies() {
    let model = model();
    let world = model.world("");
    let up = Gateway::start(&world);
    let mut terminal = Terminal::open(&world, "chat 'for long'");
    terminal.sees("a long answer");
    up.kill();
    terminal.sees("\r\n\u{1b}[1;31merror:");
    terminal.sees("gantry sessions show agent:main:main");
    terminal.ends();
    // Over in both places, so that no other run of this test is disturbed.
    let _up = Gateway::start(&world);
    assert_eq!(world.run(&["sessions", "stop", "main"]).code, 0);
}

#[test]
fn chat_uses_the_current_directory_as_workspace() {
    let model = Model::deciding(|heard| match super::results(heard) {
        0 => call("Read", json!({"path": "a.txt"})),
        _ if heard.last_text().contains("from elsewhere") => Turn::text("elsewhere"),
        _ => Turn::text("not there"),
    });
    let world = model.world("autonomy = \"guided\"\nflow = \"off\"");
    let up = Gateway::start(&world);
    let elsewhere = world.folder.path().canonicalize().unwrap().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("a.txt"), "from elsewhere\n").unwrap();
    let chat = |session: &str, folder: &std::path::Path| {
        let ran =
            world.command(&["chat", "--session", session, "read it"]).current_dir(folder).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    assert_eq!(chat("one", &elsewhere), "elsewhere\n");
    assert_eq!(chat("two", &world.workspace()), "not there\n");
    assert_eq!(up.get("/v1/sessions/one").json()["workspace"].as_str(), elsewhere.to_str());
    // The conversation moves with its user, and says so.
    let mut terminal = Terminal::open(&world, "chat --session one");
    terminal.sees(world.workspace().to_str().unwrap());
    terminal.sees(&format!("(previously {}", elsewhere.display()));
    terminal.sees("> ");
    terminal.type_keys("\x04");
    terminal.ends();
    chat("one", &world.workspace());
    assert_eq!(up.get("/v1/sessions/one").json()["workspace"].as_str(), world.workspace().to_str());
    // Others than the operator do not choose.
    let token = up.client_token(&world, "friend", &["--agents", "main"]);
    let body = json!({"message": "hi", "workspace": "/"});
    let refused = up.ask(
        "POST",
        "/v1/sessions/one/messages",
        &[("Authorization", &format!("Bearer {token}"))],
        body.to_string().as_bytes(),
    );
    assert_eq!(refused.status, 403, "{:?}", refused.json());
    model.check();
}
