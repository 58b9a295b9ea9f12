//! `gantry ports`: servers of agents in their own networks, and forwards to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use gantry_testkit::{SOON, eventually};
use serde_json::{Value, json};

use super::isolated::Stage;

/// A port that nothing else on the machine uses.
const PORT: u16 = 8763;

/// Requests a file from this address. `None` if nobody listens there.
fn fetch(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /ca.pem HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn server_of_an_agent_is_reached_only_through_a_forward() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    assert_eq!(stage.world.run(&["ports", "--json"]).json(), json!([]));
    let serve = format!("exec python3 -m http.server {PORT} --bind 127.0.0.1");
    let ready =
        format!("curl -sS --retry 50 --retry-delay 1 --retry-connrefused http://127.0.0.1:{PORT}/ca.pem");
    let calls = json!([["Bash", {"command": serve, "background": true}], ["Bash", {"command": ready}]]);
    let results = stage.calls("work", &calls);
    assert!(results[1].contains("BEGIN CERTIFICATE"), "{results:?}");

    let own = format!("127.0.0.1:{PORT}");
    assert_eq!(fetch(&own), None, "the server is in its own network");
    let listed = stage.world.run(&["ports", "--json"]).json();
    let [found] = &listed.as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&found["port"], &found["process"]), (&json!(PORT), &json!("python3")), "{listed}");
    assert!(found["session"].as_str().unwrap().ends_with("work"), "{listed}");
    let text = stage.world.run(&["ports"]).stdout;
    assert!(text.contains(&PORT.to_string()) && text.contains("python3 (pid "), "{text}");

    let mut command =
        stage.world.command(&["ports", "forward", &PORT.to_string(), "--listen", "127.0.0.1:0", "--json"]);
    let mut forward =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let announced: Value = serde_json::from_str(&line).unwrap();
    let listen = announced["listen"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        assert!(fetch(&listen).unwrap().contains("BEGIN CERTIFICATE"));
    }
    assert_eq!(fetch(&own), None, "only the forward leads there");
    forward.kill().unwrap();
    forward.wait().unwrap();
    eventually("the forward has ended", SOON, || fetch(&listen).is_none());
    stage.model.check();
}

#[test]
fn ports_are_for_the_operator_and_the_loopback() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let token = stage.world.run(&["tokens", "add", "ci"]).stdout.trim().to_owned();
    let refused = stage.world.run_with(&["ports", "--gateway", &stage.up.url], &[("GANTRY_TOKEN", &token)]);
    assert!(refused.code != 0 && refused.stderr.contains("only the operator"), "{refused:?}");
    let missing = stage.world.run(&["ports", "forward", "9"]);
    assert!(
        missing.code != 0 && missing.stderr.contains("no agent session listens on port 9"),
        "{missing:?}"
    );
    let serve = "python3 -m http.server 8764 --bind 127.0.0.1";
    let ready = "curl -sS --retry 50 --retry-delay 1 --retry-connrefused http://127.0.0.1:8764/ > /dev/null";
    stage
        .calls("a", &json!([["Bash", {"command": serve, "background": true}], ["Bash", {"command": ready}]]));
    stage
        .calls("b", &json!([["Bash", {"command": serve, "background": true}], ["Bash", {"command": ready}]]));
    let open = stage.world.run(&["ports", "forward", "8764", "--session", "a", "--listen", "0.0.0.0:0"]);
    assert!(open.code != 0 && open.stderr.contains("only the loopback"), "{open:?}");
    let two = stage.world.run(&["ports", "forward", "8764"]);
    assert!(two.code != 0 && two.stderr.contains("several sessions listen on port 8764"), "{two:?}");
}
