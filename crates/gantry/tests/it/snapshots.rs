//! Snapshots of what people and models read: help, errors, tool descriptions. CONTRIBUTING.md says how to re-record.

use gantry_testkit::{Ran, World};

mod errors;
mod help;
mod terminal;
mod tools;

/// Replacements for values that differ between runs. Order matters: specific before general.
const FILTERS: &[(&str, &str)] = &[
    (r"gt[a-z]_[A-Za-z0-9_-]{20,}", "[TOKEN]"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[UUID]"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "[TIME]"),
    (r"127\.0\.0\.1:\d{2,5}", "127.0.0.1:[PORT]"),
    (r"\bprocess \d+", "process [PID]"),
    (r"\bpid \d+", "pid [PID]"),
    (r"/tmp/\.tmp\w+", "[OTHER HOME]"),
];

/// Compares with `snapshots/<name>.snap`. A difference fails the test.
fn check(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, replacement) in FILTERS {
        settings.add_filter(pattern, *replacement);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// One command with its exit code and both streams, as a person would paste it.
fn transcript(world: &World, args: &[&str], ran: &Ran) -> String {
    let words: Vec<String> = args.iter().map(|arg| shell_word(arg)).collect();
    let mut text = format!("$ gantry {}\nexit code {}\n", words.join(" "), ran.code);
    for (stream, printed) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        if !printed.is_empty() {
            text += &format!("--- {stream}\n{}\n", printed.trim_end());
        }
    }
    without_paths(world, &text)
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@~".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

fn without_paths(world: &World, text: &str) -> String {
    let home = world.folder.path();
    let real = home.canonicalize().unwrap();
    text.replace(real.to_str().unwrap(), "[HOME]").replace(home.to_str().unwrap(), "[HOME]")
}
