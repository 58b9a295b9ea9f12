//! The rules of the egress proxy: which connections pass, what they carry, and what is refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use gantry_net::testing::names::Name;
use gantry_net::testing::site::{Site, answer};
use gantry_net::testing::{OWN, PUBLIC, address, on_a_private_internet};
use gantry_net::{
    ClientOptions, EgressDecision, EgressLimits, EgressOptions, EgressOutcome, HostPattern, NetworkPolicy,
    Wanted, WantedKind,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::egress::{
    SOCKS_OK, allow_all, connect_head, get, hello, read_all, socks_address, socks_name, start, tls_client,
    with_www,
};

/// Sends a request over TLS on an open tunnel, and returns the answer.
async fn over_tls(
    stream: TcpStream,
    config: Arc<rustls::ClientConfig>,
    name: &str,
) -> std::io::Result<String> {
    let connector = TlsConnector::from(config);
    let mut tls = connector.connect(name.to_owned().try_into().unwrap(), stream).await?;
    tls.write_all(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes()).await?;
    let mut answer = vec![0; 1000];
    let count = tls.read(&mut answer).await?;
    tls.shutdown().await?;
    Ok(String::from_utf8_lossy(&answer[..count]).into_owned())
}

async fn read_exactly(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn allowed_hosts_are_reached_by_each_protocol() {
    on_a_private_internet(
        "egress_rules::allowed_hosts_are_reached_by_each_protocol",
        |internet| async move {
            with_www(&internet);
            let proxy = start(EgressOptions::default(), allow_all);
            let config = tls_client(&internet.authority, None);

            let answer = proxy.say(&get("WWW.example.com", "/a?b")).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\nConnection: close\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\npublic"), "{answer}");
            let kind = WantedKind::Http { method: "GET".into(), path: "/a?b".into() };
            let wanted =
                |port, kind| Wanted { host: "www.example.com".into(), port, kind, loopback_service: false };
            assert_eq!(proxy.asked(), [wanted(80, kind.clone())]);
            let record = proxy.record().await;
            assert_eq!((record.wanted, record.outcome), (Some(wanted(80, kind)), EgressOutcome::Finished));
            assert!(record.bytes_up > 50 && record.bytes_down > 50);
            let heard = internet.heard.lock().unwrap().pop().unwrap();
            assert_eq!((heard.target.as_str(), heard.header("host")), ("/a?b", Some("www.example.com")));

            let mut stream = proxy.connect().await;
            stream.write_all(&connect_head("www.example.com:443")).await.unwrap();
            assert_eq!(read_exactly(&mut stream, 39).await, b"HTTP/1.1 200 Connection established\r\n\r\n");
            let answer = over_tls(stream, Arc::clone(&config), "www.example.com").await.unwrap();
            assert!(answer.ends_with("public"), "{answer}");
            let record = proxy.record().await;
            assert_eq!(record.wanted, Some(wanted(443, WantedKind::Connect)));
            assert!(record.bytes_up > 200 && record.bytes_down > 500, "{record:?}");

            let mut stream = proxy.connect().await;
            stream.write_all(&socks_name("www.EXAMPLE.com", 443)).await.unwrap();
            assert_eq!(read_exactly(&mut stream, 12).await, SOCKS_OK);
            let answer = over_tls(stream, config, "www.example.com").await.unwrap();
            assert!(answer.ends_with("public"), "{answer}");
            assert_eq!(proxy.record().await.wanted, Some(wanted(443, WantedKind::Socks)));

            let request = b"GET /x HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
            for start in [socks_name("www.example.com", 80), connect_head("www.example.com:80")] {
                let answer = proxy.say(&[&start[..], request].concat()).await;
                assert!(answer.ends_with("public"), "{answer}");
                assert_eq!(proxy.record().await.outcome, EgressOutcome::Finished);
            }
            // An address is judged as an address, and shown as one.
            proxy.asked();
            for (bytes, shown) in [
                (get(PUBLIC[0], "/"), PUBLIC[0].to_owned()),
                (get("[2606:2800:220:1:248:1893:25c8:1946]", "/"), format!("[{}]", PUBLIC[7])),
                (get("[::ffff:93.184.216.34]", "/"), PUBLIC[0].to_owned()),
            ] {
                assert!(proxy.say(&bytes).await.ends_with("public"), "{shown}");
                assert_eq!(proxy.asked()[0].host, shown);
            }
            let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", PUBLIC[0]);
            let socks = socks_address(address(PUBLIC[0]), 80);
            assert!(proxy.say(&[&socks[..], request.as_bytes()].concat()).await.ends_with("public"));
            internet.assert_untouched("allowed hosts");
        },
    );
}

#[test]
fn denial_is_shown_and_nothing_is_looked_up() {
    on_a_private_internet("egress_rules::denial_is_shown_and_nothing_is_looked_up", |internet| async move {
        internet.public_name("secret-data.example.com", PUBLIC[0]);
        let proxy = start(EgressOptions::default(), |_| {
            async { EgressDecision::Deny { reason: "the operator said no".into() } }.boxed()
        });
        for bytes in [connect_head("secret-data.example.com:443"), get("secret-data.example.com", "/")] {
            let answer = proxy.say(&bytes).await;
            let status = "HTTP/1.1 403 secret-data.example.com is not allowed: the operator said no\r\n";
            assert!(answer.starts_with(status), "{answer}");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(body.contains("the operator said no"), "{body}");
            assert!(
                body.contains("add \"secret-data.example.com\" to egress.allow in gantry.toml"),
                "{body}"
            );
            let record = proxy.record().await;
            assert!(matches!(record.outcome, EgressOutcome::Denied { .. }), "{record:?}");
        }
        let mut stream = proxy.connect().await;
        stream.write_all(&socks_name("secret-data.example.com", 443)).await.unwrap();
        let answer = read_exactly(&mut stream, 12).await;
        assert_eq!(answer[..4], [5, 0, 5, 2], "not allowed by the ruleset");
        assert_eq!(internet.names.lookups("secret-data.example.com"), 0);
        assert!(internet.heard.lock().unwrap().is_empty());
    });
}

#[test]
fn names_are_resolved_once_and_every_address_is_judged() {
    on_a_private_internet(
        "egress_rules::names_are_resolved_once_and_every_address_is_judged",
        |internet| async move {
            let proxy = start(EgressOptions::default(), allow_all);
            let (public, inside) = (vec![address(PUBLIC[0])], vec![address("169.254.169.254")]);
            internet.names.set("flip.example.com", Name::Flip(public.clone(), inside.clone()));
            assert!(proxy.say(&get("flip.example.com", "/")).await.ends_with("public"));
            assert_eq!(internet.names.lookups("flip.example.com"), 1);
            let answer = proxy.say(&get("flip.example.com", "/")).await;
            assert!(answer.contains("a cloud's metadata service"), "{answer}");
            for round in 0..50 {
                let host = format!("turn{round}.example.com");
                internet.names.set(&host, Name::Alternate(inside.clone(), public.clone()));
                assert!(proxy.say(&get(&host, "/")).await.starts_with("HTTP/1.1 403 "));
                assert!(proxy.say(&get(&host, "/")).await.ends_with("public"));
            }
            // One closed address among several closes the name.
            for closed in [
                "127.0.0.1",
                "10.0.0.1",
                "169.254.169.254",
                "::1",
                "fd00:ec2::254",
                OWN[0],
                "::ffff:10.0.0.1",
            ] {
                internet
                    .names
                    .set("two.example.com", Name::Always(vec![address(PUBLIC[0]), address(closed)]));
                let answer = proxy.say(&connect_head("two.example.com:443")).await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{closed}: {answer}");
                internet.assert_untouched(closed);
            }
            internet.assert_untouched("rebinding");
        },
    );
}

#[test]
fn operators_exceptions_and_closed_ports_hold() {
    on_a_private_internet(
        "egress_rules::operators_exceptions_and_closed_ports_hold",
        |internet| async move {
            internet.names.set("lab.example.com", Name::Always(vec![address("10.0.0.1")]));
            internet.names.set("own.example.com", Name::Always(vec![address(OWN[0])]));
            let allowed = ["lab.example.com", "own.example.com", "localhost"];
            let network = ClientOptions {
                allowed_hosts: allowed.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
                ..ClientOptions::default()
            };
            let open = EgressOptions { network, ..EgressOptions::default() };
            let proxy = start(open.clone(), allow_all);
            for host in ["lab.example.com", "own.example.com", "localhost"] {
                // Canaries accept and disconnect.
                let answer = proxy.say(&get(host, "/")).await;
                assert!(answer.starts_with("HTTP/1.1 502 "), "{host}: {answer}");
                assert_eq!(std::mem::take(&mut *internet.canaries.lock().unwrap()).len(), 1, "{host}");
            }
            let proxy = start(EgressOptions { closed_ports: vec![80], ..open }, allow_all);
            for host in ["own.example.com", "localhost", "host.gantry.internal:80"] {
                let answer = proxy.say(&get(host, "/")).await;
                assert!(answer.contains("belongs to Gantry itself"), "{host}: {answer}");
                internet.assert_untouched(host);
            }
            assert!(proxy.say(&get("lab.example.com", "/")).await.starts_with("HTTP/1.1 502 "));
            assert_eq!(std::mem::take(&mut *internet.canaries.lock().unwrap()).len(), 1);
        },
    );
}

#[test]
fn second_hello_must_have_the_same_name() {
    on_a_private_internet("egress_rules::second_hello_must_have_the_same_name", |internet| async move {
        use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1MLKEM768, X25519};
        with_www(&internet);
        let proxy = start(EgressOptions::default(), allow_all);
        // The server does not support the first group, so it asks for a second hello.
        let fresh = || tls_client(&internet.authority, Some(&[SECP256R1MLKEM768, X25519]));
        let mut stream = proxy.connect().await;
        stream.write_all(&connect_head("www.example.com:443")).await.unwrap();
        read_exactly(&mut stream, 39).await;
        let answer = over_tls(stream, fresh(), "www.example.com").await.unwrap();
        assert!(answer.ends_with("public"), "{answer}");
        assert_eq!(proxy.record().await.outcome, EgressOutcome::Finished);

        let name = "www.example.com".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(fresh(), name).unwrap();
        let mut first = Vec::new();
        client.write_tls(&mut first).unwrap();
        let mut stream = proxy.connect().await;
        stream.write_all(&connect_head("www.example.com:443")).await.unwrap();
        read_exactly(&mut stream, 39).await;
        stream.write_all(&first).await.unwrap();
        let answer = read_exactly(&mut stream, 43).await;
        assert_eq!(answer[11..15], [0xcf, 0x21, 0xad, 0x74], "the server asks for a second hello");
        stream.write_all(&hello("other.example.com")).await.unwrap();
        read_all(&mut stream).await;
        let record = proxy.record().await;
        assert!(record.outcome.reason().contains("not www.example.com"), "{record:?}");
        assert_eq!(record.bytes_up, first.len() as u64);
    });
}

#[test]
fn allow_list_denies_other_hosts_without_asking() {
    on_a_private_internet(
        "egress_rules::allow_list_denies_other_hosts_without_asking",
        |internet| async move {
            with_www(&internet);
            let listed = vec![HostPattern::parse("www.example.com").unwrap()];
            let list = EgressOptions { policy: NetworkPolicy::AllowList(listed), ..EgressOptions::default() };
            let proxy = start(list, allow_all);
            assert!(proxy.say(&get("www.example.com", "/")).await.ends_with("public"));
            assert_eq!(proxy.asked().len(), 1);
            for bytes in [
                get("other.example.com", "/"),
                connect_head("other.example.com:443"),
                connect_head("host.gantry.internal:5432"),
                get(PUBLIC[0], "/"),
            ] {
                let answer = proxy.say(&bytes).await;
                assert!(answer.contains("is not on the list of hosts"), "{answer}");
            }
            let none = EgressOptions { policy: NetworkPolicy::DenyAll, ..EgressOptions::default() };
            let closed = start(none, allow_all);
            let answer = closed.say(&get("www.example.com", "/")).await;
            assert!(answer.contains("may not use the network"), "{answer}");
            assert!(proxy.asked().is_empty() && closed.asked().is_empty());
        },
    );
}

#[test]
fn only_the_first_request_of_a_connection_is_forwarded() {
    on_a_private_internet(
        "egress_rules::only_the_first_request_of_a_connection_is_forwarded",
        |internet| async move {
            with_www(&internet);
            let proxy = start(EgressOptions::default(), allow_all);
            let second = b"GET /second HTTP/1.1\r\nHost: other.example.com\r\n\r\n";
            let inner = b"GET /first HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n\r\n";
            for first in [
                get("www.example.com", "/first"),
                [&connect_head("www.example.com:80")[..], inner].concat(),
                [&socks_name("www.example.com", 80)[..], inner].concat(),
            ] {
                let answer = proxy.say(&[&first[..], second].concat()).await;
                assert_eq!(answer.matches("public").count(), 1, "{answer}");
                assert!(answer.contains("Connection: close\r\n"), "{answer}");
                // The second request comes after the answer to the first one.
                let mut stream = proxy.connect().await;
                stream.write_all(&first).await.unwrap();
                let mut answer = Vec::new();
                while !answer.ends_with(b"public") {
                    assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
                }
                let _ = stream.write_all(second).await;
                assert_eq!(read_all(&mut stream).await, "");
            }
            let heard = internet.heard.lock().unwrap();
            assert_eq!(heard.len(), 6);
            assert!(
                heard
                    .iter()
                    .all(|heard| heard.target == "/first" && heard.header("connection") == Some("close"))
            );
        },
    );
}

#[test]
fn redirects_are_returned_to_the_client() {
    on_a_private_internet("egress_rules::redirects_are_returned_to_the_client", |internet| async move {
        with_www(&internet);
        let proxy = start(EgressOptions::default(), allow_all);
        let answer = proxy.say(&get("www.example.com", "/hop/302/1/x?http://169.254.169.254/")).await;
        assert!(answer.starts_with("HTTP/1.1 302 Moved\r\n"), "{answer}");
        assert!(answer.contains("location: http://169.254.169.254/\r\n"), "{answer}");
        internet.assert_untouched("a redirect");
    });
}

#[tokio::test]
async fn loopback_services_are_reached_by_their_name() {
    let site = Site::start(|_| answer("200 OK", &[], b"service")).await;
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, echo_port) = (site.address.port(), echo.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            // Answers only after the client has closed its side.
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            read.reverse();
            stream.write_all(&read).await.unwrap();
        }
    });
    let closed = EgressOptions { closed_ports: vec![4567], ..EgressOptions::default() };
    let proxy = start(closed, allow_all);
    let answer = proxy.say(&get(&format!("host.gantry.internal:{port}"), "/")).await;
    assert!(answer.ends_with("service"), "{answer}");
    assert!(proxy.asked()[0].loopback_service);
    assert_eq!(proxy.record().await.outcome, EgressOutcome::Finished);
    // Tunnels carry any protocol, and each side can close first.
    for start in [
        socks_name("HOST.gantry.internal", echo_port),
        connect_head(&format!("host.gantry.internal:{echo_port}")),
    ] {
        let mut stream = proxy.connect().await;
        stream.write_all(&[&start[..], b"abc"].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.ends_with("cba"), "{answer:?}");
        let record = proxy.record().await;
        assert_eq!((record.bytes_up, record.bytes_down), (3, 3));
        assert_eq!(record.outcome, EgressOutcome::Finished);
    }
    proxy.asked();
    for place in ["host.gantry.internal:4567", "HOST.GANTRY.INTERNAL:4567"] {
        let answer = proxy.say(&connect_head(place)).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 port 4567 of the host belongs to Gantry itself"),
            "{answer}"
        );
    }
    for place in ["localhost:80", "127.0.0.1:80", "x.host.gantry.internal:80", "gantry.internal:80"] {
        let answer = proxy.say(&connect_head(place)).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("host.gantry.internal:PORT"), "{answer}");
    }
    assert!(proxy.asked().is_empty(), "nobody is asked about what is closed");
}

#[tokio::test]
async fn bodies_are_forwarded_whole() {
    let site = Site::start(|heard| {
        assert_eq!(heard.header("expect"), (heard.target == "/wait").then_some("100-continue"));
        answer("200 OK", &[("Connection", "keep-alive"), ("X-Kept", "1")], &heard.body)
    })
    .await;
    let proxy = start(EgressOptions::default(), allow_all);
    let host = format!("host.gantry.internal:{}", site.address.port());
    let body = "0123456789abcdef".repeat(300_000);
    for (path, extra) in [("/", ""), ("/wait", "Expect: 100-continue\r\n")] {
        let head = format!(
            "POST http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{extra}Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = proxy.connect().await;
        let (mut read, mut write) = stream.split();
        let mut answer = Vec::new();
        let (sent, received) = tokio::join!(
            async {
                write.write_all(head.as_bytes()).await?;
                write.write_all(body.as_bytes()).await?;
                // The server ignores that the connection should close; the client closes it.
                write.shutdown().await
            },
            read.read_to_end(&mut answer)
        );
        sent.unwrap();
        received.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("x-kept: 1\r\n") && !answer.contains("keep-alive"), "{}", &answer[..200]);
        assert!(answer.ends_with(&body));
    }
    let records = proxy.records(2).await;
    assert!(records.iter().all(|record| record.bytes_up > body.len() as u64), "{records:?}");
    assert!(records.iter().all(|record| record.bytes_down > body.len() as u64), "{records:?}");
}

/// Starts a server that records all bytes, and answers each connection once.
async fn raw_server() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let note = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let note = Arc::clone(&note);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1000];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    note.lock().unwrap().extend(&buffer[..count]);
                    if note.lock().unwrap().ends_with(b"\r\n0\r\n\r\n") {
                        stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.unwrap();
                        return;
                    }
                }
            });
        }
    });
    (port, heard)
}

#[tokio::test]
async fn chunked_bodies_cannot_hide_a_second_request() {
    let (port, heard) = raw_server().await;
    let proxy = start(EgressOptions::default(), allow_all);
    let host = format!("host.gantry.internal:{port}");
    let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer =
        proxy.say(format!("{head}0005\r\nhello\r\n1\r\n!\r\n0\r\n\r\nGET /SMUGGLED").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let sent = String::from_utf8(std::mem::take(&mut *heard.lock().unwrap())).unwrap();
    assert!(sent.ends_with("\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"), "{sent}");
    assert_eq!(sent.matches("transfer-encoding").count() + sent.matches("Transfer-Encoding").count(), 1);
    for body in [
        "5;ext=1\r\nhello\r\n0\r\n\r\nSMUGGLED",
        "5;\nSMUGGLED\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\nSMUGGLED",
        "5\r\nhelloSMUGGLED\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\nSMUGGLED",
        "+5\r\nhello\r\n0\r\n\r\nSMUGGLED",
        "-5\r\nSMUGGLED\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\nSMUGGLED",
        " 5\r\nhello\r\n0\r\n\r\nSMUGGLED",
        "\r\nSMUGGLED\r\n",
        "FFFFFFFFFFFFFFFF\r\nSMUGGLED",
        "10000000000000005\r\nSMUGGLED\r\n0\r\n\r\n",
        "0\r\nHost: other\r\n\r\nSMUGGLED",
        "0\r\nSMUGGLED: 1\r\n\r\n",
        "0\n\nSMUGGLED",
    ] {
        let answer = proxy.say(format!("{head}{body}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
        let sent = String::from_utf8(std::mem::take(&mut *heard.lock().unwrap())).unwrap();
        assert!(!sent.contains("SMUGGLED"), "{body:?}: {sent}");
    }
}

#[tokio::test]
async fn operators_proxy_is_used() {
    let site = Site::start(|_| answer("200 OK", &[], b"through")).await;
    let proxy = Some(format!("http://user:pass@{}", site.address).parse().unwrap());
    let network = ClientOptions { proxy, ..ClientOptions::default() };
    let limits = EgressLimits { hello: Duration::from_millis(300), ..EgressLimits::default() };
    let proxy = start(EgressOptions { network, limits, ..EgressOptions::default() }, allow_all);
    assert!(proxy.say(&get("www.example.com", "/a")).await.ends_with("through"));
    let heard = site.heard();
    assert_eq!(heard[0].target, "http://www.example.com/a");
    assert_eq!(heard[0].header("proxy-authorization"), Some("Basic dXNlcjpwYXNz"));
    let answer = proxy.say(&connect_head("www.example.com:443")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(site.heard()[1].target, "www.example.com:443");
    for bytes in [get("127.0.0.1", "/"), connect_head("localhost:443"), get("[::ffff:10.0.0.1]", "/")] {
        assert!(proxy.say(&bytes).await.starts_with("HTTP/1.1 403 "));
    }
    assert_eq!(site.heard().len(), 2);
}
