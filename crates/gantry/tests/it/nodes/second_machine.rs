//! A second machine, in a network of its own, joins with one line over TLS that the gateway set up by itself.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_net::{GatewayUrl, JoinAddress, JoinCode, KeyPin, Proof};
use gantry_store::{DataDir, Database, InviteKnown};
use gantry_testkit::networks::{NEAR, OtherMachine, in_a_network_of_its_own};
use gantry_testkit::{Gateway, Process, SOON, World, eventually};
use serde_json::{Value, json};

const LISTEN: &str = "0.0.0.0:7770";

/// Returns what `gantry nodes add` or `renew` prints as JSON.
fn invited(world: &World, verb: &str, id: &str) -> Value {
    let ran = world.run(&["nodes", verb, id, "--json"]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    ran.json()
}

fn code(world: &World, id: &str) -> String {
    invited(world, "add", id)["code"].as_str().unwrap().to_owned()
}

fn is_online(world: &World, id: &str) -> bool {
    let nodes: Value =
        serde_json::from_str(&world.run(&["nodes", "list", "--json"]).stdout).unwrap_or_default();
    nodes.as_array().is_some_and(|nodes| nodes.iter().any(|node| node["id"] == id && node["online"] == true))
}

/// Joins and runs the node in the foreground, and waits until the gateway knows it.
fn joined(gateway: &World, machine: &OtherMachine, id: &str) -> Process {
    let node = Process::spawn(quiet(&mut machine.command(&["join", &code(gateway, id), "--no-service"])));
    eventually("the node is online", SOON, || is_online(gateway, id));
    node
}

fn started(machine: &OtherMachine) -> Process {
    Process::spawn(quiet(&mut machine.command(&["node"])))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn last_error(machine: &OtherMachine) -> String {
    let (_, status) = machine.run(&["node", "status", "--json"]);
    let status: Value = serde_json::from_str(&status).unwrap_or_default();
    status["state"]["lastError"].as_str().unwrap_or_default().to_owned()
}

/// Returns whether the machine has kept anything of a failed attempt.
fn keeps_nothing(machine: &OtherMachine) -> bool {
    !machine.world.data().join("nodes/laptop/token").exists()
}

#[test]
fn machine_joins_with_one_line_and_its_tools_run() {
    in_a_network_of_its_own("nodes::second_machine::machine_joins_with_one_line_and_its_tools_run", || {
        let machine = OtherMachine::connected();
        let world = World::new();
        let up = Gateway::start_at(&world, LISTEN);
        assert!(up.url.starts_with("https://"), "{}", up.url);
        let offer = invited(&world, "add", "laptop");
        assert_eq!(offer["addresses"], json!([format!("https://{NEAR}:7770")]));
        let code = offer["code"].as_str().unwrap();

        // The line for a machine without Gantry: the downloaded program is this one.
        let download = format!(
            "curl -fsSk --pinnedpubkey '{}' -H 'gantry-join: {code}' {} -o gantry && chmod +x gantry && ./gantry --version",
            offer["key"].as_str().unwrap(),
            offer["program"].as_str().unwrap(),
        );
        let folder = machine.world.workspace();
        let downloaded = machine
            .inside(Command::new("sh").args(["-ec", &download]).current_dir(&folder))
            .output()
            .unwrap();
        assert!(downloaded.status.success(), "{downloaded:?}");
        let (own, theirs) = (gantry_testkit::program(), folder.join("gantry"));
        assert!(Command::new("cmp").arg(own).arg(&theirs).status().unwrap().success());
        let pinned_to_another = download.replacen("sha256//", "sha256//A", 1);
        let refused = machine
            .inside(Command::new("sh").args(["-ec", &pinned_to_another]).current_dir(&folder))
            .output();
        assert!(!refused.unwrap().status.success(), "curl pins the key");
        let without_code = format!("curl -fsSk https://{NEAR}:7770/join/gantry -o other");
        let refused =
            machine.inside(Command::new("sh").args(["-ec", &without_code]).current_dir(&folder)).output();
        assert!(!refused.unwrap().status.success(), "only a code gets the program");

        // The download did not use the code up.
        let mut join = machine.command(&["join", code, "--no-service"]);
        let node = Process::spawn(quiet(&mut join));
        eventually("the node is online", SOON, || is_online(&world, "laptop"));
        let ran = world.run(&["call", "laptop__Bash", r#"{"command": "pwd"}"#, "--json"]);
        assert!(ran.stdout.contains(folder.to_str().unwrap()), "{} {}", ran.stdout, ran.stderr);
        let kept = machine.world.data().join("nodes/laptop");
        for file in ["token", "joined.json"] {
            let mode = std::fs::metadata(kept.join(file)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{file}");
        }
        drop(node);

        // It starts again without any option, and commands there recognise the gateway by the same key.
        let _node = started(&machine);
        eventually("the node is online again", SOON, || is_online(&world, "laptop"));
        let url = format!("https://{NEAR}:7770");
        let mut list = machine.command(&["nodes", "list", "--json"]);
        let listed = list.envs([("GANTRY_GATEWAY", &url), ("GANTRY_TOKEN", &up.token)]).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
    });
}

#[test]
fn invalid_codes_are_refused_with_a_reason() {
    in_a_network_of_its_own("nodes::second_machine::invalid_codes_are_refused_with_a_reason", || {
        let machine = OtherMachine::connected();
        let world = World::new();
        let _up = Gateway::start_at(&world, LISTEN);
        let refused = |code: &str, exit: i32, reason: &str| {
            let (found, said) = machine.run(&["join", code, "--no-start"]);
            assert_eq!(found, Some(exit), "{reason}: {said}");
            assert!(said.contains(reason), "{reason}: {said}");
            assert!(keeps_nothing(&machine), "{reason}");
        };
        let sound = code(&world, "laptop");
        let parsed = JoinCode::parse(&sound).unwrap();

        let wrong_key = JoinCode { key: Some(KeyPin::of_public_key(b"another")), ..parsed.clone() };
        refused(&wrong_key.to_string(), 4, "has another key");
        let other_id = JoinCode { id: "server".into(), ..parsed.clone() };
        refused(&other_id.to_string(), 3, "this join code is for another node id");
        let guessed = JoinCode { token: [7; 16], ..parsed.clone() };
        refused(&guessed.to_string(), 3, "this gateway does not know the join code");
        refused(&sound[..40], 2, "the join code is damaged");
        refused("hello", 2, "this is not a join code");

        // A code of eleven minutes ago.
        let token = [9; 16];
        let runtime = gantry_testkit::peers::runtime();
        runtime.block_on(async {
            let database = Database::open(&DataDir::new(world.data())).await.unwrap();
            let then = jiff::Timestamp::now().as_millisecond() - 11 * 60 * 1000;
            database.invite_node("late", &[], InviteKnown::IfNew, &token, then).await.unwrap();
            database.close().await;
        });
        let expired = JoinCode { id: "late".into(), token, ..parsed.clone() };
        refused(&expired.to_string(), 3, "this join code has expired");

        // None of these attempts used the code up. It works once.
        let (exit, said) = machine.run(&["join", &sound, "--no-start"]);
        assert_eq!(exit, Some(0), "{said}");
        let thief = World::new();
        let mut replay = machine.inside(&thief.command(&["join", &sound, "--no-start"]));
        let replayed = replay.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&replayed.stderr);
        assert_eq!(replayed.status.code(), Some(3), "{said}");
        assert!(said.contains("this join code was already used"), "{said}");
        assert!(!thief.data().join("nodes/laptop/token").exists());

        // The rate of attempts is limited.
        let guess = |_| {
            let body = json!({"id": "laptop", "code": "AAAA", "nodeToken": "x"}).to_string();
            let url = format!("https://{NEAR}:7770/join/token");
            let mut curl = Command::new("curl");
            curl.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-d", &body, &url]);
            String::from_utf8(machine.inside(&curl).output().unwrap().stdout).unwrap()
        };
        let answers: Vec<String> = (0..25).map(guess).collect();
        assert_eq!(answers.last().map(String::as_str), Some("429"), "{answers:?}");
    });
}

/// A TLS proxy with a key of its own, in front of the gateway. It counts what it could read.
const PROXY: &str = r#"
import socket, ssl, sys, threading
cert, key, read = sys.argv[1:4]
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); server.load_cert_chain(cert, key)
client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); client.check_hostname = False; client.verify_mode = ssl.CERT_NONE
listener = socket.create_server(("10.9.0.1", 7771))
def pump(a, b, log):
    try:
        while True:
            data = a.recv(65536)
            if not data: break
            if log: open(read, "ab").write(data)
            b.sendall(data)
    except OSError: pass
    finally:
        try: b.shutdown(socket.SHUT_WR)
        except OSError: pass
def serve(raw):
    try:
        near = server.wrap_socket(raw, server_side=True)
        far = client.wrap_socket(socket.create_connection(("127.0.0.1", 7770)))
    except (OSError, ssl.SSLError): return
    threading.Thread(target=pump, args=(far, near, False), daemon=True).start()
    pump(near, far, True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

#[test]
fn man_in_the_middle_reads_nothing() {
    in_a_network_of_its_own("nodes::second_machine::man_in_the_middle_reads_nothing", || {
        let machine = OtherMachine::connected();
        let world = World::new();
        let _up = Gateway::start_at(&world, LISTEN);
        let folder = world.folder.path();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let made = rcgen::generate_simple_self_signed(vec![NEAR.to_owned()]).unwrap();
        std::fs::write(path("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let mut proxy = Command::new("python3");
        proxy.args(["-c", PROXY, &path("cert.pem"), &path("key.pem"), &path("read")]);
        let _proxy = Process::spawn(&mut proxy);
        // It works as a proxy: whoever does not check the key is read.
        let trusting = format!("https://{NEAR}:7771/health");
        eventually("the proxy passes requests on", SOON, || {
            let mut curl = Command::new("curl");
            let answer = machine.inside(curl.args(["-fsk", &trusting])).output().unwrap();
            String::from_utf8_lossy(&answer.stdout).contains("\"ok\"")
        });
        assert!(std::fs::metadata(path("read")).unwrap().len() > 0);
        std::fs::remove_file(path("read")).unwrap();

        let sound = JoinCode::parse(&code(&world, "laptop")).unwrap();
        let url = GatewayUrl::parse(&format!("https://{NEAR}:7771")).unwrap();
        let addresses = vec![JoinAddress { url, proof: Proof::Key }];
        let intercepted = JoinCode { addresses, ..sound.clone() };
        let (exit, said) = machine.run(&["join", &intercepted.to_string(), "--no-start"]);
        assert_eq!(exit, Some(4), "{said}");
        assert!(said.contains("somebody intercepts the connection"), "{said}");
        assert!(keeps_nothing(&machine) && !std::path::Path::new(&path("read")).exists());

        // The address before the right one is somebody else's: joining goes on.
        let both = intercepted.addresses.iter().chain(&sound.addresses).cloned().collect();
        let both = JoinCode { addresses: both, ..sound };
        let (exit, said) = machine.run(&["join", &both.to_string(), "--no-start"]);
        assert_eq!(exit, Some(0), "{said}");
        let _node = started(&machine);
        eventually("the node is online", SOON, || is_online(&world, "laptop"));
        assert!(!std::path::Path::new(&path("read")).exists(), "no byte reached the proxy");
    });
}

#[test]
fn certificate_may_change_and_the_key_may_not() {
    in_a_network_of_its_own("nodes::second_machine::certificate_may_change_and_the_key_may_not", || {
        let machine = OtherMachine::connected();
        let world = World::new();
        let mut up = Gateway::start_at(&world, LISTEN);
        let _node = joined(&world, &machine, "laptop");
        let certificate = world.data().join("gateway.certificate");
        let before = std::fs::read_to_string(&certificate).unwrap();
        let restart = |up: Gateway, removed: &[&str]| {
            drop(up);
            removed.iter().for_each(|name| std::fs::remove_file(world.data().join(name)).unwrap());
            Gateway::start_at(&world, LISTEN)
        };
        up = restart(up, &["gateway.certificate"]);
        assert_ne!(std::fs::read_to_string(&certificate).unwrap(), before);
        eventually("the node accepts the new certificate", Duration::from_secs(60), || {
            is_online(&world, "laptop")
        });

        let _up = restart(up, &["gateway.key", "gateway.certificate"]);
        eventually("the node refuses the new key", Duration::from_secs(60), || {
            last_error(&machine).contains("a new key that it did not announce")
        });
        assert!(!is_online(&world, "laptop"));
        // The operator lets it join again.
        let again = invited(&world, "renew", "laptop")["code"].as_str().unwrap().to_owned();
        let (exit, said) = machine.run(&["join", &again, "--no-start"]);
        assert_eq!(exit, Some(2), "{said}");
        assert!(said.contains("gantry node stop --id laptop"), "it runs: {said}");
        assert_eq!(machine.run(&["node", "stop"]).0, Some(0));
        let _node = Process::spawn(quiet(&mut machine.command(&["join", &again, "--no-service"])));
        eventually("the node is online", SOON, || is_online(&world, "laptop"));
    });
}

#[test]
fn announced_key_is_adopted_by_every_node_before_it_is_used() {
    in_a_network_of_its_own(
        "nodes::second_machine::announced_key_is_adopted_by_every_node_before_it_is_used",
        || {
            let machine = OtherMachine::connected();
            let world = World::new();
            let mut up = Gateway::start_at(&world, LISTEN);
            let key = || {
                let text = std::fs::read_to_string(world.data().join("gateway.lock")).unwrap();
                let running: Value = serde_json::from_str(&text).unwrap();
                running["key"].as_str().unwrap().to_owned()
            };
            let rotate =
                |more: &[&str]| world.run(&[&["nodes", "rotate-key", "--json"], more].concat()).json();
            let known = || {
                let file = machine.world.data().join("nodes/laptop/joined.json");
                let record: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
                record["keys"].as_array().unwrap().clone()
            };
            let mut node = joined(&world, &machine, "laptop");
            let first = key();
            let rotated = rotate(&[]);
            assert_eq!(
                (&rotated["inUse"], &rotated["adopted"]),
                (&json!(true), &json!(["laptop"])),
                "{rotated}"
            );
            let second = key();
            assert_ne!(second, first);
            assert_eq!(known(), [json!(first), json!(second)]);
            drop(up);
            up = Gateway::start_at(&world, LISTEN);
            eventually("the node comes back", Duration::from_secs(60), || is_online(&world, "laptop"));
            eventually("the old key is forgotten", SOON, || known() == [json!(second)]);

            // A node that is away keeps the old key in use.
            node.terminate(SOON);
            eventually("the node is away", SOON, || !is_online(&world, "laptop"));
            let rotated = rotate(&[]);
            assert_eq!(
                (&rotated["inUse"], &rotated["waiting"]),
                (&json!(false), &json!(["laptop"])),
                "{rotated}"
            );
            assert_eq!(key(), second);
            drop(up);
            let _up = Gateway::start_at(&world, LISTEN);
            assert_eq!(key(), second, "the next key waits across a restart");
            let mut node = started(&machine);
            eventually("the node has made the next key usable", SOON, || key() != second);
            assert_eq!(json!(key()), rotated["key"]);
            eventually("the node stays", SOON, || is_online(&world, "laptop"));

            // Without waiting, the node has to join again.
            node.terminate(SOON);
            let rotated = rotate(&["--now"]);
            assert_eq!(
                (&rotated["inUse"], &rotated["waiting"]),
                (&json!(true), &json!(["laptop"])),
                "{rotated}"
            );
            let _node = started(&machine);
            eventually("the node refuses", SOON, || last_error(&machine).contains("has another key"));
        },
    );
}

#[test]
fn gateway_on_loopback_says_how_to_be_reached_and_makes_no_code() {
    let world = World::new();
    let up = Gateway::start(&world);
    let port = up.address.port();
    let refused = world.run(&["nodes", "add", "laptop"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    for part in [
        format!("listens on 127.0.0.1:{port} only"),
        format!("--listen 0.0.0.0:{port}"),
        "--public-url https://".to_owned(),
        format!("--address http://127.0.0.1:{port}"),
    ] {
        assert!(refused.stderr.contains(&part), "{part}: {}", refused.stderr);
    }
    assert!(!world.run(&["nodes", "list"]).stdout.contains("laptop"), "nothing was added");
    // The other end of a tunnel is on the loopback too.
    let tunnel = up.url.clone();
    let added = world.run(&["nodes", "add", "laptop", "--address", &tunnel, "--json"]).json();
    let machine = World::new();
    let mut join = machine.command(&["join", added["code"].as_str().unwrap(), "--no-service"]);
    let _node = Process::spawn(quiet(&mut join));
    eventually("the node is online", SOON, || is_online(&world, "laptop"));
}

#[test]
fn unencrypted_gateway_needs_consent_on_both_sides() {
    in_a_network_of_its_own("nodes::second_machine::unencrypted_gateway_needs_consent_on_both_sides", || {
        let machine = OtherMachine::connected();
        let world = World::new();
        let log = world.folder.path().join("log");
        let mut command = world.command(&["up", "--listen", LISTEN, "--tls", "off", "--json"]);
        let up = Gateway::spawn(command.stderr(std::fs::File::create(&log).unwrap()));
        assert!(up.url.starts_with("http://"), "{}", up.url);
        assert!(std::fs::read_to_string(&log).unwrap().contains("without TLS"));
        let offer = invited(&world, "add", "laptop");
        assert_eq!((&offer["program"], &offer["key"]), (&Value::Null, &Value::Null), "{offer}");
        let code = offer["code"].as_str().unwrap();
        let (exit, said) = machine.run(&["join", code, "--no-start"]);
        assert_eq!(exit, Some(2), "{said}");
        assert!(said.contains("is not encrypted"), "{said}");
        let _node =
            Process::spawn(quiet(&mut machine.command(&["join", code, "--no-service", "--insecure"])));
        eventually("the node is online", SOON, || is_online(&world, "laptop"));
    });
}

#[test]
fn contradicting_tls_options_are_a_usage_error() {
    let world = World::new();
    let args = ["up", "--tls", "off", "--tls-cert", "a.pem", "--tls-key", "b.pem"];
    let ran = world.run(&args);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("gateway.tls = \"off\" contradicts gateway.tlsCert"), "{}", ran.stderr);
}

/// The configuration of nginx in the guide, with the names and the ports of this test.
#[test]
fn machine_joins_through_the_reverse_proxy_of_the_guide() {
    in_a_network_of_its_own(
        "nodes::second_machine::machine_joins_through_the_reverse_proxy_of_the_guide",
        || {
            let machine = OtherMachine::connected();
            let world = World::new();
            let folder = world.folder.path().to_str().unwrap().to_owned();
            let made = rcgen::generate_simple_self_signed(vec![NEAR.to_owned()]).unwrap();
            std::fs::write(format!("{folder}/fullchain.pem"), made.cert.pem()).unwrap();
            std::fs::write(format!("{folder}/privkey.pem"), made.signing_key.serialize_pem()).unwrap();
            let url = format!("https://{NEAR}");
            let up = Gateway::start_with(&world, "up", &["--public-url", &url]);

            let guide = include_str!("../../../../../docs/machines.md");
            let (_, block) = guide.split_once("```nginx\n").unwrap();
            let (server, _) = block.split_once("```").unwrap();
            let server = server
                .replace("/etc/letsencrypt/live/gantry.example.com", &folder)
                .replace("gantry.example.com", NEAR)
                .replace("127.0.0.1:7770", &up.address.to_string());
            let config = format!(
                "daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\nevents {{}}\nhttp {{ access_log off; \
                 client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; \
                 uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n{server}}}\n"
            );
            std::fs::write(format!("{folder}/nginx.conf"), config).unwrap();
            let mut nginx = Command::new("/usr/sbin/nginx");
            nginx.args(["-c", &format!("{folder}/nginx.conf"), "-g", "user root;"]);
            let mut nginx = Process::spawn(&mut nginx);

            let offer = invited(&world, "add", "laptop");
            assert_eq!((&offer["addresses"], &offer["key"]), (&json!([format!("{url}:443")]), &Value::Null));
            let authority = machine.world.folder.path().join("ca.pem");
            std::fs::copy(format!("{folder}/fullchain.pem"), &authority).unwrap();
            let code = offer["code"].as_str().unwrap();
            eventually("nginx answers, with a certificate that the machine does not trust", SOON, || {
                machine.run(&["join", code, "--no-start"]).1.contains("authority that is not trusted")
            });
            let join = ["join", code, "--no-service", "--tls-ca", authority.to_str().unwrap()];
            let node = Process::spawn(quiet(&mut machine.command(&join)));
            eventually("the node is online", SOON, || is_online(&world, "laptop"));
            let ran = world.run(&["call", "laptop__Bash", r#"{"command": "echo through nginx"}"#]);
            assert!(ran.stdout.contains("through nginx"), "{} {}", ran.stdout, ran.stderr);
            drop(node);
            let _node = started(&machine);
            eventually("the node is online again", SOON, || is_online(&world, "laptop"));
            nginx.terminate(SOON);
        },
    );
}
