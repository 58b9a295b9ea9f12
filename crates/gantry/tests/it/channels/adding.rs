//! `gantry channels add` at a terminal and in a pipe.

use gantry_testkit::{Terminal, World};

#[test]
fn adding_an_account_stores_its_secret_and_writes_its_section() {
    let world = World::new();
    let mut terminal = Terminal::open(&world, "channels add matrix --account work");
    terminal.sees("Homeserver");
    terminal.type_keys("https://matrix.example.org\r");
    terminal.sees("Access token");
    terminal.type_keys("syt_SECRETTOKEN\r");
    terminal.sees("Added matrix:work");
    terminal.sees("gantry up, then gantry channels link matrix:work");
    terminal.ends();
    assert!(!terminal.screen().contains("SECRETTOKEN"), "the token is not echoed");
    let written = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    assert!(!written.contains("SECRETTOKEN"), "{written}");
    let section = world.run(&["config", "get", "channels.matrix.work", "--json"]).json();
    assert_eq!(section["homeserver"], "https://matrix.example.org", "{section}");
    let secrets = world.run(&["secrets", "--json"]).json();
    assert_eq!(secrets[0]["name"], "MATRIX_WORK", "{secrets}");
    assert_eq!(secrets[0]["hosts"][0], "matrix.example.org", "{secrets}");
}

#[test]
fn steps_are_printed_without_a_terminal_and_an_empty_answer_changes_nothing() {
    let world = World::new();
    let steps = world.run(&["channels", "add", "slack"]).stdout;
    assert!(steps.contains("gantry secrets set SLACK_BOT --host slack.com"), "{steps}");
    assert!(steps.contains("[channels.slack.default]"), "{steps}");
    let mut terminal = Terminal::open(&world, "channels add email");
    terminal.sees("Address of the mailbox");
    terminal.type_keys("\r");
    terminal.sees("is required");
    terminal.ends();
    assert!(!world.data().join("gantry.toml").exists());
}
