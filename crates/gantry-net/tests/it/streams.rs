//! Byte streams of other protocols: the same guard, TLS from the start or later, and the operator's proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_net::testing::names::Name;
use gantry_net::testing::{PUBLIC, address, certificates, on_a_private_internet};
use gantry_net::{Client, ClientOptions, HostPattern, NetError, NetworkPolicy, Security, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

const ALL: NetworkPolicy = NetworkPolicy::AllowAll;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn list(hosts: &[&str]) -> NetworkPolicy {
    NetworkPolicy::AllowList(hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect())
}

fn client(authority: Vec<u8>) -> Client {
    Client::new(ClientOptions {
        private_hosts: vec![HostPattern::parse("localhost").unwrap()],
        trust: Trust::And { name: "authority".into(), pem: authority },
        ..ClientOptions::default()
    })
}

/// Starts a server that greets, and starts TLS when the client sends `TLS\n`, or at once.
async fn server(at_once: bool) -> (u16, Vec<u8>) {
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (acceptor, authority) = certificates(&["localhost"]);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if !at_once {
                    stream.write_all(b"hello\n").await.unwrap();
                    let mut asked = [0; 4];
                    if stream.read_exact(&mut asked).await.is_err() || asked != *b"TLS\n" {
                        return;
                    }
                }
                // A client that does not trust the certificate disconnects.
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    stream.write_all(b"secure\n").await.unwrap();
                    let _ = stream.read_u8().await;
                }
            });
        }
    });
    (port, authority)
}

async fn line(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn tls_can_begin_at_once() {
    let (port, authority) = server(true).await;
    let client = client(authority);
    let mut stream = client.connect_stream("localhost", port, Security::Tls, &ALL, soon()).await.unwrap();
    assert!(stream.is_secure());
    assert_eq!(line(&mut stream).await, "secure\n");
    assert!(stream.upgrade_tls("localhost").await.is_err(), "TLS begins once");
}

#[tokio::test]
async fn tls_can_begin_later_and_checks_the_name() {
    let (port, authority) = server(false).await;
    let client = client(authority);
    for (name, is_genuine) in [("localhost", true), ("mail.example.com", false), ("a\r\nb", false)] {
        let stream = client.connect_stream("localhost", port, Security::Plain, &ALL, soon()).await;
        let mut stream = stream.unwrap();
        assert_eq!((line(&mut stream).await.as_str(), stream.is_secure()), ("hello\n", false));
        stream.write_all(b"TLS\n").await.unwrap();
        match stream.upgrade_tls(name).await {
            Ok(mut stream) => {
                assert!(is_genuine && stream.is_secure(), "{name}");
                assert_eq!(line(&mut stream).await, "secure\n");
            }
            Err(err) => assert!(!is_genuine, "{name}: {err}"),
        }
    }
}

#[tokio::test]
async fn unknown_authority_is_refused() {
    let (port, _) = server(true).await;
    let (_, other) = server(true).await;
    let stream = client(other).connect_stream("localhost", port, Security::Tls, &ALL, soon()).await;
    assert!(matches!(stream, Err(NetError::Connect { .. })), "{stream:?}");
}

#[tokio::test]
async fn host_outside_the_policy_is_refused() {
    let (port, authority) = server(true).await;
    let client = client(authority);
    for policy in [list(&["mail.example.com", "*.localhost"]), NetworkPolicy::DenyAll] {
        let stream = client.connect_stream("localhost", port, Security::Tls, &policy, soon()).await;
        assert!(matches!(stream, Err(NetError::NotAllowed { .. })), "{stream:?}");
    }
    client.connect_stream("localhost", port, Security::Tls, &list(&["localhost"]), soon()).await.unwrap();
}

#[tokio::test]
async fn silent_server_meets_the_deadline() {
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let started = std::time::Instant::now();
    let deadline = Instant::now() + Duration::from_millis(300);
    let stream = client(certificates(&["localhost"]).1)
        .connect_stream("localhost", port, Security::Tls, &ALL, deadline)
        .await;
    assert!(matches!(stream, Err(NetError::Connect { .. })), "{stream:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn streams_never_reach_a_closed_address() {
    on_a_private_internet("streams::streams_never_reach_a_closed_address", |internet| async move {
        let trust = Trust::And { name: "authority".into(), pem: internet.authority.clone() };
        let client = Client::new(ClientOptions { trust, ..ClientOptions::default() });
        internet.public_name("open.example.com", PUBLIC[0]);
        let open = client.connect_stream("open.example.com", 443, Security::Tls, &ALL, soon()).await;
        assert!(open.unwrap().is_secure());
        for closed in ["10.0.0.1", "127.0.0.1", "192.168.1.1", "169.254.169.254"] {
            internet.names.set("inside.example.com", Name::Always(vec![address(closed)]));
            let both = vec![address(PUBLIC[0]), address(closed)];
            internet.names.set("both.example.com", Name::Always(both));
            for host in ["inside.example.com", "both.example.com", closed, "localhost", "mail.internal"] {
                for security in [Security::Tls, Security::Plain] {
                    let stream = client.connect_stream(host, 8080, security, &ALL, soon()).await;
                    let is_refused = matches!(
                        stream,
                        Err(NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. })
                    );
                    assert!(is_refused, "{host}: {stream:?}");
                    internet.assert_untouched(host);
                }
            }
        }
    });
}

#[tokio::test]
async fn proxy_opens_a_tunnel_with_and_without_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let note = Arc::clone(&asked);
    let (acceptor, authority) = certificates(&["mail.example.com"]);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let is_secure = head.contains(":993 ");
            note.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            if is_secure {
                let mut stream = acceptor.accept(stream).await.unwrap();
                stream.write_all(b"secure\n").await.unwrap();
                stream.shutdown().await.unwrap();
            } else {
                stream.write_all(b"plain\n").await.unwrap();
            }
        }
    });
    let client = Client::new(ClientOptions {
        proxy: Some(format!("http://{proxy}").parse().unwrap()),
        trust: Trust::And { name: "authority".into(), pem: authority },
        ..ClientOptions::default()
    });
    for (port, security, expected) in [(143, Security::Plain, "plain\n"), (993, Security::Tls, "secure\n")] {
        let stream = client.connect_stream("mail.example.com", port, security, &ALL, soon()).await;
        assert_eq!(line(&mut stream.unwrap()).await, expected);
    }
    let inside = client.connect_stream("127.0.0.1", 143, Security::Plain, &ALL, soon()).await;
    assert!(matches!(inside, Err(NetError::ForbiddenAddress { .. })), "{inside:?}");
    assert_eq!(
        *asked.lock().unwrap(),
        ["CONNECT mail.example.com:143 HTTP/1.1", "CONNECT mail.example.com:993 HTTP/1.1"]
    );
}
