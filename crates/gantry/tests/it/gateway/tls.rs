//! TLS with a certificate of one's own.

use std::process::Command;

use crate::run::World;

use super::Up;

fn certificate(world: &World) -> (String, String) {
    let (cert, key) = (world.folder.path().join("cert.pem"), world.folder.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
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
fn a_gateway_with_a_certificate_speaks_tls_only() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let (cert, key) = certificate(&world);
    let up = Up::start_with(&world, "up", &["--tls-cert", &cert, "--tls-key", &key]);
    assert!(up.url.starts_with("https://"), "{}", up.url);
    let call = ["call", "read", r#"{"path": "a.txt"}"#];
    let trusted = world.run_with(&call, &[("GANTRY_TLS_CA", &cert)]);
    assert_eq!(
        (trusted.code, &trusted.json()["content"]),
        (0, &serde_json::json!("one\n")),
        "{}",
        trusted.stderr
    );
    let stranger = world.run(&call);
    assert_eq!(stranger.code, 4, "an unknown certificate: {} {}", stranger.stdout, stranger.stderr);
    let page = format!(r#"{{"url": "https://localhost:{}/health"}}"#, up.address.port());
    let fetch = ["call", "--local", "--set", r#"web.allowedHosts=["localhost"]"#, "tool::web_fetch", &page];
    let fetched = world.run_with(&fetch, &[("GANTRY_TLS_CA", &cert)]);
    assert_eq!(fetched.code, 0, "the web tools believe it too: {} {}", fetched.stdout, fetched.stderr);
    assert_eq!(world.run(&fetch).code, 1, "and without it nobody does");
    let bad = world.write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let bad = bad.to_str().unwrap();
    for args in [fetch.as_slice(), &call] {
        let told = world.run_with(args, &[("GANTRY_TLS_CA", bad)]);
        let reason = format!("{bad}: a certificate in it has no end");
        assert!(told.code != 0 && told.stdout.contains(&reason), "{args:?}: {told:?}");
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
fn a_certificate_that_cannot_be_used_is_told() {
    let world = World::new();
    let (cert, key) = certificate(&world);
    let nothing = world.write("nothing.pem", "hello").to_str().unwrap().to_owned();
    let half = world.write("half.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n").to_str().unwrap().to_owned();
    for (cert, key, code, told) in [
        ("missing.pem", key.as_str(), 2, "cannot read missing.pem".to_owned()),
        (&cert, &cert, 1, format!("cannot use {cert}: there is no private key in it")),
        (&nothing, &key, 1, format!("cannot use {nothing}: there is no certificate in it")),
        (&half, &key, 1, format!("cannot use {half}: it is not PEM (")),
        (&cert, &nothing, 1, format!("cannot use {nothing}: there is no private key in it")),
    ] {
        let ran = world.run(&["up", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key]);
        assert_eq!(ran.code, code, "{} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(&told), "{told}: {}", ran.stderr);
    }
    assert_eq!(world.run(&["up", "--tls-cert", &cert]).code, 2);
}

#[test]
fn an_address_that_is_taken_is_told_once() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = world.run(&["up", "--listen", &address]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("cannot listen on {address}")), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("in use").count(), 1, "{}", ran.stderr);
}
