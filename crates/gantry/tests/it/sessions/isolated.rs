//! Shells of agents with `shell.isolated`: their files, their network, the questions about it, and the audit lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, Process, World, eventually, program};
use serde_json::{Value, json};

use super::{Model, call, post, results};

/// A gateway whose agent makes the calls that its user lists as JSON.
pub(super) struct Stage {
    pub(super) model: Model,
    pub(super) world: World,
    pub(super) up: Gateway,
    pub(super) internet: Internet,
}

impl Stage {
    pub(super) fn new(agent: &str) -> Stage {
        let model = Model::deciding(turn);
        let internet = Internet::start();
        // The workspace is the home directory, with credentials and the data directory in it.
        let world = model.world("");
        let home = world.folder.path().canonicalize().unwrap();
        let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
        world.configure(&format!(
            "{config}workspace = {home:?}\nflow = \"off\"\n{agent}\n[egress]\nallow = [\"allowed.example\"]\n[web]\nproxy = \"http://127.0.0.1:{}\"\n",
            internet.port
        ));
        std::fs::create_dir(home.join(".ssh")).unwrap();
        std::fs::write(home.join(".ssh/id_ed25519"), "top secret").unwrap();
        std::fs::write(home.join("ca.pem"), &internet.authority).unwrap();
        let up = Gateway::start(&world);
        Stage { model, world, up, internet }
    }

    fn port(&self) -> &str {
        self.up.url.rsplit(':').next().unwrap().trim_end_matches('/')
    }

    /// Runs shell commands in one session. Returns the results of the calls.
    pub(super) fn run(&self, session: &str, commands: &[&str]) -> Vec<String> {
        let calls: Vec<Value> =
            commands.iter().map(|command| json!(["Bash", {"command": command}])).collect();
        self.calls(session, &json!(calls))
    }

    pub(super) fn calls(&self, session: &str, calls: &Value) -> Vec<String> {
        let reported = post(&self.up, session, &json!({"message": calls.to_string()}), &[]).json();
        assert_eq!(reported["reply"], "done", "{reported}");
        self.results()
    }

    /// The results that the model was sent last.
    pub(super) fn results(&self) -> Vec<String> {
        let last = self.model.server.requests().pop().unwrap();
        let messages = last.body["messages"].as_array().unwrap().clone();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        results.map(|message| message["content"].to_string()).collect()
    }

    /// The audit lines of connections to a host.
    fn connections(&self, host: &str) -> Vec<Value> {
        let lines = self.world.run(&["audit", "--json", "--limit", "500"]).json();
        let is_one = |line: &&Value| line["phase"] == "connection" && line["input"]["host"] == host;
        lines.as_array().unwrap().iter().filter(is_one).cloned().collect()
    }
}

pub(super) fn turn(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let asked = messages.iter().filter(|message| message["role"] == "user").find_map(|message| {
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
        };
        let start = text.find("[[")?;
        serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next()?.ok()
    });
    let calls = asked.unwrap_or_default();
    match calls.get(results(heard)) {
        Some(next) => call(next[0].as_str().unwrap(), next[1].clone()),
        None => Turn::text("done"),
    }
}

/// The operator's own proxy, which leads every host to one TLS server on this machine.
pub(super) struct Internet {
    pub(super) port: u16,
    pub(super) authority: String,
    /// The hosts that were asked for.
    hosts: Arc<Mutex<Vec<String>>>,
    _server: Process,
    _folder: tempfile::TempDir,
}

const TLS_SERVER: &str = r#"
import http.server, ssl, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello over TLS\n"
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
open(sys.argv[3] + ".new", "w").write(str(server.server_port))
import os; os.rename(sys.argv[3] + ".new", sys.argv[3])
server.serve_forever()
"#;

impl Internet {
    pub(super) fn start() -> Internet {
        Internet::serving(TLS_SERVER, &["allowed.example", "unknown.example", "github.com"])
    }

    /// Leads every host to this server, whose certificate has these names. The server gets the files of its certificate
    /// and key, and a file for its port.
    pub(super) fn serving(server: &str, names: &[&str]) -> Internet {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let at = |name: &str| folder.path().join(name);
        let (authority, certificate, key) = certified(names);
        std::fs::write(at("cert.pem"), certificate).unwrap();
        std::fs::write(at("key.pem"), key).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", server]).args([at("cert.pem"), at("key.pem"), at("port")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Process::spawn(&mut command);
        eventually("the TLS server listens", Duration::from_secs(20), || at("port").exists());
        let site: u16 = std::fs::read_to_string(at("port")).unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let hosts = Arc::new(Mutex::new(Vec::new()));
        let heard = hosts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let heard = heard.clone();
                std::thread::spawn(move || forward(client, site, &heard));
            }
        });
        Internet { port, authority, hosts, _server: server, _folder: folder }
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        self.hosts.lock().unwrap().clone()
    }
}

/// Makes an authority, and a certificate for these names with its key.
fn certified(names: Vec<String>) -> (String, String, String) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "the test's authority");
    let root = authority.self_signed(&authority_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    (root, certificate.pem(), key.serialize_pem())
}

/// Answers one CONNECT, and then passes bytes both ways.
fn forward(client: TcpStream, site: u16, hosts: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    hosts.lock().unwrap().push(first.split_whitespace().nth(1).unwrap_or_default().to_owned());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    let server = TcpStream::connect(("127.0.0.1", site)).unwrap();
    (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let mut bytes = [0; 8192];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || copy(back.0, back.1));
    copy(client, server);
}

#[test]
fn home_directory_is_usable_and_credentials_are_hidden() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let home = stage.world.folder.path();
    let results = stage.run(
        "home",
        &[
            "ls -A; echo written > new.txt && cat new.txt",
            "echo ssh:$(ls -A .ssh | wc -l) data:$(ls -A data | wc -l); cat .ssh/id_ed25519 data/operator-token",
            "touch $TMPDIR/x && echo tmp-works; touch /tmp/gantry-isolated-test || echo tmp-refused",
            "echo evil > .bash_profile",
        ],
    );
    assert!(results[0].contains(".ssh") && results[0].contains("written"), "{results:?}");
    assert!(home.join("new.txt").exists());
    assert!(results[1].contains("ssh:0 data:0") && !results[1].contains("top secret"), "{results:?}");
    assert!(results[2].contains("tmp-works") && results[2].contains("tmp-refused"), "{results:?}");
    assert!(results[3].contains("may not create"), "the call warns: {results:?}");
    assert!(!home.join(".bash_profile").exists(), "start files are quarantined");
    // A directory above a covered path cannot be renamed, because its contents would leave their covers.
    std::fs::create_dir_all(home.join(".config/gh")).unwrap();
    std::fs::write(home.join(".config/gh/hosts.yml"), "oauth_token: top secret").unwrap();
    let renames = "mv .config .cfg; cat .cfg/gh/hosts.yml .config/gh/hosts.yml; mv .config/gh .g; cat .g/hosts.yml; \
                   echo new > .config/mine && cat .config/mine";
    let results = stage.run("renames", &[renames]);
    assert!(results[0].contains("new") && !results[0].contains("top secret"), "{results:?}");
    assert!(home.join(".config/gh/hosts.yml").exists(), "{results:?}");
    stage.model.check();
}

#[test]
fn connections_pass_the_proxy_and_are_recorded() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let fetch = "curl -sS --cacert ca.pem https://allowed.example/";
    let results = stage.run("allowed", &[fetch, fetch, "env | grep -i proxy"]);
    assert!(results[0].contains("hello over TLS"), "{results:?}");
    assert!(results[1].contains("untrusted and private"), "the session holds both labels: {results:?}");
    assert!(!results[2].contains(&stage.internet.port.to_string()), "{results:?}");
    assert_eq!(stage.internet.hosts(), ["allowed.example:443"]);

    let connections = stage.connections("allowed.example");
    let [denied, passed] = connections.as_slice() else { panic!("{connections:?}") };
    let (passed, denied) = if passed["status"] == "success" { (passed, denied) } else { (denied, passed) };
    assert_eq!((&passed["status"], &denied["status"]), (&json!("success"), &json!("denied")));
    assert_eq!((&passed["input"]["port"], &passed["agent"]), (&json!(443), &json!("main")));
    assert!(passed["input"]["bytesDown"].as_u64().unwrap() > 500, "{passed}");
    let call = passed["call"].as_str().unwrap();
    let lines = stage.world.run(&["audit", "--json", "--call", call]).json();
    let phases: Vec<&str> =
        lines.as_array().unwrap().iter().map(|line| line["phase"].as_str().unwrap()).collect();
    for phase in ["begin", "connection", "end"] {
        assert!(phases.contains(&phase), "{phases:?}");
    }
    let shown = stage.world.run(&["audit"]).stdout;
    assert!(shown.contains("connection success") && shown.contains("allowed.example"), "{shown}");
    assert!(stage.world.run(&["audit", "verify"]).stdout.contains("intact"));
    stage.model.check();
}

#[test]
fn autonomous_agent_reaches_nothing_else() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let site = stage.internet.port;
    let unknown = "curl -sS --cacert ca.pem https://unknown.example/; curl -sS http://unknown.example/";
    let direct = format!(
        "bash -c 'echo > /dev/tcp/127.0.0.1/{site}' || echo direct-refused; \
         curl -sS -m 5 --noproxy '*' https://allowed.example/ || echo dns-refused; \
         getent hosts allowed.example localhost.localdomain.example || echo lookup-refused"
    );
    let gateway = format!("curl -sS http://host.gantry.internal:{}/health", stage.port());
    let service = format!("curl -sS http://host.gantry.internal:{site}/");
    let results = stage.run("denied", &[unknown, &direct, &gateway, &service]);
    assert!(results[0].contains("CONNECT tunnel failed, response 403"), "{results:?}");
    assert!(results[0].contains("gantry config set egress.allow"), "{results:?}");
    assert!(results[0].contains("the agent is autonomous"), "{results:?}");
    for part in ["direct-refused", "dns-refused", "lookup-refused"] {
        assert!(results[1].contains(part), "{part}: {results:?}");
    }
    assert!(results[2].contains("belongs to Gantry itself"), "{results:?}");
    assert!(results[3].contains("host.gantry.internal is not allowed"), "{results:?}");
    assert_eq!(stage.internet.hosts(), [""; 0], "nothing got out");
    let denied = stage.connections("unknown.example");
    assert_eq!(denied.iter().filter(|line| line["status"] == "denied").count(), 2, "{denied:?}");
    assert_eq!(stage.connections("host.gantry.internal").len(), 2);
    stage.model.check();
}

#[test]
fn server_in_the_background_and_the_next_command_meet() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let serve = "python3 -m http.server 8123 --bind 127.0.0.1";
    let fetch = "curl -sS --retry 50 --retry-delay 1 --retry-connrefused http://127.0.0.1:8123/ca.pem";
    let calls = json!([["Bash", {"command": serve, "background": true}], ["Bash", {"command": fetch}]]);
    let results = stage.calls("server", &calls);
    assert!(results[1].contains("BEGIN CERTIFICATE"), "{results:?}");
    let elsewhere = stage.run("other", &["curl -sS http://127.0.0.1:8123/ca.pem"]);
    assert!(
        !elsewhere[0].contains("BEGIN CERTIFICATE"),
        "another session has another network: {elsewhere:?}"
    );
    stage.model.check();
}

#[test]
fn person_is_asked_about_an_unknown_host_once() {
    let stage = Stage::new("autonomy = \"guided\"");
    let one = "curl -sS --cacert ca.pem https://unknown.example/";
    let both = format!("{one} & {one} & wait");
    let message = json!([["Bash", {"command": both}], ["exec", {"command": one}]]);
    let body = json!({"message": message.to_string()}).to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| stage.up.ask("POST", "/v1/sessions/main/messages", &[], body.as_bytes()));
        answer_questions(&stage);
    });
    let results = stage.results();
    assert_eq!(results[0].matches("hello over TLS").count(), 2, "{results:?}");
    assert!(results[1].contains("the user said no"), "{results:?}");
    assert_eq!(stage.internet.hosts().len(), 2);
    stage.model.check();
}

/// Answers the first question with yes and the second one with no.
fn answer_questions(stage: &Stage) {
    let questions = || stage.up.get("/v1/sessions/main").json()["questions"].clone();
    eventually("the first question", Duration::from_secs(20), || questions()[0].is_object());
    let questions_now = questions();
    assert_eq!(questions_now.as_array().unwrap().len(), 1, "{questions_now}");
    let question = &questions_now[0];
    assert_eq!((&question["rule"], &question["tool"]), (&json!("egress"), &json!("Bash")), "{question}");
    assert_eq!(question["input"], json!({"host": "unknown.example", "port": 443}));
    assert!(stage.internet.hosts().is_empty(), "nothing got out before the answer");
    assert_eq!(stage.world.run(&["sessions", "answer", "main", "yes"]).code, 0);
    // The second call holds both labels, so the first yes does not count for it.
    eventually("the second question", Duration::from_secs(20), || {
        questions()[0]["reason"].as_str().is_some_and(|reason| reason.contains("untrusted and private"))
    });
    assert_eq!(stage.internet.hosts().len(), 2, "one answer for both connections");
    assert_eq!(stage.world.run(&["sessions", "answer", "main", "no"]).code, 0);
}

#[test]
fn network_policies_of_agents_hold() {
    let stage = Stage::new(
        "autonomy = \"autonomous\"\n[agents.main.isolation]\nnetworkPolicy = \"allow-list\"\n\
         allowedHosts = [\"unknown.example\"]",
    );
    let fetch = |host: &str| format!("curl -sS --cacert ca.pem https://{host}/");
    let commands = ["unknown.example", "allowed.example", "github.com"].map(fetch);
    let results = stage.run("list", &commands.each_ref().map(String::as_str));
    assert!(results[0].contains("hello over TLS"), "{results:?}");
    assert!(results[1].contains("403") && results[2].contains("403"), "{results:?}");
    assert_eq!(stage.internet.hosts(), ["unknown.example:443"]);

    let stage =
        Stage::new("autonomy = \"autonomous\"\n[agents.main.isolation]\nnetworkPolicy = \"deny-all\"");
    let results = stage.run("none", &["curl -sS https://allowed.example/; echo still > here && cat here"]);
    assert!(results[0].contains("still") && results[0].contains("denied"), "{results:?}");
    assert_eq!(stage.internet.hosts(), [""; 0]);
}

#[test]
fn doctor_and_calls_report_missing_namespaces() {
    let world = World::new();
    world.configure("[agents.main]\nautonomy = \"autonomous\"\n[shell]\nisolated = true\n");
    let doctor = world.run(&["doctor"]).stdout;
    assert!(doctor.contains("agents' shells have their own mounts and network"), "{doctor}");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Root without this capability can make no namespaces.
    let without = |args: &[&str]| {
        let mut command = world.command(&[]);
        let environment: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]).arg(program()).args(args);
        command.env_clear().envs(environment).current_dir(world.workspace()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (_, doctor, _) = without(&["doctor"]);
    assert!(
        doctor.contains("cannot create a network namespace") && doctor.contains("without network"),
        "{doctor}"
    );
    let shell = r#"{"command": "echo > file && echo ran; bash -c 'echo > /dev/tcp/127.0.0.1/1' 2>&1"}"#;
    let (code, answer, warned) = without(&["call", "--agent", "main", "Bash", shell]);
    assert_eq!(code, Some(0), "{answer} {warned}");
    assert!(answer.contains("ran") && answer.contains("Operation not permitted"), "{answer}");
    assert!(warned.contains("allows no namespaces"), "{warned}");
}

#[test]
fn up_and_doctor_say_what_agents_can_reach() {
    let world = World::new();
    // The data directory is inside this workspace.
    let home = world.folder.path().canonicalize().unwrap();
    world.configure("[shell]\nisolated = false\n");
    let up = Gateway::start_with(&world, "up", &["--workspace", home.to_str().unwrap()]);
    let checks = |world: &World| {
        let found = world.run(&["doctor", "--json"]).json()["checks"].clone();
        move |name: &str| -> Vec<String> {
            let of = found.as_array().unwrap().iter().filter(|check| check["check"] == name);
            of.map(|check| format!("{} {}", check["health"], check["text"])).collect()
        }
    };
    let found = checks(&world);
    let [workspace] = &found("workspace")[..] else { panic!("{:?}", found("workspace")) };
    assert!(workspace.contains(home.to_str().unwrap()) && workspace.contains("warning"), "{workspace}");
    assert!(!workspace.contains("/workspace"), "not the directory doctor runs in: {workspace}");
    assert!(found("isolation")[0].contains("shell.isolated is false"), "{:?}", found("isolation"));
    drop(up);
    world.configure("[shell]\nisolated = true\ncaches = [\"/var/cache/x\"]\n");
    let _up = Gateway::start_with(&world, "up", &["--workspace", home.to_str().unwrap()]);
    let found = checks(&world);
    assert!(
        found("workspace")[0].contains("good"),
        "the data directory is covered: {:?}",
        found("workspace")
    );
    let isolation = found("isolation").remove(0);
    for part in ["isolated: they write", "egress.allow", "/var/cache/x"] {
        assert!(isolation.contains(part), "{part} not in {isolation}");
    }
}
