//! Transfers between real processes that are killed on the way.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gantry_testkit::{Random, World, eventually, scaled, seed};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

const LIMIT: Duration = Duration::from_secs(30);

/// A gateway and two nodes, each a process of its own.
struct TwoNodes {
    world: World,
    listen: String,
    gateway: Option<Child>,
    nodes: Vec<NodeProcess>,
}

struct NodeProcess {
    id: &'static str,
    token: String,
    child: Option<Child>,
}

impl TwoNodes {
    fn start() -> TwoNodes {
        TwoNodes::start_in(World::new())
    }

    fn start_in(world: World) -> TwoNodes {
        let mut fleet = TwoNodes { world, listen: "127.0.0.1:0".into(), gateway: None, nodes: Vec::new() };
        fleet.start_gateway();
        for id in ["a", "b"] {
            std::fs::create_dir(fleet.folder(id)).unwrap();
            let added = fleet.world.run(&["nodes", "add", id, "--token", "--json"]).json();
            let token = added["token"].as_str().unwrap().to_owned();
            fleet.nodes.push(NodeProcess { id, token, child: None });
        }
        fleet.start_node(0);
        fleet.start_node(1);
        fleet.wait_for_nodes();
        fleet
    }

    fn wait_for_nodes(&self) {
        eventually("both nodes are online", LIMIT, || {
            self.world.run(&["nodes"]).stdout.matches("online").count() == 3
        });
    }

    fn folder(&self, node: &str) -> PathBuf {
        self.world.folder.path().join(node)
    }

    fn start_gateway(&mut self) {
        let mut command = self.world.command(&["up", "--json", "--listen", &self.listen]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let reported: Value = serde_json::from_str(&line).unwrap();
        self.listen = reported["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        self.gateway = Some(child);
    }

    fn start_node(&mut self, index: usize) {
        let NodeProcess { id, token, .. } = &self.nodes[index];
        let (url, workspace) = (format!("http://{}", self.listen), self.folder(id));
        let mut command: Command = self.world.command(&[
            "node",
            "--gateway",
            &url,
            "--id",
            id,
            "--workspace",
            workspace.to_str().unwrap(),
        ]);
        let child =
            command.env("GANTRY_TOKEN", token).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.nodes[index].child = Some(child);
    }

    fn kill_gateway(&mut self) {
        end(&mut self.gateway);
        self.start_gateway();
    }

    fn kill_node(&mut self, index: usize) {
        end(&mut self.nodes[index].child);
        self.start_node(index);
    }

    fn transfer(&self, source: &str, destination: &str) -> Child {
        let mut command = self.world.command(&["transfer", source, destination]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn names(&self, node: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder(node)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// As `kill -9` does.
fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for TwoNodes {
    fn drop(&mut self) {
        end(&mut self.gateway);
        self.nodes.iter_mut().for_each(|node| end(&mut node.child));
    }
}

fn finished(mut child: Child) -> (i32, String, String) {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), stdout, stderr)
}

#[test]
fn transfer_survives_kills_of_nodes_and_gateway() {
    let seed = seed();
    let mut random = Random::from_seed(seed);
    let (wanted, size) = scaled((100, 1024 * MIB), (5, 192 * MIB));
    let mut fleet = TwoNodes::start();
    let block: Vec<u8> = (0..MIB + 7).map(|_| random.below(256) as u8).collect();
    let content: Vec<u8> = block.iter().copied().cycle().take(size).collect();
    std::fs::write(fleet.folder("a").join("large"), &content).unwrap();
    let mut kills = 0;
    while kills < wanted {
        let _ = std::fs::remove_file(fleet.folder("b").join("large"));
        let mut transfer = fleet.transfer("a:large", "b:large");
        let before = kills;
        while kills < wanted && transfer.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(60 + random.below(300) as u64));
            let landed = std::fs::metadata(fleet.folder("b").join("large")).map(|meta| meta.len()).ok();
            assert!(
                landed.is_none_or(|length| length == size as u64),
                "a part has the final name, seed {seed}"
            );
            match random.below(3) {
                0 => {
                    fleet.kill_gateway();
                    // Nodes wait longer with each loss; a fresh one does not.
                    fleet.kill_node(0);
                    fleet.kill_node(1);
                }
                1 => fleet.kill_node(0),
                _ => fleet.kill_node(1),
            }
            kills += 1;
        }
        let (code, stdout, stderr) = finished(transfer);
        // On a busy machine the first kill may come before the command has found the gateway. A transfer that survived
        // one kill has begun, so it gets no such excuse.
        if kills == before + 1 && stdout.contains("no gateway is running") {
            continue;
        }
        assert_eq!(code, 0, "{stdout} {stderr}, seed {seed}");
        let reported: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(reported["bytesTransferred"], json!(size));
        assert!(std::fs::read(fleet.folder("b").join("large")).unwrap() == content, "seed {seed}");
        assert_eq!(fleet.names("b"), ["large"], "seed {seed}");
    }
}

#[test]
fn transfer_command_reports_its_outcome() {
    let fleet = TwoNodes::start();
    std::fs::write(fleet.folder("a").join("note.md"), "# hello\n").unwrap();
    let (code, stdout, stderr) = finished(fleet.transfer("a:note.md", "gsv:notes/note.md"));
    assert_eq!(code, 0, "{stderr}");
    let reported: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        reported,
        json!({"source": "a:note.md", "destination": "gsv:notes/note.md", "bytesTransferred": 8, "mime": "text/markdown"})
    );
    // `local` means the machine that runs the command.
    let (code, _, stderr) = finished(fleet.transfer("gsv:notes/note.md", "local:here.md"));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(std::fs::read_to_string(fleet.world.workspace().join("here.md")).unwrap(), "# hello\n");
    for (source, destination, code) in [
        ("a:none", "b:x", 1),
        ("nonsense", "b:x", 1),
        ("a:note.md", "a:note.md", 1),
        ("a:note.md", &format!("local:{}", fleet.world.data().join("x").display()), 3),
    ] {
        let (found, stdout, _) = finished(fleet.transfer(source, destination));
        assert_eq!(found, code, "{source} {destination}: {stdout}");
    }
    drop(fleet);
    let world = World::new();
    assert_eq!(world.run(&["transfer", "a:x", "b:x"]).code, 4);
}

/// Rules of a gateway whose nodes, started before it had them, know nothing of them.
const RULES: &str = r#"
[[policy.rules]]
name = "no-writing-on-b"
tool = "b__Write"
decision = "deny"

[[policy.rules]]
name = "no-secrets"
tool = "Read"
decision = "deny"
when = [{ path = "path", contains = "secret" }]

[[policy.rules]]
name = "nothing-into-storage"
tool = "gsv__WriteFile"
decision = "deny"
agents = ["main"]
when = [{ path = "path", startsWith = "closed" }]

[[policy.rules]]
name = "nothing-out-of-storage"
tool = "gsv__ReadFile"
decision = "deny"
when = [{ path = "path", startsWith = "private" }]

[agents.bot]
tools = "all"
autonomy = "autonomous"
"#;

#[test]
fn gateway_rules_apply_to_both_ends_of_a_transfer() {
    let mut fleet = TwoNodes::start();
    for (path, text) in [("plain", "x"), ("secret.txt", "s"), ("tree/a", "x"), ("tree/secret.txt", "s")] {
        let path = fleet.folder("a").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for destination in ["gsv:private/x", "gsv:open/x"] {
        assert_eq!(finished(fleet.transfer("a:plain", destination)).0, 0);
    }
    fleet.world.configure(RULES);
    fleet.kill_gateway();
    fleet.wait_for_nodes();
    let before = fleet.names("b");
    for (source, destination, rule) in [
        ("a:plain", "b:x", "no-writing-on-b"),
        ("gsv:open/x", "b:x", "no-writing-on-b"),
        ("local:a/plain", "b:x", "no-writing-on-b"),
        ("a:secret.txt", "gsv:open/y", "no-secrets"),
        ("a:tree", "gsv:open/y", "no-secrets"),
        ("a:tree", "a:tree2", "no-secrets"),
        ("a:plain", "gsv:closed/y", "nothing-into-storage"),
        ("gsv:open/x", "gsv:closed/y", "nothing-into-storage"),
        ("gsv:open", "gsv:closed/y", "nothing-into-storage"),
        ("gsv:private/x", "a:x", "nothing-out-of-storage"),
        ("gsv:private", "a:x", "nothing-out-of-storage"),
        ("gsv:private/x", "gsv:open/y", "nothing-out-of-storage"),
    ] {
        let (code, stdout, stderr) = finished(fleet.transfer(source, destination));
        assert_eq!(code, 3, "{source} → {destination}: {stdout} {stderr}");
        assert!(
            format!("{stdout}{stderr}").contains(&format!("(rule {rule})")),
            "{source}: {stdout} {stderr}"
        );
    }
    let input = json!({"source": "a:plain", "destination": "b:x"}).to_string();
    let by_agent = fleet.world.run(&["call", "gsv__Transfer", &input, "--agent", "bot"]);
    assert_eq!(by_agent.code, 3, "{} {}", by_agent.stdout, by_agent.stderr);
    assert_eq!(fleet.names("b"), before);
    assert_eq!(fleet.names("a"), ["plain", "secret.txt", "tree"]);
    for (source, destination) in [("a:plain", "gsv:open/z"), ("gsv:open", "a:got"), ("b:x", "a:y")] {
        let (code, _, stderr) = finished(fleet.transfer(source, destination));
        assert_eq!(code, i32::from(source == "b:x"), "{source}: {stderr}");
    }
}

#[test]
fn transfer_fails_when_its_node_is_revoked() {
    for (word, waits) in
        [("revoke", Duration::ZERO), ("revoke", Duration::from_secs(2)), ("forget", Duration::from_secs(2))]
    {
        not_waited_for(word, waits);
    }
}

/// `waits` is how long the transfer waits before it is over for the node.
fn not_waited_for(word: &str, waits: Duration) {
    let mut fleet = TwoNodes::start();
    // So much that it cannot have arrived by the time we look: holes cost nothing here, and minutes on the way.
    let large = std::fs::File::create(fleet.folder("a").join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let mut transfer = fleet.transfer("a:large", "b:large");
    let began = Instant::now();
    while !fleet.names("b").iter().any(|name| name.starts_with('.')) {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The destination is away in the middle of it, and then for good.
    end(&mut fleet.nodes[1].child);
    assert!(transfer.try_wait().unwrap().is_none(), "it waits for a node that may come back");
    std::thread::sleep(waits);
    let revoked = Instant::now();
    assert_eq!(fleet.world.run(&["nodes", word, "b"]).code, 0);
    while transfer.try_wait().unwrap().is_none() {
        if revoked.elapsed() > Duration::from_secs(10) {
            end(&mut Some(transfer));
            panic!("it is still waited for after {word}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, said, errors) = finished(transfer);
    assert_eq!(code, 1, "{said} {errors}");
    let why = if word == "revoke" { "revoked" } else { "forgotten" };
    assert!(said.contains(why), "{said} {errors}");
    assert!(fleet.names("b").iter().any(|name| name.ends_with(".part")), "it was away");
    // A node whose token is refused ends, and leaves nothing of what had come.
    fleet.start_node(1);
    assert_eq!(ended_by_itself(&mut fleet.nodes[1].child), Some(5));
    assert_eq!(fleet.names("b"), [""; 0]);
}

/// With which code a node ended that nobody stopped.
fn ended_by_itself(child: &mut Option<Child>) -> Option<i32> {
    let mut child = child.take().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    end(&mut Some(child));
    panic!("the node goes on");
}

#[test]
fn revoked_connected_node_leaves_no_part_file_and_exits() {
    for word in ["revoke", "forget", "renew"] {
        let mut fleet = TwoNodes::start();
        let large = std::fs::File::create(fleet.folder("a").join("large")).unwrap();
        large.set_len(1 << 40).unwrap();
        let transfer = fleet.transfer("a:large", "b:deep/large");
        let part = fleet.folder("b").join("deep");
        let until = Instant::now() + Duration::from_secs(20);
        while std::fs::read_dir(&part).map_or(0, Iterator::count) == 0 {
            assert!(Instant::now() < until, "nothing arrives");
            std::thread::sleep(Duration::from_millis(5));
        }
        let how: &[&str] = if word == "renew" { &["--token"] } else { &[] };
        assert_eq!(fleet.world.run(&[&["nodes", word, "b"], how].concat()).code, 0);
        assert_eq!(ended_by_itself(&mut fleet.nodes[1].child), Some(5), "{word}");
        let parts = std::fs::read_dir(&part).unwrap().count();
        if word == "renew" {
            // It is expected back with its new token, and goes on from what it has.
            assert_eq!(parts, 1);
            end(&mut Some(transfer));
        } else {
            assert_eq!(finished(transfer).0, 1, "{word}");
            assert_eq!(parts, 0, "{word}");
        }
    }
}

#[test]
fn tilde_in_an_endpoint_means_the_home_directory() {
    let fleet = TwoNodes::start();
    std::fs::write(fleet.world.folder.path().join("in-the-home"), "hello").unwrap();
    let sent = fleet.world.run(&["transfer", "local:~/in-the-home", "gsv:copy"]);
    assert_eq!(sent.code, 0, "{} {}", sent.stdout, sent.stderr);
    let back = fleet.world.run(&["transfer", "gsv:copy", "local:~/back"]);
    assert_eq!(back.code, 0, "{} {}", back.stdout, back.stderr);
    assert_eq!(std::fs::read_to_string(fleet.world.folder.path().join("back")).unwrap(), "hello");
}

/// As if the machine had lost its power: who waits does not get to call it off.
fn cut_off(fleet: &mut TwoNodes, waiting: Child) {
    end(&mut fleet.gateway);
    end(&mut Some(waiting));
}

/// What the audit log says of transfers: who, in which phase, what came of it, and why.
fn transfers_on_record(fleet: &TwoNodes) -> Vec<String> {
    let listed = fleet.world.run(&["audit", "--json", "--tool", "gsv__Transfer"]).json();
    let transfers = listed.as_array().unwrap().iter().cloned();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = |record: Value| {
        ["principal", "phase", "status", "error"].map(|name| text(&record[name])).join(" ").trim().to_owned()
    };
    transfers.map(shown).collect()
}

/// Somebody elsewhere who asks for a transfer, and waits.
fn asking(fleet: &TwoNodes, elsewhere: &World, token: &str, words: &[&str]) -> Child {
    let mut command = elsewhere.command(&[&["call", "gsv__Transfer"], words].concat());
    command.env("GANTRY_GATEWAY", format!("http://{}", fleet.listen)).env("GANTRY_TOKEN", token);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn shared_transfer_outlives_the_token_that_started_it() {
    let world = World::new();
    world.configure("[[policy.rules]]\nname = \"all\"\ntool = \"*\"\ndecision = \"allow\"\n");
    let mut fleet = TwoNodes::start_in(world);
    std::fs::File::create(fleet.folder("a").join("some")).unwrap().set_len(512 << 20).unwrap();
    let token = |name: &str| {
        let added = fleet.world.run(&["tokens", "add", name, "--agents", "main", "--json"]).json();
        added["token"].as_str().unwrap().to_owned()
    };
    let (first, second) = (token("first"), token("second"));
    let elsewhere = World::new();
    let ends = json!({"source": "a:some", "destination": "b:some"}).to_string();
    let words = [ends.as_str(), "--agent", "main"];
    let waiting = asking(&fleet, &elsewhere, &first, &words);
    eventually("something arrives", LIMIT, || fleet.names("b").iter().any(|name| name.ends_with(".part")));
    end(&mut fleet.nodes[1].child);
    cut_off(&mut fleet, waiting);
    fleet.start_gateway();
    let mut other = asking(&fleet, &elsewhere, &second, &words);
    eventually("the other waits", LIMIT, || transfers_on_record(&fleet).len() == 3);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fleet.world.run(&["tokens", "revoke", "first"]).code, 0);
    fleet.start_node(1);
    eventually("it arrives", LIMIT, || fleet.names("b") == ["some"]);
    assert_eq!(other.wait().unwrap().code(), Some(0));
}

#[test]
fn resumed_transfer_is_audited_and_ends_with_its_token() {
    let mut fleet = TwoNodes::start();
    let sparse = |name: &str, size: u64| {
        std::fs::File::create(fleet.folder("a").join(name)).unwrap().set_len(size).unwrap();
    };
    sparse("some", 512 << 20);
    sparse("endless", 1 << 40);
    let arrives = |fleet: &TwoNodes| fleet.names("b").iter().any(|name| name.ends_with(".part"));

    let waiting = fleet.transfer("a:some", "b:some");
    eventually("something arrives", LIMIT, || arrives(&fleet));
    cut_off(&mut fleet, waiting);
    fleet.start_gateway();
    eventually("the rest arrives", LIMIT, || fleet.names("b") == ["some"]);
    eventually("its end is on record", LIMIT, || transfers_on_record(&fleet).len() >= 3);
    assert_eq!(
        transfers_on_record(&fleet),
        ["operator begin", "operator begin resumed", "operator end success"]
    );

    let token = fleet.world.run(&["tokens", "add", "ci", "--json"]).json();
    let elsewhere = World::new();
    let ends = json!({"source": "a:endless", "destination": "b:endless"}).to_string();
    let waiting = asking(&fleet, &elsewhere, token["token"].as_str().unwrap(), &[&ends]);
    eventually("something arrives", LIMIT, || arrives(&fleet));
    end(&mut fleet.nodes[1].child);
    cut_off(&mut fleet, waiting);
    fleet.start_gateway();
    assert_eq!(fleet.world.run(&["tokens", "revoke", "ci"]).code, 0);
    let last = "client:ci end failure the token that started the transfer is no longer valid";
    eventually("its end is on record", LIMIT, || {
        transfers_on_record(&fleet).last().is_some_and(|line| line == last)
    });
    fleet.start_node(1);
    eventually("nothing stays of it", LIMIT, || fleet.names("b") == ["some"]);
}

/// As Ctrl-C does.
fn interrupt(child: &Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::INT)
        .unwrap();
}

#[test]
fn failed_cancel_is_reported_and_repeatable() {
    let mut fleet = TwoNodes::start();
    let large = std::fs::File::create(fleet.folder("a").join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let mut transfer = fleet.transfer("a:large", "b:large");
    eventually("something arrives", LIMIT, || !fleet.names("b").is_empty());
    let part = fleet.names("b");
    end(&mut fleet.gateway);
    let mut reported = String::new();
    let mut stderr = BufReader::new(transfer.stderr.take().unwrap());
    while !reported.contains("the connection to the gateway was lost") {
        assert!(stderr.read_line(&mut reported).unwrap() > 0, "{reported}");
    }
    interrupt(&transfer);
    let mut said = String::new();
    transfer.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(transfer.wait().unwrap().code(), Some(4), "{said} {reported}");
    for part in ["was not cancelled", "will resume it when it is back", "cannot reach", "same command again"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    fleet.start_gateway();
    // Nodes wait longer with each loss; a fresh one does not.
    fleet.kill_node(0);
    fleet.kill_node(1);
    fleet.wait_for_nodes();
    let length = || std::fs::metadata(fleet.folder("b").join(&part[0])).map_or(0, |meta| meta.len());
    let before = length();
    eventually("it goes on", LIMIT, || length() > before);
    let again = fleet.transfer("a:large", "b:large");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(fleet.names("b"), part, "the same transfer, not another one");
    interrupt(&again);
    let (code, said, errors) = finished(again);
    assert_ne!(code, 0, "{said} {errors}");
    eventually("nothing stays", LIMIT, || fleet.names("b").is_empty());
}
