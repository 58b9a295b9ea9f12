//! Commands at a terminal.

use std::time::Duration;

use gantry_testkit::{Gateway, SOON, Terminal, World, eventually};

/// What a command leaves on the screen.
fn shown(world: &World, args: &str) -> String {
    let mut terminal = Terminal::open(world, args);
    terminal.ends();
    // The last of it may still be on its way.
    let mut before = None;
    eventually("all is on the screen", SOON, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = terminal.screen();
        before.replace(now.clone()) == Some(now)
    });
    terminal.screen()
}

#[test]
fn error_is_printed_once_as_text() {
    let world = World::new();
    let up = Gateway::start(&world);
    for (args, words) in [
        ("call Read '{\"path\": \"nope.txt\"}'", "nope.txt"),
        ("call Read '{\"pth\": 1}'", "unknown field"),
        ("call Raed", "did you mean Read"),
        ("call Read --local", "has 1 error"),
        ("transfer nosuch:x local:y", "nosuch"),
        ("logs nosuch", "nosuch"),
        ("sessions show nosuch", "nosuch"),
        ("nosuch", "unrecognized subcommand"),
        ("config get nosuch", "unknown configuration key"),
    ] {
        let screen = shown(&world, args);
        assert_eq!(screen.matches("error:").count(), 1, "{args}: {screen}");
        assert!(screen.contains(words) && !screen.contains("\"error\""), "{args}: {screen}");
        // A program gets the object, on a terminal too if it asks for it.
        let screen = shown(&world, &format!("--json {args}"));
        assert!(screen.contains("\"error\""), "{args}: {screen}");
    }
    drop(up);
}

#[test]
fn long_lines_wrap_between_words() {
    let world = World::new();
    let mut terminal = Terminal::open_sized(&world, 80, "tools --local Bash");
    terminal.sees("Add --json for the complete schemas");
    terminal.ends();
    let screen = terminal.screen();
    assert!(screen.lines().all(|line| line.chars().count() <= 90), "{screen}");
}

#[test]
fn result_of_a_call_is_readable_on_a_terminal_and_json_in_a_pipe() {
    let world = World::new();
    let _up = Gateway::start(&world);
    std::fs::write(world.workspace().join("a.txt"), "first line\nsecond line\n").unwrap();
    for (args, expected) in [
        ("call Bash command='echo one; echo two; exit 3'", vec!["one\r\ntwo\r\n", "exit code 3"]),
        ("call Read path=a.txt limit=1", vec!["1\tfirst line", "1 of 2 lines"]),
        ("call Grep pattern=second", vec!["a.txt:2: second line"]),
        ("call Grep pattern=nowhere", vec!["no matches"]),
        ("call Write path=b.txt content=x", vec!["bytes: 1"]),
    ] {
        let screen = shown(&world, args);
        for part in expected {
            assert!(screen.contains(part), "{args}: {part:?} is not in {screen:?}");
        }
        assert!(!screen.contains("{\""), "{args}: {screen}");
    }
    // A program gets what the tool returned.
    let ran = world.run(&["call", "Bash", "command=exit 3"]);
    assert_eq!((ran.code, ran.json()["exitCode"].as_i64()), (0, Some(3)), "{ran:?}");
    for through in [&[][..], &["--local"]] {
        let code =
            |command: &str| world.run(&[&["call", "Bash", command, "--exit-code"], through].concat()).code;
        assert_eq!((code("command=exit 3"), code("command=true"), code("command=kill -9 $$")), (3, 0, 137));
    }
    let wrong = world.run(&["call", "Read", "path=a.txt", "limt=1"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("did you mean limit?"), "{wrong:?}");
}

#[test]
fn shell_completes_names_that_the_gateway_knows() {
    let world = World::new();
    let offered = |words: &[&str]| {
        let args = [&["--", "gantry"], words].concat();
        let began = std::time::Instant::now();
        let ran = world.run_with(&args, &[("GANTRY_COMPLETE", "fish")]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        // Half of it is the start of the program under test.
        assert!(began.elapsed() < Duration::from_secs(2), "{words:?}");
        ran.stdout
    };
    // Without a gateway there are no names, and no error.
    assert_eq!(offered(&["call", "Rea"]), "");
    assert!(offered(&["sess"]).contains("sessions"));
    let _up = Gateway::start(&world);
    assert!(offered(&["call", "Rea"]).contains("Read\t"), "{}", offered(&["call", "Rea"]));
    assert!(offered(&["logs", ""]).contains("local"));
    assert!(offered(&["nodes", "show", "lo"]).contains("local"));
    assert!(offered(&["chat", "--agent", ""]).contains("main"));
    for shell in ["bash", "zsh", "fish"] {
        let script = world.run(&["completions", shell]);
        assert!(script.code == 0 && script.stdout.contains("GANTRY_COMPLETE"), "{script:?}");
    }
    let ran = world.run(&["completions", "man", "--dir", "man"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let page = std::fs::read_to_string(world.workspace().join("man/gantry-call.1")).unwrap();
    assert!(page.contains("exit\\-code"), "{page}");
}
