//! `gantry node` with real processes and a real gateway.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_testkit::{Process, Ran, SOON, World, eventually};
use serde_json::{Value, json};

/// One gateway, and one machine that may join it.
struct Joined {
    gateway: World,
    machine: World,
    url: String,
    token: String,
    token_file: PathBuf,
    _up: Process,
}

impl Joined {
    fn new() -> Joined {
        let (gateway, machine) = (World::new(), World::new());
        let (up, url) = up(&gateway);
        let added = gateway.run(&["nodes", "add", "laptop", "--token"]);
        let token = added.stdout.split(['=', ' ', '\n', '"']).find(|word| word.starts_with("gtn_"));
        let token = token.unwrap_or_else(|| panic!("{}", added.stdout)).to_owned();
        let token_file = machine.folder.path().join("token");
        std::fs::write(&token_file, &token).unwrap();
        std::fs::set_permissions(&token_file, PermissionsExt::from_mode(0o600)).unwrap();
        Joined { gateway, machine, url, token, token_file, _up: up }
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.args_of("laptop", more)
    }

    fn args_of<'a>(&'a self, id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let file = self.token_file.to_str().unwrap();
        let base = ["node", "--gateway", &self.url, "--id", id, "--token-file", file];
        base.into_iter().chain(more.iter().copied()).collect()
    }

    /// A node that is connected when this returns.
    fn node(&self, more: &[&str]) -> Process {
        let node = Process::spawn(&mut quiet(self.machine.command(&self.args(more))));
        eventually("the node is connected", SOON, || self.machine.run(&["node", "status"]).code == 0);
        node
    }

    fn call(&self, tool: &str, input: &Value) -> Ran {
        self.gateway.run(&["call", tool, &input.to_string()])
    }
}

/// A gateway that listens when this returns, and where.
fn up(world: &World) -> (Process, String) {
    let up = Process::spawn(&mut quiet(world.command(&["up", "--listen", "127.0.0.1:0"])));
    let lock = world.data().join("gateway.lock");
    let mut url = String::new();
    eventually("the gateway listens", SOON, || {
        let text = std::fs::read_to_string(&lock).unwrap_or_default();
        let running: Value = serde_json::from_str(&text).unwrap_or_default();
        running["url"].as_str().unwrap_or_default().clone_into(&mut url);
        !url.is_empty()
    });
    (up, url)
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn runs(words: &str) -> bool {
    let found = Command::new("pgrep").args(["-f", "-x", words]).output().unwrap();
    !found.stdout.is_empty()
}

#[test]
fn joined_node_runs_tools_like_local_ones() {
    let joined = Joined::new();
    joined.machine.write("a.txt", "one\ntwo\n");
    let node = joined.node(&[]);
    let read = joined.call("laptop__Read", &json!({"path": "a.txt", "limit": 1})).json();
    assert_eq!(read["content"], "1\tone");
    // What is Gantry's own on that machine is closed, the token included.
    for path in [joined.token_file.clone(), joined.machine.data().join("nodes/laptop/logs/node.log")] {
        let denied = joined.call("laptop__Read", &json!({"path": path}));
        assert_eq!((denied.code, &denied.json()["error"]["code"]), (3, &json!("denied")));
    }
    let arguments = std::fs::read(format!("/proc/{}/cmdline", node.id())).unwrap();
    let log = std::fs::read_to_string(joined.machine.data().join("nodes/laptop/logs/node.log")).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(&joined.token));
    assert!(log.contains("\"tool\":\"Read\"") && !log.contains(&joined.token), "{log}");
    let second = joined.machine.run(&joined.args(&[]));
    assert_eq!(second.code, 2);
    assert!(second.stderr.contains(&format!("process {}", node.id())), "{}", second.stderr);
}

#[test]
fn node_log_with_inputs_is_shown_to_the_operator_only() {
    let joined = Joined::new();
    let _node = joined.node(&[]);
    let token = |name: &str, more: &[&str]| -> String {
        let ran = joined.gateway.run(&[&["tokens", "add", name, "--json"], more].concat());
        ran.json()["token"].as_str().unwrap().to_owned()
    };
    let (ada, reader) = (token("ada", &[]), token("reader", &["--read-only"]));
    let run_as = |token: &str, args: &[&str]| {
        joined.machine.run_with(args, &[("GANTRY_GATEWAY", &joined.url), ("GANTRY_TOKEN", token)])
    };
    joined.call("laptop__Bash", &json!({"command": "echo password-of-operator"}));
    let ran = run_as(&ada, &["call", "laptop__Bash", &json!({"command": "echo word-of-ada"}).to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let seen = |token: &str| run_as(token, &["logs", "laptop"]).stdout;
    let all = joined.gateway.run(&["logs", "laptop"]).stdout;
    assert!(all.contains("password-of-operator") && all.contains("word-of-ada"), "{all}");
    assert!(!all.contains("not yours"), "{all}");
    let adas = seen(&ada);
    assert!(adas.contains("word-of-ada") && !adas.contains("password-of-operator"), "{adas}");
    let readers = seen(&reader);
    assert!(!readers.contains("word-of-ada") && !readers.contains("password-of-operator"), "{readers}");
    let count = readers.matches(r#""input":"[not yours]""#).count();
    assert_eq!(count, 2, "{readers}");
    assert!(readers.contains("\"event\":\"connected\""), "the node's own words stay: {readers}");
}

#[test]
fn deadline_ends_the_process_on_the_node() {
    let joined = Joined::new();
    let _node = joined.node(&[]);
    let input = json!({"command": "sleep 4711.25"}).to_string();
    let mut call = Process::spawn(&mut quiet(joined.gateway.command(&[
        "call",
        "--deadline",
        "3s",
        "laptop__Bash",
        &input,
    ])));
    eventually("the command runs", SOON, || runs("sleep 4711.25"));
    assert_eq!(call.child.wait().unwrap().code(), Some(124));
    eventually("the command has ended", SOON, || !runs("sleep 4711.25"));
}

#[test]
fn background_processes_outlive_the_node_and_their_exit_is_reported() {
    let joined = Joined::new();
    let mut node = joined.node(&[]);
    let command = "echo begun; sleep 1.125; echo over; exit 3";
    let started = joined.call("laptop__Bash", &json!({"command": command, "background": true})).json();
    node.terminate(SOON);
    assert!(runs("sleep 1.125"), "it goes on");
    eventually("the command has ended", SOON, || !runs("sleep 1.125"));
    let _node = joined.node(&[]);
    let log = joined.machine.data().join("nodes/laptop/logs/node.log");
    eventually("the gateway has taken the end", SOON, || {
        std::fs::read_to_string(&log).unwrap().contains("processEnded")
    });
    let poll = json!({"action": "poll", "sessionId": started["sessionId"]});
    let polled = joined.call("laptop__Process", &poll).json();
    assert_eq!((&polled["exitCode"], &polled["running"]), (&json!(3), &json!(false)), "{polled}");
    assert!(polled["tail"].as_str().unwrap().contains("begun\nover"), "{polled}");

    joined.call("laptop__Bash", &json!({"command": "sleep 4712.25", "background": true}));
    let stopped = joined.machine.run(&["node", "stop", "--kill"]);
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert!(stopped.stdout.contains("1 background"), "{}", stopped.stdout);
    assert!(!runs("sleep 4712.25"));
}

#[test]
fn stop_kill_ends_and_counts_processes_of_a_stopped_gateway() {
    let world = World::new();
    assert_eq!(world.run(&["node", "stop", "--kill"]).code, 2, "there is nothing here");
    let stop: [&[&str]; 2] = [&["node", "stop", "--kill"], &["node", "stop", "--kill", "--id", "local"]];
    for (args, command) in stop.into_iter().zip(["sleep 4713.25", "sleep 4714.25"]) {
        let (mut gateway, _) = up(&world);
        let started =
            world.run(&["call", "Bash", &json!({"command": command, "background": true}).to_string()]);
        assert_eq!(started.code, 0, "{}", started.stderr);
        let refused = world.run(args);
        assert!(
            refused.code != 0 && refused.stderr.contains("the gateway that owns them is running"),
            "{}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains("cannot end background commands") && runs(command),
            "{}",
            refused.stderr
        );
        gateway.terminate(SOON);
        assert!(runs(command), "it goes on");
        let stopped = world.run(args);
        assert_eq!(stopped.code, 0, "{}", stopped.stderr);
        assert!(stopped.stdout.contains("Ended 1 background process"), "{}", stopped.stdout);
        assert!(!runs(command));
    }
    let none_left = world.run(&["node", "stop", "--kill", "--id", "local"]);
    assert!(none_left.stdout.contains("Ended 0 background processes"), "{}", none_left.stdout);
}

/// A node's own are ended by its name, and what the gateway left is not passed over in silence.
#[test]
fn node_stop_reports_processes_of_a_local_gateway() {
    let world = World::new();
    let (mut gateway, _) = up(&world);
    std::fs::create_dir_all(world.data().join("nodes/laptop")).unwrap();
    let started = json!({"command": "sleep 4715.25", "background": true}).to_string();
    assert_eq!(world.run(&["call", "Bash", &started]).code, 0);
    gateway.terminate(SOON);
    let stopped = world.run(&["node", "stop", "--kill"]);
    let said = format!("{}{}", stopped.stdout, stopped.stderr);
    assert!(said.contains("1 more") && said.contains("--id local") && runs("sleep 4715.25"), "{said}");
    assert_eq!(world.run(&["node", "stop", "--kill", "--id", "local"]).code, 0);
    assert!(!runs("sleep 4715.25"));
}

#[test]
fn unknown_node_id_is_a_usage_error() {
    let world = World::new();
    std::fs::create_dir_all(world.data().join("nodes/laptop")).unwrap();
    for args in [&["node", "status", "--id", "nope"][..], &["node", "stop", "--kill", "--id", "nope"]] {
        let ran = world.run(args);
        assert_eq!((ran.code, &ran.json()["error"]["code"]), (2, &json!("usage")), "{}", ran.stdout);
        assert!(ran.stderr.contains("unknown node \"nope\""), "{}", ran.stderr);
        assert!(ran.stderr.contains("known nodes: laptop"), "{}", ran.stderr);
    }
    assert!(world.run(&["node", "status", "--id", "laptop"]).stdout.contains("not running"));
    assert_eq!(world.run(&["node", "status", "--id", "local"]).code, 2);
}

#[test]
fn limited_node_offers_and_runs_only_its_tools() {
    let joined = Joined::new();
    joined.machine.write("a.txt", "one\n");
    std::fs::write(joined.machine.folder.path().join("outside.txt"), "secret\n").unwrap();
    let _node = joined.node(&["--tools", "Read,Grep", "--contain"]);
    assert_eq!(joined.call("laptop__Read", &json!({"path": "a.txt"})).code, 0);
    assert_ne!(joined.call("laptop__Read", &json!({"path": "../outside.txt"})).code, 0);
    assert_eq!(joined.call("laptop__Bash", &json!({"command": "true"})).code, 2);
    let nodes = joined.gateway.run(&["nodes", "list", "--json"]).json();
    let laptop = nodes.as_array().unwrap().iter().find(|node| node["id"] == "laptop").unwrap();
    assert_eq!(laptop["hostCapabilities"], json!(["filesystem.read", "text.search"]));
    assert_eq!(laptop["toolCapabilities"], json!({"Grep": ["text.search"], "Read": ["filesystem.read"]}));
}

#[test]
fn unconnected_node_retries_and_stops_at_once() {
    let world = World::new();
    let mut node = Process::spawn(
        quiet(world.command(&["node", "--gateway", "http://127.0.0.1:1", "--id", "alone"]))
            .env("GANTRY_TOKEN", "gtn_x"),
    );
    eventually("the first attempt has failed", SOON, || {
        world.run(&["node", "status"]).stdout.contains("last error")
    });
    let took = node.terminate(SOON);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(node.child.wait().unwrap().code(), Some(0));
    let logs = world.run(&["node", "logs", "-n", "1"]).json();
    assert_eq!((&logs["event"], &logs["nodeId"]), (&json!("stopped"), &json!("alone")));
}

#[test]
fn invalid_arguments_are_reported_before_start() {
    let world = World::new();
    let token = world.write("token", "gtn_secret");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
    let check = |args: &[&str], reported: &str| {
        let ran = world.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(reported) && !ran.stderr.contains("gtn_secret"),
            "{args:?}: {}",
            ran.stderr
        );
    };
    let file = token.to_str().unwrap();
    let good = "http://127.0.0.1:1";
    check(&["node", "--gateway", good], "--id");
    check(&["node", "--id", "a"], "--gateway");
    check(&["node", "--gateway", good, "--id", "A"], "is not a valid node id");
    check(&["node", "--gateway", good, "--id", "a"], "token is missing");
    check(&["node", "--gateway", good, "--id", "a", "--token-file", file], "chmod 600");
    check(&["node", "--gateway", "ws://10.0.0.1:1", "--id", "a"], "not encrypted");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let with = |more: &[&'static str]| {
        let base = ["node", "--gateway", good, "--id", "a", "--token-file", file];
        base.into_iter().chain(more.iter().copied()).collect::<Vec<&str>>()
    };
    check(&with(&["--tools", "Raed"]), "did you mean Read?");
    check(&with(&["--workspace", "/nonexistent"]), "workspace");
    let install = ["node", "install", "--print", "--gateway", good, "--id", "a", "--token-file", file];
    check(&install.iter().copied().chain(["--tools", "Raed"]).collect::<Vec<_>>(), "did you mean Read?");
    check(&["node", "install", "--print", "--gateway", good, "--id", "a"], "token is missing");
    check(&["node", "status", "--id", "../up"], "is not a valid node id");
}

#[test]
fn service_file_has_no_token_and_keeps_background_processes() {
    let world = World::new();
    let token = world.write("token", "gtn_secret");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let file = token.to_str().unwrap();
    let args =
        ["node", "install", "--print", "--gateway", "http://127.0.0.1:1", "--id", "a", "--token-file", file];
    let shown = world.run(&args);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("KillMode=process") && shown.stdout.contains(file), "{}", shown.stdout);
    assert!(!shown.stdout.contains("gtn_secret"));
    assert!(!world.folder.path().join(".config/systemd").exists(), "it was only shown");
}

#[test]
fn week_old_part_files_are_removed_without_a_gateway() {
    let world = World::new();
    let part = |transfer: &str, age: &str| {
        let part = world.write(&format!(".gantry-{transfer}.part"), "some bytes");
        let records = world.data().join("parts/gone-0123").join(transfer);
        std::fs::create_dir_all(&records).unwrap();
        let record = records.join(transfer);
        std::os::unix::fs::symlink(&part, &record).unwrap();
        for path in [&part, &record] {
            let touched = Command::new("touch").args(["-h", "-d", age]).arg(path).status().unwrap();
            assert!(touched.success());
        }
        part
    };
    let (old, young) = (part("old", "8 days ago"), part("young", "6 days ago"));
    std::fs::set_permissions(world.data(), PermissionsExt::from_mode(0o700)).unwrap();
    let args = ["node", "--gateway", "http://127.0.0.1:1", "--id", "a"];
    let mut command = quiet(world.command(&args));
    let node = Process::spawn(command.env("GANTRY_TOKEN", "gtn_x"));
    eventually("the old one goes", SOON, || !old.exists());
    drop(node);
    assert!(young.exists());
}

/// A service manager that fails when it is asked for one word; what it was asked is in `asked`.
fn manager_failing_at(world: &World, word: &str) -> String {
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> \"$HOME/asked\"\ncase \"$*\" in *{word}*) echo 'it is broken' >&2; exit 1;; esac\n"
    );
    let program = world.write("bin/systemctl", &script);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", program.parent().unwrap().display())
}

#[test]
fn failed_service_install_is_rolled_back() {
    for (fails_at, reported) in [
        ("show-environment", "this user has no systemd session here (it is broken)"),
        ("daemon-reload", "cannot start the service; it was not installed"),
        ("enable", "`systemctl --user enable gantry-node-a.service` failed: it is broken"),
        ("restart", "`systemctl --user restart gantry-node-a.service` failed: it is broken"),
        ("nothing-at-all", ""),
    ] {
        let world = World::new();
        let token = world.write("token", "gtn_secret");
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
        let path = manager_failing_at(&world, fails_at);
        let run = |args: &[&str]| world.run_with(args, &[("PATH", &path)]);
        let file = token.to_str().unwrap();
        let ran =
            run(&["node", "install", "--gateway", "http://127.0.0.1:1", "--id", "a", "--token-file", file]);
        let unit = world.folder.path().join(".config/systemd/user/gantry-node-a.service");
        let asked = std::fs::read_to_string(world.folder.path().join("asked")).unwrap();
        if reported.is_empty() {
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let said = std::fs::read_to_string(&unit).unwrap();
            assert!(said.contains("RestartPreventExitStatus=5\n"), "{said}");
            std::fs::create_dir_all(world.data().join("nodes/a")).unwrap();
            assert!(run(&["node", "status"]).stdout.contains("installed"));
            assert_eq!(run(&["node", "uninstall"]).code, 0);
        } else {
            assert!(ran.code == 1 && ran.stderr.contains(reported), "{fails_at}: {}", ran.stderr);
            let undone = asked.contains("disable --now gantry-node-a.service");
            assert_eq!(undone, fails_at != "show-environment", "{asked}");
        }
        assert!(!unit.exists(), "{fails_at}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let world = World::new();
    let token = world.write("token with spaces", "gtn_secret");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let file = token.to_str().unwrap();
    let args =
        ["node", "install", "--print", "--gateway", "http://127.0.0.1:1", "--id", "a", "--token-file", file];
    let unit = world.write("gantry-node-a.service", &world.run(&args).stdout);
    let checked = Command::new("systemd-analyze")
        .args(["verify", "--user", unit.to_str().unwrap()])
        .env("XDG_RUNTIME_DIR", world.folder.path())
        .output()
        .expect("systemd-analyze is needed for this test");
    let said = String::from_utf8_lossy(&checked.stderr);
    let about_ours: Vec<&str> = said.lines().filter(|line| line.contains("gantry-node-a")).collect();
    assert!(about_ours.is_empty(), "{said}");
}

#[test]
fn second_process_replaces_the_first_which_reports_it() {
    let joined = Joined::new();
    let said = joined.machine.folder.path().join("said");
    let mut first = joined.machine.command(&joined.args(&[]));
    first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
    let mut first = Process::spawn(&mut first);
    eventually("the first is connected", SOON, || joined.machine.run(&["node", "status"]).code == 0);
    let other = World::new();
    other.write("a.txt", "the other machine\n");
    let second = Process::spawn(&mut quiet(other.command(&joined.args(&[]))));
    eventually("the second is connected", SOON, || other.run(&["node", "status"]).code == 0);
    let reported = "another process with this node's id and token has taken its place";
    eventually("the first says so", SOON, || std::fs::read_to_string(&said).unwrap().contains(reported));
    let status = joined.machine.run(&["node", "status"]);
    assert!(status.code != 0 && status.stdout.contains(reported), "{}", status.stdout);
    let logs = joined.machine.run(&["node", "logs"]).stdout;
    assert!(logs.contains(reported), "{logs}");
    assert!(first.child.try_wait().unwrap().is_none(), "it waits");
    let read = joined.call("laptop__Read", &json!({"path": "a.txt"}));
    assert_eq!(read.json()["content"], "1\tthe other machine", "{}", read.stderr);
    drop(second);
}

#[test]
fn renamed_node_keeps_its_background_processes() {
    goes_on_under("desk", |_| ());
}

#[test]
fn twice_renamed_node_keeps_its_background_processes() {
    goes_on_under("office", |joined| {
        let renamed = joined.gateway.run(&["nodes", "rename", "desk", "office"]);
        assert_eq!(renamed.code, 0, "{}", renamed.stderr);
    });
}

#[test]
fn renamed_node_does_not_adopt_processes_of_another_gateways_node() {
    let joined = Joined::new();
    let mut node = joined.node(&[]);
    let command = json!({"command": "sleep 883.7", "background": true});
    let session = joined.call("laptop__Bash", &command).json()["sessionId"].as_str().unwrap().to_owned();
    let theirs = joined.machine.data().join("nodes/desk");
    std::fs::create_dir_all(theirs.join("processes")).unwrap();
    std::fs::write(theirs.join("badge"), "of another gateway").unwrap();
    assert_eq!(joined.gateway.run(&["nodes", "rename", "laptop", "desk"]).code, 0);
    eventually("the node is sent away", SOON, || node.child.try_wait().unwrap().is_some());
    assert!(
        !theirs.join("processes/sessions").join(&session).exists(),
        "that directory belongs to another gateway's node"
    );
    assert_eq!(joined.machine.run(&["node", "stop", "--id", "laptop", "--kill"]).code, 0);
    assert!(!runs("sleep 883.7"));
}

/// Renamed from laptop to desk while it is connected, then what `then` does, and started with the id it has at last.
fn goes_on_under(id: &str, then: impl FnOnce(&Joined)) {
    let joined = Joined::new();
    let mut node = joined.node(&[]);
    let command = "read line; echo got $line";
    let started = joined.call("laptop__Bash", &json!({"command": command, "background": true})).json();
    let session = started["sessionId"].as_str().unwrap().to_owned();
    // Tests run side by side, and each looks for its own.
    let sleep = format!("sleep 884.{}", id.len());
    let other = joined.call("laptop__Bash", &json!({"command": sleep, "background": true})).json();
    assert!(other["sessionId"].is_string(), "{other}");
    // Another node of the same data directory keeps what is its own.
    std::fs::create_dir_all(joined.machine.data().join("nodes/stranger/processes")).unwrap();
    std::fs::write(joined.machine.data().join("nodes/stranger/badge"), "another").unwrap();

    let renamed = joined.gateway.run(&["nodes", "rename", "laptop", "desk"]);
    assert_eq!(renamed.code, 0, "{}", renamed.stderr);
    eventually("the node is sent away", SOON, || node.child.try_wait().unwrap().is_some());
    // Who gets the old id has nothing to do with it, even on this machine.
    let token = joined.gateway.run(&["nodes", "add", "laptop", "--token", "--json"]).json();
    let mut namesake = joined.machine.command(&["node", "--gateway", &joined.url, "--id", "laptop"]);
    namesake.env("GANTRY_TOKEN", token["token"].as_str().unwrap());
    let mut namesake = Process::spawn(&mut quiet(namesake));
    eventually("the namesake is there", SOON, || {
        joined.gateway.run(&["nodes", "show", "laptop"]).stdout.contains("online")
    });
    let listed = joined.call("laptop__Process", &json!({"action": "list"}));
    assert!(listed.code == 0 && !listed.stdout.contains(&session), "{}", listed.stdout);
    namesake.terminate(SOON);

    then(&joined);
    let process = format!("{id}__Process");
    let args = joined.args_of(id, &[]);
    let mut node = Process::spawn(&mut quiet(joined.machine.command(&args)));
    eventually("it is back", SOON, || joined.gateway.run(&["nodes", "show", id]).stdout.contains("online"));
    let listed = joined.call(&process, &json!({"action": "list"})).stdout;
    assert!(listed.contains(&session) && listed.contains(&sleep), "{listed}");
    let submit = json!({"action": "submit", "sessionId": session, "data": "it"});
    assert_eq!(joined.call(&process, &submit).code, 0);
    eventually("its exit is reported under the new name", SOON, || {
        joined.gateway.run(&["nodes", "show", id]).stdout.contains("ended with 0")
    });
    let log = joined.call(&process, &json!({"action": "log", "sessionId": session})).stdout;
    assert!(log.contains("got it"), "{log}");
    node.terminate(SOON);
    let stopped = joined.machine.run(&["node", "stop", "--id", id, "--kill"]);
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert!(!runs(&sleep), "the new name ends it");
}
