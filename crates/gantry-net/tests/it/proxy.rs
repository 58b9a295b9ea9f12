//! A proxy that the operator configured: which requests it receives, and which it never receives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_net::testing::certificates;
use gantry_net::testing::site::{Heard, answer, converse};
use gantry_net::{Client, ClientOptions, NetError, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

struct Proxy {
    client: Client,
    /// First lines and credentials, as received.
    asked: Arc<Mutex<Vec<String>>>,
    heard: Arc<Mutex<Vec<Heard>>>,
}

/// Starts a proxy that answers everything itself, directly or after CONNECT.
async fn proxy(refuses: bool) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (acceptor, authority) = certificates(&["www.example.com"]);
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let heard = Arc::<Mutex<Vec<Heard>>>::default();
    let (note, hear) = (Arc::clone(&asked), Arc::clone(&heard));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut start = [0; 7];
            stream.peek(&mut start).await.unwrap();
            let page = Arc::new(|_: &Heard| answer("200 OK", &[], b"page"));
            if start != *b"CONNECT" {
                tokio::spawn(converse(stream, at, page, Arc::clone(&hear)));
                continue;
            }
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            note.lock().unwrap().push(String::from_utf8(head).unwrap());
            if refuses {
                stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
                continue;
            }
            stream.write_all(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n").await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(converse(stream, at, page, Arc::clone(&hear)));
            }
        }
    });
    let client = Client::new(ClientOptions {
        proxy: Some(format!("http://user:p%40ss@{at}").parse().unwrap()),
        trust: gantry_net::Trust::And { name: "authority".into(), pem: authority },
        ..ClientOptions::default()
    });
    Proxy { client, asked, heard }
}

async fn fetch(client: &Client, url: &str) -> Result<Vec<u8>, NetError> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let response = client.send(Request::get(url.parse().unwrap(), deadline)).await?;
    Ok(response.body.read(100).await?.bytes)
}

#[tokio::test]
async fn proxy_gets_full_urls_for_http_and_tunnels_for_https() {
    let proxy = proxy(false).await;
    assert_eq!(fetch(&proxy.client, "http://www.example.com/a?b").await.unwrap(), b"page");
    assert_eq!(fetch(&proxy.client, "https://www.example.com/c").await.unwrap(), b"page");
    assert_eq!(
        *proxy.asked.lock().unwrap(),
        [
            "CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        ]
    );
    let heard = proxy.heard.lock().unwrap();
    assert_eq!(heard[0].target, "http://www.example.com/a?b");
    assert_eq!(heard[0].header("proxy-authorization"), Some("Basic dXNlcjpwQHNz"));
    assert_eq!((heard[1].target.as_str(), heard[1].header("proxy-authorization")), ("/c", None));
}

#[tokio::test]
async fn closed_names_and_addresses_never_reach_the_proxy() {
    let proxy = proxy(false).await;
    for url in
        ["http://127.0.0.1/", "https://169.254.169.254/", "http://localhost/", "http://[::ffff:10.0.0.1]/"]
    {
        assert!(fetch(&proxy.client, url).await.is_err(), "{url}");
    }
    assert!(proxy.asked.lock().unwrap().is_empty() && proxy.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn proxy_refusal_is_reported() {
    let proxy = proxy(true).await;
    let err = fetch(&proxy.client, "https://www.example.com/").await.unwrap_err().to_string();
    assert_eq!(
        err,
        "cannot connect to www.example.com: the proxy refused: HTTP/1.1 407 Proxy Authentication Required"
    );
}
