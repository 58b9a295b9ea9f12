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
