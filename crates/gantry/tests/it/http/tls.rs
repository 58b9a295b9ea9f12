//! TLS with the operator's own certificate.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};

/// A child that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn certificate(world: &World) -> (String, String) {
    certificate_for(world, "DNS:localhost,IP:127.0.0.1")
}

fn certificate_for(world: &World, names: &str) -> (String, String) {
    let (cert, key) = (world.folder.path().join("cert.pem"), world.folder.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", &format!("subjectAltName={names}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (cert.to_str().unwrap().to_owned(), key.to_str().unwrap().to_owned())
}

#[test]
fn gateway_with_certificate_accepts_tls_only() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let (cert, key) = certificate(&world);
    let up = Gateway::start_with(&world, "up", &["--tls-cert", &cert, "--tls-key", &key]);
    assert!(up.url.starts_with("https://"), "{}", up.url);
    let elsewhere = World::new();
    let as_client = |args: &[&str], more: &[(&str, &str)]| {
        let known = [("GANTRY_GATEWAY", up.url.as_str()), ("GANTRY_TOKEN", up.token.as_str())];
        elsewhere.run_with(args, &[&known, more].concat())
    };
    let call = ["call", "read", r#"{"path": "a.txt"}"#];
    let trusted = as_client(&call, &[("GANTRY_TLS_CA", &cert)]);
    assert_eq!(
        (trusted.code, &trusted.json()["content"]),
        (0, &serde_json::json!("one\n")),
        "{}",
        trusted.stderr
    );
    let stranger = as_client(&call, &[]);
    assert_eq!(stranger.code, 4, "an unknown certificate: {} {}", stranger.stdout, stranger.stderr);
    assert!(stranger.stderr.contains("GANTRY_TLS_CA"), "it says what to do: {}", stranger.stderr);
    let page = format!(r#"{{"url": "https://localhost:{}/health"}}"#, up.address.port());
    let fetch = ["call", "--local", "--set", r#"web.allowedHosts=["localhost"]"#, "tool::web_fetch", &page];
    let fetched = world.run_with(&fetch, &[("GANTRY_TLS_CA", &cert)]);
    assert_eq!(fetched.code, 0, "the web tools believe it too: {} {}", fetched.stdout, fetched.stderr);
    assert_eq!(world.run(&fetch).code, 1, "and without it nobody does");
    let bad = world.write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let bad = bad.to_str().unwrap();
    for reported in
        [world.run_with(&fetch, &[("GANTRY_TLS_CA", bad)]), as_client(&call, &[("GANTRY_TLS_CA", bad)])]
    {
        let reason = format!("{bad}: a certificate in it is incomplete");
        assert!(reported.code != 0 && reported.stdout.contains(&reason), "{reported:?}");
    }
    let curl = Command::new("curl")
        .args(["-s", "--cacert", &cert, "-H", &format!("Authorization: Bearer {}", up.token)])
        .arg(format!("https://localhost:{}/v1/nodes", up.address.port()))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&curl.stdout).contains("\"local\""), "{curl:?}");
    let mut plain = up.connection();
    plain.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(plain.read().is_err(), "no plain HTTP where TLS is spoken");
}

#[test]
fn unusable_certificate_is_reported() {
    let world = World::new();
    let (cert, key) = certificate(&world);
    let nothing = world.write("nothing.pem", "hello").to_str().unwrap().to_owned();
    let half = world.write("half.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n").to_str().unwrap().to_owned();
    for (cert, key, code, reported) in [
        ("missing.pem", key.as_str(), 2, "cannot read missing.pem".to_owned()),
        (&cert, &cert, 1, format!("cannot use {cert}: the file contains no private key")),
        (&nothing, &key, 1, format!("cannot use {nothing}: the file contains no certificate")),
        (&half, &key, 1, format!("cannot use {half}: the file is not PEM (")),
        (&cert, &nothing, 1, format!("cannot use {nothing}: the file contains no private key")),
    ] {
        let ran = world.run(&["up", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key]);
        assert_eq!(ran.code, code, "{} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(&reported), "{reported}: {}", ran.stderr);
    }
    assert_eq!(world.run(&["up", "--tls-cert", &cert]).code, 2);
}

#[test]
fn address_in_use_is_reported_once() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = world.run(&["up", "--listen", &address]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("cannot listen on {address}")), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("in use").count(), 1, "{}", ran.stderr);
}

/// The certificate is for the public name: commands on the gateway's own machine know it by what it wrote down.
#[test]
fn local_commands_work_without_loopback_name_in_certificate() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let (cert, key) = certificate_for(&world, "DNS:gantry.example");
    let up = Gateway::start_with(
        &world,
        "up",
        &["--tls-cert", &cert, "--tls-key", &key, "--public-url", "https://gantry.example"],
    );
    let ran = world.run(&["call", "read", r#"{"path": "a.txt"}"#]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("one"), "{}", ran.stdout);
    // Another key at that address is another server.
    let lock = world.data().join("gateway.lock");
    let text = std::fs::read_to_string(&lock).unwrap();
    let mut running: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(running["key"].as_str().unwrap().starts_with("sha256//"), "{running}");
    running["key"] = gantry_net::KeyPin::of_public_key(b"another").to_string().into();
    std::fs::write(&lock, running.to_string()).unwrap();
    let fooled = world.run(&["call", "read", r#"{"path": "a.txt"}"#]);
    assert_eq!(fooled.code, 4, "{} {}", fooled.stdout, fooled.stderr);
    assert!(fooled.stderr.contains("has another key"), "{}", fooled.stderr);
    drop(up);
}

#[test]
fn node_trusts_the_ca_from_the_environment() {
    let world = World::new();
    let (cert, key) = certificate(&world);
    let up = Gateway::start_with(&world, "up", &["--tls-cert", &cert, "--tls-key", &key]);
    let token = up.add_node(&world, "box", &[]);
    let machine = World::new();
    let mut command = machine.command(&["node", "--gateway", &up.url, "--id", "box"]);
    command.envs([("GANTRY_TOKEN", token.as_str()), ("GANTRY_TLS_CA", cert.as_str())]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let node = Ended(command.spawn().unwrap());
    eventually("the node is connected", Duration::from_secs(20), || {
        machine.run(&["node", "status"]).code == 0
    });
    drop(node);
    // A service has no environment of its owner's.
    let token_file = machine.folder.path().join("token");
    std::fs::write(&token_file, token).unwrap();
    std::fs::set_permissions(&token_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let args = ["node", "install", "--print", "--gateway", &up.url, "--id", "box", "--token-file"];
    let args = [&args, [token_file.to_str().unwrap()].as_slice()].concat();
    let printed = machine.run_with(&args, &[("GANTRY_TLS_CA", &cert)]);
    assert!(printed.stdout.contains("--tls-ca"), "{} {}", printed.stdout, printed.stderr);
}

#[test]
fn expired_certificate_is_reported_at_start_with_its_file() {
    let world = World::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let (cert, key_file) = (world.folder.path().join("old.pem"), world.folder.path().join("old.key"));
    std::fs::write(&cert, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let (cert, key_file) = (cert.to_str().unwrap(), key_file.to_str().unwrap());
    let log = world.folder.path().join("said");
    let up = Gateway::start_logged(&world, &log, &["--tls-cert", cert, "--tls-key", key_file]);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains(cert) && said.contains("expired") && said.contains("days ago"), "{said}");
    assert_eq!(world.run(&["nodes", "list"]).code, 0, "its own machine gets in to see about it");
    drop(up);
}

#[test]
fn wrong_scheme_error_names_the_right_one() {
    let world = World::new();
    let (cert, key) = certificate(&world);
    let secure = Gateway::start_with(&world, "up", &["--tls-cert", &cert, "--tls-key", &key]);
    let other = World::new();
    let plain = Gateway::start(&other);
    let client = World::new();
    for (up, from, to) in [(&secure, "https", "http"), (&plain, "http", "https")] {
        let url = up.url.replacen(from, to, 1);
        let variables = [("GANTRY_GATEWAY", url.as_str()), ("GANTRY_TOKEN", up.token.as_str())];
        let reported = client.run_with(&["nodes", "list"], &variables);
        assert_eq!(reported.code, 4, "{reported:?}");
        assert!(reported.stderr.contains(&format!("use {from}:// ")), "{}", reported.stderr);
    }
}
