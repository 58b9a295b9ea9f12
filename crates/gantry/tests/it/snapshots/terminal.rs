//! The most used commands on terminals of 80 and 120 columns, without colors and in a pipe.

use std::sync::Mutex;

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, Terminal, World};

use crate::sessions::Model;

const COMMANDS: &[&str] = &[
    "tools",
    "tools Grep",
    "nodes",
    "sessions",
    "sessions show main",
    "sessions questions",
    "grants",
    "cron",
    "tasks",
    "pipelines",
    "pipelines plans",
    "processes",
    "outbox",
    "tokens",
    "secrets",
    "apis",
    "models",
    "channels",
    "ports",
    "google",
    "audit --tool Write",
    "audit verify",
    "mcp list",
    "policy explain Bash '{\"command\": \"ls\"}'",
    "status",
    "call Read path=notes.md limit=2",
    "call Bash command='echo out; exit 3'",
    "call Glob pattern='*.md'",
    "call Grep pattern=second",
    "call Bash command='true' background=perhaps",
    "call Raed",
    "results nosuch",
    "logs nosuch",
    "transfer big.bin laptop:big.bin",
    "chat ''",
];

/// What differs between runs beside the values of all snapshots.
const FILTERS: &[(&str, &str)] = &[
    (r"\b[0-9a-f]{32}\b", "[HASH]"),
    (r"(?m)^[0-9a-f]{8}  ", "[ID]  "),
    (r"\w{3} \d+ \w{3} \d{4} \d\d:\d\d:\d\d", "[DATE]"),
    (r"\b\d+(\.\d+)? (ms|s|min)\b", "[DURATION]"),
    // In a table, the spaces after a time depend on its length.
    (r"\b(now|\d+ (second|minute)s? ago|in \d+ minutes) {2,}", "[AGO]  "),
    (r"\b(now|\d+ (second|minute)s? ago|in \d+ minutes)\b", "[AGO]"),
];

/// Removes colors. No other code belongs into the output of a command.
fn without_colors(command: &str, text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_once('m').unwrap_or(("?", part));
        assert!(code.chars().all(|c| c.is_ascii_digit() || c == ';'), "{command}: {part:?}");
        plain.push_str(rest);
    }
    plain
}

/// Runs all commands on terminals, a few at a time, and returns their output.
fn on_terminals(world: &World, columns: u16, variables: &str) -> Vec<String> {
    let shown: Vec<Mutex<String>> = COMMANDS.iter().map(|_| Mutex::default()).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(command) = COMMANDS.get(at) else { return };
                    let screen = Terminal::open_with(world, columns, variables, command).whole();
                    *shown[at].lock().unwrap() = screen.replace("\r\n", "\n");
                }
            });
        }
    });
    shown.into_iter().map(|screen| screen.into_inner().unwrap()).collect()
}

#[test]
fn most_used_commands_are_readable_at_any_width() {
    let model = Model::deciding(|_| Turn::text("All is well."));
    let world = model.world("flow = \"off\"");
    let _up = Gateway::start(&world);
    world.write("notes.md", "first line\nsecond line\nthird line\n");
    assert_eq!(world.run(&["chat", "How is everything?"]).stdout, "All is well.\n");
    assert_eq!(world.run(&["call", "Write", "path=b.txt", "content=x"]).code, 0);
    assert_eq!(world.run(&["tokens", "add", "ci", "--read-only"]).code, 0);
    assert_eq!(world.run(&["tasks", "add", "Water the plants on the balcony"]).code, 0);
    let job = ["cron", "add", "report", "--every", "1h", "--task", "Report what changed"];
    assert_eq!(world.run(&job).code, 0);
    // Once before, so that each width shows the same state.
    on_terminals(&world, 100, "");
    let mut too_wide: Vec<String> = Vec::new();
    for columns in [80, 120] {
        let colored = on_terminals(&world, columns, "");
        let mut text = String::new();
        for (command, screen) in COMMANDS.iter().zip(&colored) {
            let plain = without_colors(command, screen);
            text.push_str(&format!("$ gantry {command}\n{}\n\n", plain.trim_end()));
            // A person reads whole words; only a word that is longer than the row may be broken by the terminal.
            for line in plain.lines().filter(|line| line.chars().count() > usize::from(columns)) {
                let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
                if longest + 40 <= usize::from(columns) {
                    too_wide.push(format!("{command} at {columns}: {line:?}"));
                }
            }
        }
        let mut settings = insta::Settings::clone_current();
        FILTERS.iter().for_each(|(pattern, replacement)| settings.add_filter(pattern, *replacement));
        let text = super::without_paths(&world, &text);
        settings.bind(|| super::check(&format!("terminal_{columns}"), &text));
    }
    assert_eq!(too_wide, [""; 0]);
    for (command, screen) in COMMANDS.iter().zip(on_terminals(&world, 80, "NO_COLOR=1")) {
        assert!(!screen.contains('\x1b'), "{command}: {screen:?}");
    }
    let words = "call Bash command=true";
    let piped = world.run(&words.split(' ').collect::<Vec<_>>());
    assert!(piped.stdout.starts_with('{') && piped.stdout.lines().count() == 1, "{piped:?}");
    for command in ["sessions", "tools", "tasks", "status", "audit"] {
        let piped = world.run(&[command]);
        assert!(!piped.stdout.contains('\x1b') && !piped.stderr.contains('\x1b'), "{piped:?}");
    }
    model.check();
}
