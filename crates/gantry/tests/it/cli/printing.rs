//! Output that cannot be written: no command panics, and long-running commands keep running.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_testkit::{Process, World, eventually};
use serde_json::Value;

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// A pipe whose reader has gone.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

const COMMANDS: [&[&str]; 8] = [
    &["tools"],
    &["completions", "bash"],
    &["--help"],
    &["--version"],
    &["doctor"],
    &["config", "show"],
    &["call", "--local", "Glob", r#"{"pattern": "*"}"#],
    &["nodes", "list"],
];

#[test]
fn full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let world = World::new();
    for args in COMMANDS {
        let ran = world.command(args).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let reported = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{args:?}: {reported}");
        assert_eq!(reported.matches("cannot write the output").count(), 1, "{args:?}: {reported}");
        let silent = world.command(args).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(silent.code(), Some(1), "{args:?}");
        let left = world.command(args).stdout(unread()).stderr(Stdio::piped()).output().unwrap();
        let reported = String::from_utf8_lossy(&left.stderr);
        assert!(!reported.contains("panicked") && !reported.contains("written"), "{args:?}: {reported}");
        let all_left = world.command(args).stdout(unread()).stderr(unread()).status().unwrap();
        assert_eq!(all_left.code(), left.status.code(), "{args:?}");
        assert!([Some(0), Some(4)].contains(&left.status.code()), "{args:?}: {left:?}");
    }
    let wrong = world.command(&["no-such-command"]).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(wrong.code(), Some(2));
}

#[test]
fn node_keeps_running_when_it_cannot_print() {
    let world = World::new();
    for stderr in [full(), unread()] {
        let args = ["node", "--gateway", "http://127.0.0.1:3", "--id", "zz"];
        let mut command = world.command(&args);
        command.env("GANTRY_TOKEN", format!("gtn_{}", "x".repeat(43))).stdin(Stdio::null());
        let mut node = Process::spawn(command.stdout(Stdio::null()).stderr(stderr));
        let log = world.data().join("nodes/zz/logs/node.log");
        eventually("the node has failed to connect twice", Duration::from_secs(20), || {
            let warned = std::fs::read_to_string(&log).unwrap_or_default().matches("disconnected").count();
            assert_eq!(node.child.try_wait().unwrap(), None, "the node ended");
            warned >= 2
        });
        drop(node);
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn gateway_keeps_running_when_it_cannot_print() {
    let world = World::new();
    // Something to warn of, too.
    world.configure("[mcpServers.gone]\ncommand = \"/does/not/exist\"\n");
    let mut command = world.command(&["up", "--listen", "127.0.0.1:0", "--verbose"]);
    let mut up = Process::spawn(command.stdin(Stdio::null()).stdout(full()).stderr(full()));
    eventually("the gateway answers", Duration::from_secs(20), || {
        assert_eq!(up.child.try_wait().unwrap(), None, "the gateway ended");
        let listed = world.run(&["nodes", "list", "--json"]);
        let nodes: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        nodes[0]["id"] == "local"
    });
    assert!(Command::new("kill").arg(up.id().to_string()).status().unwrap().success());
    eventually("it stops", Duration::from_secs(20), || up.child.try_wait().unwrap().is_some());
    assert_eq!(up.child.wait().unwrap().code(), Some(1), "the lost output is reported by the exit code");
}

#[test]
fn log_follow_ends_with_its_reader() {
    let world = World::new();
    let args = ["node", "--gateway", "http://127.0.0.1:3", "--id", "zz"];
    let mut command = world.command(&args);
    command.env("GANTRY_TOKEN", format!("gtn_{}", "x".repeat(43))).stdin(Stdio::null());
    let _node = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let log = world.data().join("nodes/zz/logs/node.log");
    let has_line = || std::fs::metadata(&log).is_ok_and(|file| file.len() > 0);
    eventually("the node has a log", Duration::from_secs(20), has_line);
    let mut command = world.command(&["node", "logs", "--follow"]);
    let mut following = Process::spawn(command.stdin(Stdio::null()).stdout(unread()));
    eventually("it has ended", Duration::from_secs(20), || following.child.try_wait().unwrap().is_some());
    assert_eq!(following.child.wait().unwrap().code(), Some(0));
}
