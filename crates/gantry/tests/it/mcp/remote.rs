//! MCP servers at a URL: the reference server over streamable HTTP, headers with secrets, and logins.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_testkit::{Gateway, Process, World, eventually};
use serde_json::{Value, json};

use super::clients::installed;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn reference_server(port: u16) -> Process {
    let node = installed("node_modules/node/bin/node");
    let script = installed("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let mut command = Command::new(node);
    command.arg(script).arg("streamableHttp").env("PORT", port.to_string());
    let server = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    eventually("it listens", Duration::from_secs(20), || TcpStream::connect(("127.0.0.1", port)).is_ok());
    server
}

#[test]
fn restarted_server_answers_the_next_call() {
    let world = World::new();
    let port = free_port();
    let server = reference_server(port);
    let url = format!("http://127.0.0.1:{port}/mcp");
    assert_eq!(world.run(&["mcp", "add", "every", "--url", &url]).code, 0);
    let up = Gateway::start(&world);
    assert_eq!(up.call("every__echo", &json!({"message": "one"})).text(), "Echo: one");
    drop(server);
    let _server = reference_server(port);
    let begun = Instant::now();
    let answer = up.call("every__echo", &json!({"message": "two"}));
    assert_eq!((answer.status, &*answer.text()), (200, "Echo: two"));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn rejected_session_is_reopened_without_repeating_calls() {
    let world = World::new();
    let private = Private::start("sessions");
    assert_eq!(world.run(&["mcp", "add", "open", "--url", &private.url]).code, 0);
    let up = Gateway::start(&world);
    assert_eq!(up.call("open__whoami", &json!({})).status, 200);
    for form in ["null", "other", "text", "gone"] {
        private.restart(form);
        let answer = up.call("open__whoami", &json!({}));
        assert_eq!(answer.status, 200, "{form}: {}", answer.text());
    }
    assert_eq!(private.restart("null"), json!(["whoami", "whoami", "whoami", "whoami", "whoami"]));
    assert_eq!(up.call("open__whoami", &json!({})).status, 200);
    // In a session that is open: an error without the request's id says that the server did not read
    // the request, so it is sent once more. The other two are answers to a call that may have run.
    for (tool, runs) in [("idless", 2), ("invalid", 1), ("odd", 1)] {
        let before = private.restart("null").as_array().unwrap().len();
        assert_eq!(up.call("open__whoami", &json!({})).status, 200);
        let begun = Instant::now();
        let answer = up.call(&format!("open__{tool}"), &json!({}));
        assert!(matches!(answer.status, 422 | 503), "{tool}: {} {}", answer.status, answer.text());
        assert!(answer.text().contains("the MCP server open"), "{tool}: {}", answer.text());
        assert!(begun.elapsed() < Duration::from_secs(30), "{tool}: {:?}", begun.elapsed());
        let after = private.restart("null");
        assert_eq!(after.as_array().unwrap().len() - before, 1 + runs, "{tool}: {after}");
    }
}

#[test]
fn reference_server_works_over_http() {
    let world = World::new();
    let port = free_port();
    let server = reference_server(port);
    let url = format!("http://127.0.0.1:{port}/mcp");
    let ran = world.run(&["mcp", "add", "every", "--url", &url, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let up = Gateway::start(&world);
    std::thread::scope(|scope| {
        for number in 0..20 {
            let up = &up;
            scope.spawn(move || {
                let sum = up.call("every__get-sum", &json!({"a": number, "b": 1})).text();
                assert!(sum.contains(&format!("{}", number + 1)), "{sum}");
            });
        }
    });
    let given_up = world.run(&[
        "call",
        "every__trigger-long-running-operation",
        r#"{"duration": 60, "steps": 60}"#,
        "--deadline",
        "1s",
    ]);
    assert_eq!(given_up.code, 124, "{given_up:?}");
    assert_eq!(up.call("every__echo", &json!({"message": "still"})).text(), "Echo: still");
    drop(server);
    let lost = world.run(&["call", "every__echo", r#"{"message": "x"}"#]);
    assert_eq!(lost.code, 4, "{lost:?}");
    assert!(lost.stderr.contains("cannot use the MCP server every"), "{lost:?}");
    assert_eq!(up.call("local__Glob", &json!({"pattern": "*"})).status, 200, "the rest works");
}

/// A server that answers each request with the same bytes, and keeps what it was asked.
fn answering(answer: &'static [u8]) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (reported, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let reported = reported.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                let count = stream.read(&mut buffer).unwrap_or(0);
                let _ = reported.send(String::from_utf8_lossy(&buffer[..count]).into_owned());
                let _ = stream.write_all(answer);
                if answer.is_empty() {
                    // Endless, until the other side has had enough.
                    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
                    let _ = stream.write_all(head);
                    while stream.write_all(&chunk).is_ok() {}
                }
            });
        }
    });
    (url, heard)
}

#[test]
fn invalid_server_addresses_are_reported() {
    let world = World::new();
    for (answer, part) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\nconnection: close\r\n\r\n<hi>"[..], "content type"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "redirects to http://169.254.169.254/"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "500"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"a\":1}", "not a message"),
        (b"", "larger than"),
    ] {
        let (url, _heard) = answering(answer);
        let ran = world.run(&["mcp", "add", "bad", "--url", &url]);
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.stderr.contains("cannot use the MCP server bad"), "{ran:?}");
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    let metadata = world.run(&["mcp", "add", "bad", "--url", "http://169.254.169.254/mcp"]);
    assert!(metadata.code != 0 && metadata.stderr.contains("closed to tools"), "{metadata:?}");
}

#[test]
fn invalid_answer_fails_only_its_own_call() {
    let world = World::new();
    let open = Private::start("open");
    let added = world.run(&["mcp", "add", "open", "--url", &open.url]);
    assert_eq!(added.code, 0, "{added:?}");
    let up = Gateway::start(&world);
    for tool in ["bare", "nonsense", "page", "event", "deep", "failure", "idless"] {
        let begun = Instant::now();
        let answer = up.call(&format!("open__{tool}"), &json!({}));
        assert!(matches!(answer.status, 422 | 503), "{tool}: {} {}", answer.status, answer.text());
        assert!(begun.elapsed() < Duration::from_secs(5), "{tool}: {:?}", begun.elapsed());
        assert!(answer.text().contains("the MCP server open"), "{tool}: {}", answer.text());
        let next = up.call("open__whoami", &json!({}));
        assert_eq!(next.status, 200, "after {tool}: {}", next.text());
    }
}

#[test]
fn header_secrets_are_sent_to_their_host_only() {
    let world = World::new();
    let nothing = b"HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (url, heard) = answering(nothing);
    let header = "Authorization: Bearer secret:KEY";
    let missing = world.run(&["mcp", "add", "a", "--url", &url, "--header", header]);
    assert!(missing.stderr.contains("unknown secret KEY"), "{missing:?}");
    world.run_with_input(&["secrets", "set", "KEY", "--host", "other.example"], "value-of-the-key");
    let elsewhere = world.run(&["mcp", "add", "a", "--url", &url, "--header", header]);
    assert!(elsewhere.stderr.contains("was stored for other.example, not for 127.0.0.1"), "{elsewhere:?}");
    assert!(heard.try_recv().is_err(), "nothing was sent");
    world.run_with_input(&["secrets", "set", "KEY", "--host", "127.0.0.1"], "value-of-the-key");
    let sent = world.run(&["mcp", "add", "a", "--url", &url, "--header", header]);
    assert!(!format!("{sent:?}").contains("value-of-the-key"), "{sent:?}");
    let request = heard.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(request.to_lowercase().contains("authorization: bearer value-of-the-key"), "{request}");
    let plain = world.run(&["mcp", "add", "a", "--url", &url, "--header", "Authorization: Bearer abc"]);
    assert!(plain.code == 2 && plain.stderr.contains("never the value itself"), "{plain:?}");
}

struct Private {
    _running: Process,
    url: String,
}

impl Private {
    fn start(mode: &str) -> Private {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/oauth_server.py");
        let mut child = Command::new("python3").args([script, mode]).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Private { _running: Process { child }, url: url.trim().to_owned() }
    }

    /// Logs in as a person would: visits the address, and follows where it leads.
    fn log_in(&self, world: &World, name: &str) -> (i32, String) {
        let mut command = world.command(&["mcp", "login", name, "--no-browser"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if let Some(url) = line.trim().strip_prefix("Log in here: ") {
            // A stranger who guesses the port gets nowhere.
            let visited = get(url);
            let back = visited.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default();
            if !back.is_empty() {
                let root = back.split("/callback").next().unwrap();
                assert!(get(&format!("{root}/callback?code=stolen&state=guessed")).contains("404"));
                get(back);
            }
        }
        let output = child.wait_with_output().unwrap();
        let reported = format!("{line}{}", String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), reported)
    }

    fn grants(&self) -> Value {
        self.asked("log")
    }

    /// Has it forget its sessions, and refuse them in this form. Returns the tools that ran so far.
    fn restart(&self, form: &str) -> Value {
        self.asked(&format!("restart/{form}"))
    }

    fn asked(&self, path: &str) -> Value {
        let origin = self.url.strip_suffix("/mcp").unwrap();
        let answer = get(&format!("{origin}/{path}"));
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    }
}

fn get(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn login_is_stored_encrypted_and_renewed() {
    let world = World::new();
    let private = Private::start("good");
    let added = world.run(&["mcp", "add", "private", "--url", &private.url]);
    assert_eq!(added.code, 3, "{added:?}");
    assert!(added.stderr.contains("gantry mcp login private"), "{added:?}");
    let (code, reported) = private.log_in(&world, "private");
    assert_eq!(code, 0, "{reported}");
    let ran = world.run(&["call", "private__whoami"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.starts_with("you are ") && !ran.stdout.contains("access-"),
        "the token is masked: {ran:?}"
    );
    for entry in std::fs::read_dir(world.data()).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
        assert!(!text.contains("access-") && !text.contains("refresh-"), "{:?}", entry.path());
    }
    let secrets = world.run(&["secrets", "--json"]);
    assert!(secrets.stdout.contains(&format!("mcp:private@{}", private.url)), "{secrets:?}");
    assert_eq!(private.grants(), json!(["authorization_code"]));

    // The server forgets the token: it is renewed, once, and the call goes on.
    assert_eq!(world.run(&["call", "private__forget"]).code, 0);
    assert_eq!(world.run(&["call", "private__whoami"]).code, 0);
    assert_eq!(private.grants(), json!(["authorization_code", "refresh_token"]));

    assert_eq!(world.run(&["mcp", "login", "private", "--forget"]).code, 0);
    let out = world.run(&["call", "private__whoami"]);
    assert_eq!(out.code, 4, "{out:?}");
    assert!(out.stderr.contains("gantry mcp login private"), "{out:?}");
    assert_eq!(world.run(&["mcp", "remove", "private"]).code, 0);
    assert!(!world.run(&["secrets", "--json"]).stdout.contains("mcp-private"));
}

#[test]
fn login_is_bound_to_its_address() {
    for mode in ["good", "short"] {
        let world = World::new();
        let private = Private::start(mode);
        world.run(&["mcp", "add", "private", "--url", &private.url]);
        assert_eq!(private.log_in(&world, "private").0, 0);
        assert_eq!(world.run(&["call", "private__whoami"]).code, 0);
        let grants = private.grants();
        let (elsewhere, heard) = answering(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
        let path = world.data().join("gantry.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace(&private.url, &elsewhere)).unwrap();
        assert_eq!(world.run(&["call", "private__whoami"]).code, 4);
        let asked: Vec<String> = heard.try_iter().collect();
        assert!(!asked.is_empty());
        assert!(
            !asked.iter().any(|asked| asked.to_lowercase().contains("authorization:")),
            "{mode}: {asked:?}"
        );
        assert_eq!(private.grants(), grants, "nor is it renewed for there");
        std::fs::write(&path, config).unwrap();
        assert_eq!(world.run(&["call", "private__whoami"]).code, 0, "it is good where it was made");
    }
}

#[test]
fn expiring_token_is_renewed_early() {
    let world = World::new();
    let private = Private::start("short");
    world.run(&["mcp", "add", "private", "--url", &private.url]);
    assert_eq!(private.log_in(&world, "private").0, 0);
    assert_eq!(world.run(&["call", "private__whoami"]).code, 0);
    let grants = private.grants();
    assert!(grants.as_array().unwrap().len() > 1 && grants[1] == "refresh_token", "{grants}");
}

#[test]
fn suspicious_logins_are_rejected() {
    for (mode, part) in [
        ("refuse", "not today"),
        ("mixup", "another issuer, http://evil.example"),
        ("mismatch", "the metadata is for http://evil.example/mcp"),
    ] {
        let world = World::new();
        let private = Private::start(mode);
        world.run(&["mcp", "add", "private", "--url", &private.url]);
        let (code, reported) = private.log_in(&world, "private");
        assert_eq!(code, 1, "{mode}: {reported}");
        assert!(reported.contains(part), "{mode}: {reported}");
        assert!(!world.run(&["secrets", "--json"]).stdout.contains("mcp-private"), "{mode}");
    }
    let world = World::new();
    let program = world.run(&["mcp", "add", "p", "--untested", "--", "true"]);
    assert_eq!(program.code, 0, "{program:?}");
    assert_eq!(world.run(&["mcp", "login", "p"]).code, 2);
}
