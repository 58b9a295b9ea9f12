//! WebSocket clients: the same guard as for requests, bounded answers, and no redirects.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_net::testing::names::Name;
use gantry_net::testing::site::{Say, Site, answer};
use gantry_net::testing::{address, on_a_private_internet};
use gantry_net::{
    Client, ClientOptions, HeaderMap, HeaderName, HeaderValue, HostPattern, MAX_WEBSOCKET_MESSAGE, NetError,
    NetworkPolicy, Url, WebSocket,
};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_websockets::{Limits, Message, ServerBuilder};

const SECRET: &str = "xoxb-very-secret";

fn client() -> Client {
    let private_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    Client::new(ClientOptions { private_hosts, ..ClientOptions::default() })
}

async fn open(client: &Client, url: &str, policy: &NetworkPolicy) -> Result<WebSocket, NetError> {
    let secret =
        HeaderMap::from_iter([(HeaderName::from_static("authorization"), HeaderValue::from_static(SECRET))]);
    let deadline = Instant::now() + Duration::from_secs(30);
    let url = Url::parse(url).unwrap();
    client.websocket(&url, policy, &HeaderMap::new(), &secret, deadline).await
}

/// Starts a server that sends the request's path and credential, then what it receives.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let limits = Limits::default().max_payload_len(None);
                let (request, mut socket) = ServerBuilder::new().limits(limits).accept(stream).await.unwrap();
                let credential = request.headers().get("authorization").unwrap().to_str().unwrap();
                let greeting = format!("{} {credential}", request.uri());
                socket.send(Message::text(greeting)).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    if socket.send(message).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("ws://{at}")
}

#[tokio::test]
async fn messages_go_both_ways() {
    let server = echo().await;
    let mut socket =
        open(&client(), &format!("{server}/link?ticket=1&v=10"), &NetworkPolicy::AllowAll).await.unwrap();
    let greeting = socket.next().await.unwrap().unwrap();
    assert_eq!(greeting.as_text(), Some(format!("/link?ticket=1&v=10 {SECRET}").as_str()));
    // More bytes than the upgrade may have.
    let long = "x".repeat(1 << 20);
    socket.send(Message::text(long.clone())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().as_text(), Some(long.as_str()));
}

#[tokio::test]
async fn long_message_is_refused() {
    let server = echo().await;
    let mut socket = open(&client(), &server, &NetworkPolicy::AllowAll).await.unwrap();
    socket.next().await.unwrap().unwrap();
    // It leaves in several frames, each of which is small enough.
    socket.send(Message::binary(vec![0; MAX_WEBSOCKET_MESSAGE + 1])).await.unwrap();
    let err = socket.next().await.unwrap().unwrap_err();
    assert!(matches!(err, tokio_websockets::Error::PayloadTooLong { .. }), "{err:?}");
}

#[tokio::test]
async fn host_outside_the_policy_is_refused() {
    let server = echo().await;
    let policy = NetworkPolicy::AllowList(vec![HostPattern::parse("*.slack.com").unwrap()]);
    for url in [server.as_str(), "wss://slack.com.evil.example/", "wss://evilslack.com/?ticket=hidden"] {
        let err = open(&client(), url, &policy).await.unwrap_err();
        assert!(matches!(err, NetError::NotAllowed { .. }), "{url}: {err}");
    }
}

#[test]
fn names_of_closed_addresses_are_refused() {
    on_a_private_internet("websockets::names_of_closed_addresses_are_refused", |internet| async move {
        for closed in ["10.0.0.1", "127.0.0.1", "169.254.169.254"] {
            internet.names.set("inside.example.com", Name::Always(vec![address(closed)]));
            for url in ["ws://inside.example.com/", "wss://inside.example.com/", "ws://localhost:8080/"] {
                let err = open(&Client::default(), url, &NetworkPolicy::AllowAll).await.unwrap_err();
                let is_refused =
                    matches!(err, NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. });
                assert!(is_refused, "{url}: {err}");
                internet.assert_untouched(url);
            }
        }
    });
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let other = Site::start(|_| answer("200 OK", &[], b"")).await;
    let to = other.url("/");
    for status in ["301 Moved", "302 Found", "307 Temporary"] {
        let to = to.clone();
        let site = Site::start(move |_| answer(status, &[("Location", &to)], b"")).await;
        let url = site.url("/?ticket=hidden").replace("http:", "ws:");
        let err = open(&client(), &url, &NetworkPolicy::AllowAll).await.unwrap_err().to_string();
        assert!(err.contains("a redirect"), "{err}");
        assert!(!err.contains(SECRET) && !err.contains("hidden"), "{err}");
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn failed_upgrades_are_reported_without_credentials() {
    let forever = |bytes: &str| Say::Forever(bytes.as_bytes().to_vec(), Duration::ZERO);
    let cases: [(Vec<Say>, &str); 6] = [
        (answer("403 Forbidden", &[], SECRET.as_bytes()), "refused the WebSocket upgrade with status 403"),
        (answer("200 OK", &[], b""), "status 200"),
        (answer("101 Switching Protocols", &[("Upgrade", "websocket")], b""), "upgrade failed"),
        (vec![Say::Close], "upgrade failed"),
        (vec![Say::Bytes(b"HTTP/1.1 101 X\r\nX: ".to_vec()), forever("aaaaaaaa")], "too long"),
        (vec![Say::Bytes(b"SSH-2.0\r\n".to_vec())], "upgrade failed"),
    ];
    for (say, expected) in cases {
        let site = Site::start(move |_| say.clone()).await;
        let url = site.url("/?ticket=hidden").replace("http:", "ws:");
        let err = open(&client(), &url, &NetworkPolicy::AllowAll).await.unwrap_err();
        let text = format!("{err} {err:?}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains(SECRET) && !text.contains("hidden"), "{text}");
        assert_eq!(site.heard()[0].header("authorization"), Some(SECRET));
    }
}

#[tokio::test]
async fn invalid_urls_and_headers_are_refused() {
    for url in ["http://127.0.0.1/", "ftp://a/", "ws://u:p@127.0.0.1/?ticket=hidden", "ws://127.0.0.1:22/"] {
        let err = open(&client(), url, &NetworkPolicy::AllowAll).await.unwrap_err();
        assert!(matches!(err, NetError::BadUrl { .. }), "{url}: {err}");
        assert!(!err.to_string().contains("hidden"), "{err}");
    }
    let site = Site::start(|_| answer("200 OK", &[], b"")).await;
    let url = Url::parse(&site.url("/").replace("http:", "ws:")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    for name in ["host", "connection", "upgrade", "sec-websocket-key", "sec-websocket-extensions"] {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("x"))]);
        let policy = NetworkPolicy::AllowAll;
        let opened = client().websocket(&url, &policy, &headers, &HeaderMap::new(), deadline).await;
        assert!(matches!(opened, Err(NetError::BadHeader { .. })), "{name}");
    }
    assert_eq!(site.connections(), 0);
}
