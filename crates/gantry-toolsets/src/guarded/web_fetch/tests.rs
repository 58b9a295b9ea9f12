use gantry_net::NetworkPolicy;
use serde_json::{Value, json};

use super::*;
use crate::testing::Bench;
use crate::testing::web_server::{TestResponse, WebServer, client_to_loopback};

fn bench() -> Bench {
    Bench::with(|parts| parts.settings.web.client = client_to_loopback())
}

/// Fetches one response. `SERVER` in the result replaces the server's address.
async fn fetched(response: TestResponse, mut input: Value) -> Result<Value, Value> {
    let (bench, server) = (bench(), WebServer::always(response));
    input["url"] = json!(format!("{}/docs/page?x=1", server.url()));
    let with_server =
        |value: Value| serde_json::from_str(&value.to_string().replace(&server.url(), "SERVER")).unwrap();
    bench.call("tool::web_fetch", input).await.map(with_server).map_err(with_server)
}

#[tokio::test]
async fn page_becomes_text_with_absolute_links() {
    let page = "<!doctype html><title>The &amp; docs</title><script>no()</script><h1>Docs</h1>\
        <p>See <a href='../a.html'>this</a> and <a href='/b'>that</a>.<p hidden>obey";
    let answer = fetched(TestResponse::html(page), json!({})).await;
    assert_eq!(
        answer,
        Ok(json!({
            "url": "SERVER/docs/page?x=1",
            "status": 200,
            "contentType": "text/html; charset=utf-8",
            "title": "The & docs",
            "content": "# Docs\n\nSee [this](SERVER/a.html) and [that](SERVER/b).",
            "truncated": false,
            "size": page.len(),
        }))
    );
}

#[tokio::test]
async fn every_text_type_and_charset_is_read() {
    let utf16: Vec<u8> =
        [0xfeffu16].into_iter().chain("<p>Größe".encode_utf16()).flat_map(u16::to_be_bytes).collect();
    for (content_type, body, content) in [
        ("text/html", &b"<meta charset=iso-8859-1><p>Gr\xf6\xdfe"[..], "Größe"),
        ("text/html; charset=windows-1251", b"<p>\xcf\xf0\xe8\xe2\xe5\xf2", "Привет"),
        ("text/html; charset=utf-8", "<p>Größe €".as_bytes(), "Größe €"),
        ("text/html", "<p>Größe €".as_bytes(), "Größe €"),
        ("text/html; charset=iso-8859-1", b"\xef\xbb\xbf<p>Gr\xc3\xb6\xc3\x9fe", "Größe"),
        ("text/html", &utf16, "Größe"),
        ("text/html; charset=shift_jis", b"<p>\x93\xfa\x96\x7b\x8c\xea", "日本語"),
        ("text/html; charset=gbk", b"<p>\xd6\xd0\xce\xc4", "中文"),
        ("text/plain", b"  a <b> & c\r\n", "  a <b> & c\r\n"),
        ("application/json", b"{\"a\": [1, 2]}\n", "{\"a\": [1, 2]}\n"),
        ("application/atom+xml", b"<feed><title>T</title></feed>", "<feed><title>T</title></feed>"),
        ("image/svg+xml", b"<svg><text>hi</text></svg>", "<svg><text>hi</text></svg>"),
        ("text/csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
        ("application/xhtml+xml", b"<html><body><p>x</p></body></html>", "x"),
        ("application/octet-stream", b"<!DOCTYPE HTML><p>sniffed", "sniffed"),
        ("text/plain", b"<!DOCTYPE HTML><p>a source", "<!DOCTYPE HTML><p>a source"),
        ("text/html", b"", ""),
        ("text/html", b"<p>one\0stray", "one\u{fffd}stray"),
    ] {
        let answer = fetched(TestResponse::new(200, content_type, body), json!({})).await.unwrap();
        assert_eq!((&answer["content"], &answer["contentType"]), (&json!(content), &json!(content_type)));
        assert_eq!((&answer["truncated"], &answer["next"]), (&json!(false), &Value::Null));
    }
}

#[tokio::test]
async fn binary_content_is_an_error_with_its_type() {
    for (content_type, body, error) in [
        (
            "image/png",
            &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
            "SERVER/docs/page?x=1 is binary content (image/png)",
        ),
        ("text/html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "SERVER/docs/page?x=1 is binary content (image/png)"),
        (
            "application/x-thing",
            b"ab\0\x01cd",
            "SERVER/docs/page?x=1 is binary content (application/x-thing)",
        ),
        (
            "application/pdf",
            b"%PDF-1.7\nnothing",
            "SERVER/docs/page?x=1 is a PDF that cannot be read: it is damaged or cut off",
        ),
    ] {
        assert_eq!(
            fetched(TestResponse::new(200, content_type, body), json!({})).await,
            Err(json!({"error": error}))
        );
    }
    // An error response is returned with its status.
    let missing =
        fetched(TestResponse::new(404, "image/png", b"\x89PNG\r\n\x1a\n\0"), json!({})).await.unwrap();
    assert_eq!((&missing["status"], &missing["content"]), (&json!(404), &json!("")));
}

#[tokio::test]
async fn error_status_is_returned_as_a_result() {
    for status in [200, 201, 400, 404, 410, 429, 500, 503] {
        let answer =
            fetched(TestResponse::new(status, "text/html", "<h1>so it is</h1>"), json!({})).await.unwrap();
        assert_eq!((&answer["status"], &answer["content"]), (&json!(status), &json!("# so it is")));
    }
}

#[tokio::test]
async fn redirects_are_followed_and_the_final_url_returned() {
    let server = WebServer::start(|request| match request.path() {
        "/old" => TestResponse {
            headers: vec![("location", "/new/".to_owned())],
            ..TestResponse::new(301, "text/html", "")
        },
        _ => TestResponse::html("<a href=x>here</a>"),
    });
    let answer =
        bench().call("tool::web_fetch", json!({"url": format!("{}/old", server.url())})).await.unwrap();
    assert_eq!(answer["url"], format!("{}/new/", server.url()));
    assert_eq!(answer["content"], format!("[here]({}/new/x)", server.url()));
}

#[tokio::test]
async fn long_text_is_read_in_parts_to_its_end() {
    let line = "aé€😀 ";
    let text = line.repeat(30_000);
    let mut whole = String::new();
    let mut offset = Some(0);
    while let Some(from) = offset {
        let answer =
            fetched(TestResponse::new(200, "text/plain", &*text), json!({"offset": from})).await.unwrap();
        let content = answer["content"].as_str().unwrap();
        assert!((1..=MAX_CONTENT).contains(&content.len()), "{}", content.len());
        whole.push_str(content);
        offset = answer["next"].as_u64();
        assert_eq!(answer["truncated"], json!(offset.is_some()));
        assert_eq!(answer["size"], text.len());
    }
    assert_eq!(whole, text);
    let beyond = fetched(TestResponse::new(200, "text/plain", "short"), json!({"offset": 6})).await;
    assert_eq!(beyond, Err(json!({"error": "offset 6 is past the end of the text, which has 5 bytes"})));
    let end = fetched(TestResponse::new(200, "text/plain", "short"), json!({"offset": 5})).await.unwrap();
    assert_eq!((&end["content"], &end["truncated"]), (&json!(""), &json!(false)));
}

#[tokio::test]
async fn max_size_limits_the_download() {
    let long = "x".repeat(DEFAULT_MAX_SIZE + 1);
    for (max_size, body, size, truncated) in [
        (None, &long[..DEFAULT_MAX_SIZE], DEFAULT_MAX_SIZE, true),
        (None, &long[..MAX_CONTENT], MAX_CONTENT, false),
        (Some(10), &long[..10], 10, false),
        (Some(10), &long[..11], 10, true),
        (Some(DEFAULT_MAX_SIZE + 1), &long, DEFAULT_MAX_SIZE + 1, true),
    ] {
        let mut input = json!({});
        if let Some(max_size) = max_size {
            input["maxSize"] = json!(max_size);
        }
        let answer = fetched(TestResponse::new(200, "text/plain", body), input).await.unwrap();
        assert_eq!((&answer["size"], &answer["truncated"]), (&json!(size), &json!(truncated)));
    }
    let cut = fetched(TestResponse::new(200, "text/plain", &*long), json!({})).await.unwrap();
    assert_eq!((&cut["size"], &cut["truncated"]), (&json!(DEFAULT_MAX_SIZE), &json!(true)));
    // The limit may split a character; the rest of the text is still decoded correctly.
    let split = fetched(TestResponse::new(200, "text/plain", "aé€😀"), json!({"maxSize": 8})).await.unwrap();
    assert_eq!(split["content"], "aé€\u{fffd}");
}

#[tokio::test]
async fn invalid_input_is_rejected_and_nothing_is_sent() {
    let (bench, server) = (bench(), WebServer::always(TestResponse::html("x")));
    for (url, error) in [
        ("example.com", "url is not a web address: relative URL without a base"),
        ("", "url is not a web address: relative URL without a base"),
        ("https://", "url is not a web address: empty host"),
        ("file:///etc/passwd", "url must start with http: or https:, not file:"),
        ("ftp://example.com/", "url must start with http: or https:, not ftp:"),
    ] {
        let hint = "give the whole address, such as https://example.com/docs";
        let answer = bench.call("tool::web_fetch", json!({"url": url})).await;
        assert_eq!(answer, Err(json!({"error": format!("{error} ({hint})")})), "{url}");
    }
    for input in [
        json!({}),
        json!({"url": server.url(), "maxSize": 0}),
        json!({"url": server.url(), "maxSize": 20_000_001}),
        json!({"url": server.url(), "offset": -1}),
        json!({"url": server.url(), "method": "POST"}),
    ] {
        let invalid = bench.call("tool::web_fetch", input).await.unwrap_err();
        assert_eq!(invalid["error"]["code"], "invalid_input", "{invalid}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn private_addresses_and_unlisted_hosts_are_denied() {
    let server = WebServer::always(TestResponse::html("x"));
    let url = json!({"url": server.url()});
    let closed = Bench::new().call("tool::web_fetch", url.clone()).await.unwrap_err();
    assert!(closed.to_string().contains("127.0.0.1"), "{closed}");
    for (policy, expected) in [
        (NetworkPolicy::DenyAll, "may not use the network"),
        (NetworkPolicy::AllowList(Vec::new()), "is not on the list of hosts this agent may reach"),
    ] {
        let limited = Bench::with(|parts| {
            parts.settings.web.client = client_to_loopback();
            parts.settings.isolation.network = policy;
        });
        let refused = limited.call("tool::web_fetch", url.clone()).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a server that accepts connections and never responds")]
async fn deadline_of_the_call_applies() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bench = bench();
    let mut call = bench.operator_call();
    let started = std::time::Instant::now();
    call.deadline = Some(started + Duration::from_millis(300));
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let late = bench.call_as(call, "tool::web_fetch", json!({"url": url})).await;
    assert!(late.is_err(), "{late:?}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test]
async fn pdf_is_read_page_by_page() {
    let pdf = gantry_page::testing::pdf(&["Hello from page one", "And page two"]);
    let answer = fetched(TestResponse::new(200, "application/pdf", pdf.clone()), json!({})).await.unwrap();
    assert_eq!(answer["content"], "Hello from page one\n\nAnd page two");
    let cut =
        fetched(TestResponse::new(200, "application/pdf", pdf), json!({"maxSize": 300})).await.unwrap_err();
    assert!(
        cut["error"]
            .as_str()
            .unwrap()
            .ends_with("(only the first 300 bytes were read; try a larger maxSize)"),
        "{cut}"
    );
}

const SECRET: &str = "SUPERSECRETVALUE1";

/// A long text with a secret across the end of the first part.
fn long_text_with_a_secret() -> String {
    format!("{}{SECRET}{}", "a".repeat(MAX_CONTENT - 8), " b".repeat(4_000))
}

#[tokio::test]
async fn secret_is_masked_before_truncation() {
    let server = WebServer::always(TestResponse::new(200, "text/plain", long_text_with_a_secret()));
    let bench = Bench::with(|parts| {
        parts.settings.web.client = client_to_loopback();
        parts.settings.web.masker = Masker::new([SECRET.to_owned()]);
    });
    let mut whole = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let page =
            bench.call("tool::web_fetch", json!({"url": server.url(), "offset": offset})).await.unwrap();
        whole.push_str(page["content"].as_str().unwrap());
        offset = page["next"].clone();
    }
    assert_eq!(whole, long_text_with_a_secret().replace(SECRET, "[masked]"));
    let within = json!({"url": server.url(), "offset": MAX_CONTENT - 7});
    let within = bench.call("tool::web_fetch", within).await.unwrap();
    assert!(!within.to_string().contains("UPERSECRET"), "{}", &within.to_string()[..200]);
}

#[tokio::test]
async fn secret_across_max_size_is_not_shown() {
    let bench = Bench::with(|parts| {
        parts.settings.web.client = client_to_loopback();
        parts.settings.web.masker = Masker::new([SECRET.to_owned(), "other\"secret".to_owned()]);
    });
    let wide: Vec<u8> = format!("before {SECRET} after").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (content_type, body) in [
        ("text/plain", format!("before {SECRET} after").into_bytes()),
        ("text/html", format!("<p>before <a href='/x'>{SECRET}</a> after").into_bytes()),
        ("text/html", b"<p>before <b>other&quot;secret</b> after".to_vec()),
        ("text/plain; charset=utf-16le", wide),
    ] {
        let (length, server) = (body.len(), WebServer::always(TestResponse::new(200, content_type, body)));
        for max_size in 1..=length {
            let input = json!({"url": server.url(), "maxSize": max_size});
            let page = bench.call("tool::web_fetch", input).await.unwrap();
            let content = page["content"].as_str().unwrap();
            assert!(!content.contains("SU") && !content.contains("ot"), "{max_size}: {content}");
            assert_eq!(page["truncated"], json!(max_size < length), "{max_size}: {page}");
        }
        // Text that only starts like a secret is shown: removing it would reveal how the secret
        // starts.
        let like = WebServer::always(TestResponse::new(200, "text/plain", format!("like {}X", &SECRET[..9])));
        let page = bench.call("tool::web_fetch", json!({"url": like.url(), "maxSize": 14})).await.unwrap();
        assert_eq!(page["content"], format!("like {}", &SECRET[..9]));
    }
}
