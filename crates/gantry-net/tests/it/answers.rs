//! Answers over a plain connection: decoded bodies, redirects, reused connections, deadlines.

use std::time::{Duration, Instant};

use async_compression::tokio::bufread as encode;
use gantry_net::testing::site::{Heard, Say, Site, answer};
use gantry_net::{
    Client, ClientOptions, HeaderValue, Method, NetError, NetworkPolicy, Redirects, Request, Response,
};
use tokio::io::AsyncReadExt;

pub(crate) fn client() -> Client {
    let allowed_ranges = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    Client::new(ClientOptions { allowed_ranges, ..ClientOptions::default() })
}

fn get(url: &str) -> Request {
    Request::get(url.parse().unwrap(), tokio::time::Instant::now() + Duration::from_secs(10))
}

async fn text(response: Response) -> String {
    let body = response.body.read(1 << 20).await.unwrap();
    assert!(!body.cut);
    String::from_utf8(body.bytes).unwrap()
}

pub(crate) async fn encoded(encodings: &[&str], plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    for encoding in encodings {
        let mut out = Vec::new();
        match *encoding {
            "gzip" => encode::GzipEncoder::new(&bytes[..]).read_to_end(&mut out).await,
            "deflate" => encode::ZlibEncoder::new(&bytes[..]).read_to_end(&mut out).await,
            "raw deflate" => encode::DeflateEncoder::new(&bytes[..]).read_to_end(&mut out).await,
            "br" => encode::BrotliEncoder::new(&bytes[..]).read_to_end(&mut out).await,
            "zstd" => encode::ZstdEncoder::new(&bytes[..]).read_to_end(&mut out).await,
            other => panic!("{other}"),
        }
        .unwrap();
        bytes = out;
    }
    bytes
}

#[tokio::test]
async fn bodies_are_decoded() {
    let page = "a line of text\n".repeat(10_000);
    let cases: &[&[&str]] = &[
        &[],
        &["gzip"],
        &["deflate"],
        &["raw deflate"],
        &["br"],
        &["zstd"],
        &["gzip", "br"],
        &["zstd", "raw deflate"],
        &["br", "br"],
    ];
    for case in cases {
        let name = case.join(", ").replace("raw ", "");
        let body = encoded(case, page.as_bytes()).await;
        let empty = name.clone();
        let site = Site::start(move |heard| match heard.target.as_str() {
            "/empty" => answer("200 OK", &[("Content-Encoding", &empty)], b""),
            "/short" => answer("200 OK", &[("Content-Encoding", &empty)], &body[..body.len() / 2]),
            _ => answer("200 OK", &[("Content-Encoding", &name)], &body),
        })
        .await;
        assert_eq!(text(client().send(get(&site.url("/"))).await.unwrap()).await, page, "{case:?}");
        assert_eq!(text(client().send(get(&site.url("/empty"))).await.unwrap()).await, "", "{case:?}");
        let head = Request { method: Method::HEAD, ..get(&site.url("/empty")) };
        assert_eq!(text(client().send(head).await.unwrap()).await, "", "{case:?}");
        if !case.is_empty() {
            let short = client().send(get(&site.url("/short"))).await.unwrap().body.read(1 << 20).await;
            assert!(matches!(short, Err(NetError::Decoding(_))), "{case:?}: {short:?}");
        }
    }
}

#[tokio::test]
async fn unknown_or_nested_encodings_are_rejected() {
    for (encoding, expected) in [
        ("gzip, gzip, gzip", "the body cannot be decoded: it is encoded more than twice"),
        ("gzip, br, zstd, deflate, gzip, br", "the body cannot be decoded: it is encoded more than twice"),
        ("compress", "the body cannot be decoded: its encoding \"compress\" is unknown"),
    ] {
        let site = Site::start(move |_| answer("200 OK", &[("Content-Encoding", encoding)], b"x")).await;
        // Status and headers are useful without the body.
        let response = client().send(get(&site.url("/"))).await.unwrap();
        let err = response.body.read(10).await.unwrap_err();
        assert_eq!(err.to_string(), expected);
    }
    let site = Site::start(|_| answer("200 OK", &[("Content-Encoding", "gzip")], b"no gzip")).await;
    let err = client().send(get(&site.url("/"))).await.unwrap().body.read(10).await.unwrap_err();
    assert!(matches!(err, NetError::Decoding(_)), "{err}");
}

#[tokio::test]
async fn body_is_cut_at_the_limit() {
    let site = Site::start(|_| answer("200 OK", &[], &[b'x'; 1000])).await;
    for (limit, length, cut) in [(0, 0, true), (999, 999, true), (1000, 1000, false), (2000, 1000, false)] {
        let body = client().send(get(&site.url("/"))).await.unwrap().body.read(limit).await.unwrap();
        assert_eq!((body.bytes.len(), body.cut), (length, cut));
    }
}

#[tokio::test]
async fn connections_are_reused() {
    let site = Site::start(|_| answer("200 OK", &[], b"ok")).await;
    let client = client();
    for _ in 0..10 {
        assert_eq!(text(client.clone().send(get(&site.url("/"))).await.unwrap()).await, "ok");
    }
    assert_eq!((site.connections(), site.heard().len()), (1, 10));
}

#[tokio::test]
async fn at_most_five_redirects_are_followed() {
    let site = Site::start(|heard| {
        let left: usize = heard.target[1..].parse().unwrap();
        if left == 0 {
            answer("200 OK", &[], b"here")
        } else {
            answer("302 Found", &[("Location", &format!("/{}", left - 1))], b"moved")
        }
    })
    .await;
    let response = client().send(get(&site.url("/5"))).await.unwrap();
    assert_eq!((response.hops, response.url.as_str()), (5, site.url("/0").as_str()));
    assert_eq!(text(response).await, "here");
    let err = client().send(get(&site.url("/6"))).await.unwrap_err();
    assert!(matches!(&err, NetError::Redirect { reason, .. } if reason.contains("too many")), "{err}");
    let stopped = Request { redirects: Redirects::Stop, ..get(&site.url("/6")) };
    assert_eq!(client().send(stopped).await.unwrap().status.as_u16(), 302);
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let other = Site::start(|heard| match heard.target.as_str() {
        "/there" => answer("200 OK", &[], b"there"),
        back => {
            answer("307 Temporary Redirect", &[("Location", &format!("http://{}/back", &back[1..]))], b"")
        }
    })
    .await;
    let there = other.address;
    let site = Site::start(move |heard| match heard.target.as_str() {
        "/here" => answer("302 Found", &[("Location", "/also-here")], b""),
        "/there" => answer("302 Found", &[("Location", &format!("http://{there}/there"))], b""),
        "/and-back" => {
            let own = heard.header("host").unwrap();
            answer("302 Found", &[("Location", &format!("http://{there}/{own}"))], b"")
        }
        _ => answer("200 OK", &[], b"ok"),
    })
    .await;
    for path in ["/here", "/there", "/and-back"] {
        let mut request = get(&site.url(path));
        request.secret_headers.insert("authorization", HeaderValue::from_static("secret"));
        request.headers.insert("x-mine", HeaderValue::from_static("mine"));
        client().send(request).await.unwrap();
    }
    let secret = |heard: &Heard| heard.headers.iter().any(|(_, value)| value == "secret" || value == "mine");
    let kept: Vec<_> =
        site.heard().iter().filter(|heard| secret(heard)).map(|heard| heard.target.clone()).collect();
    assert_eq!(kept, ["/here", "/also-here", "/there", "/and-back"]);
    assert!(site.heard().iter().any(|heard| heard.target == "/back"));
    assert!(!other.heard().iter().any(secret), "{:?}", other.heard());
}

#[tokio::test]
async fn policy_is_checked_at_each_hop() {
    let site = Site::start(|_| answer("302 Found", &[("Location", "http://[::1]:9999/")], b"")).await;
    let only = NetworkPolicy::AllowList(vec![gantry_net::HostPattern::parse("127.0.0.1").unwrap()]);
    let err = client().send(Request { policy: only, ..get(&site.url("/")) }).await.unwrap_err();
    assert!(matches!(&err, NetError::NotAllowed { host, listed: true } if host == "[::1]"), "{err}");
    let none = Request { policy: NetworkPolicy::DenyAll, ..get(&site.url("/")) };
    let closed = client().send(none).await.unwrap_err().to_string();
    assert!(closed.ends_with("cannot be reached: this agent may not use the network"), "{closed}");
    assert_eq!(site.heard().len(), 1);
}

#[tokio::test]
async fn deadline_covers_the_whole_request() {
    let stall = Duration::from_secs(60);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n".to_vec();
    let whole = [&head[..], b"\r\nhalf"].concat();
    let mut drip = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec();
    drip.push(b'x');
    for say in [
        vec![Say::Wait(stall)],
        vec![Say::Bytes(head), Say::Wait(stall)],
        vec![Say::Bytes(whole), Say::Wait(stall)],
        vec![Say::Bytes(drip), Say::Forever(b"x".to_vec(), Duration::from_millis(50))],
    ] {
        let site = Site::start(move |_| say.clone()).await;
        let started = Instant::now();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(500);
        let ended = match client().send(Request { deadline, ..get(&site.url("/")) }).await {
            Ok(response) => response.body.read(100_000).await.map(|_| ()),
            Err(err) => Err(err),
        };
        assert!(matches!(ended, Err(NetError::TimedOut { .. })), "{ended:?}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn server_receives_exactly_the_request() {
    let site = Site::start(|_| answer("200 OK", &[], b"")).await;
    let mut request =
        Request { method: Method::POST, body: "body".into(), ..get(&site.url("/a%20b?c=d|e#part")) };
    request.headers.insert("accept", HeaderValue::from_static("text/html"));
    client().send(request).await.unwrap();
    let heard = site.heard().remove(0);
    assert_eq!((heard.method.as_str(), heard.target.as_str()), ("POST", "/a%20b?c=d|e"));
    assert_eq!(heard.body, b"body");
    let headers = heard.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>();
    assert_eq!(
        headers.join("\n").replace(&site.address.to_string(), "HOST"),
        "accept: text/html\naccept-encoding: gzip, deflate, br, zstd\nuser-agent: gantry/0.1.0\nhost: HOST\ncontent-length: 4"
    );
    for (method, length) in [(Method::POST, Some("0")), (Method::GET, None), (Method::DELETE, None)] {
        client().send(Request { method: method.clone(), ..get(&site.url("/")) }).await.unwrap();
        let heard = site.heard().pop().unwrap();
        let sent = heard.headers.iter().find(|(name, _)| name == "content-length");
        assert_eq!(sent.map(|(_, value)| value.as_str()), length, "{method}");
    }
    for name in ["host", "content-length", "transfer-encoding", "connection"] {
        let mut request = get(&site.url("/"));
        request.headers.insert(name, HeaderValue::from_static("1"));
        assert!(matches!(client().send(request).await, Err(NetError::BadHeader { .. })), "{name}");
    }
}
