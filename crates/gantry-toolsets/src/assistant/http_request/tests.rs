#![allow(clippy::disallowed_methods, reason = "tests inspect the file system directly")]

use serde_json::{Value, json};

use crate::testing::site::{Site, answer, page};
use crate::testing::{Bench, reach_this_machine};

mod answers;
mod failures;
mod profile_bypass;
mod profiles;
mod secrets;

fn bench() -> Bench {
    Bench::with(reach_this_machine)
}

async fn send(bench: &Bench, input: Value) -> Result<String, String> {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    bench.call("http_request", input).await.map(text).map_err(text)
}

/// The head and body of the only request that the site received.
fn only_body(site: &Site) -> (String, String) {
    let seen = site.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    let (head, body) = seen[0].split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn every_method_and_body_kind_is_sent_correctly() {
    let bench = bench();
    bench.write("data/upload.bin", "bytes of a file");
    for (input, line, content_type, body) in [
        (json!({}), "GET /x?q=1 HTTP/1.1", None, ""),
        (json!({"method": "head"}), "HEAD /x?q=1 HTTP/1.1", None, ""),
        (json!({"method": "DELETE"}), "DELETE /x?q=1 HTTP/1.1", None, ""),
        (json!({"method": "POST", "body": "tèxt"}), "POST", Some("text/plain; charset=utf-8"), "tèxt"),
        (
            json!({"method": "PUT", "json": {"b": 1, "a": [null]}}),
            "PUT",
            Some("application/json"),
            r#"{"b":1,"a":[null]}"#,
        ),
        (
            json!({"method": "PATCH", "form": {"a": "1 & 2", "n": 7, "l": ["x", true]}}),
            "PATCH",
            Some("application/x-www-form-urlencoded"),
            "a=1+%26+2&n=7&l=x&l=true",
        ),
        (
            json!({"method": "POST", "file": "data/upload.bin"}),
            "POST",
            Some("application/octet-stream"),
            "bytes of a file",
        ),
        (
            json!({"method": "POST", "body": "<a/>", "headers": {"Content-Type": "text/xml", "X-Own": "yes"}}),
            "POST",
            Some("text/xml"),
            "<a/>",
        ),
    ] {
        let site = Site::echo();
        let mut input = input;
        input["url"] = json!(site.url("/x?q=1#part"));
        let answer = send(&bench, input.clone()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\n"), "{input}: {answer}");
        let (head, sent) = only_body(&site);
        assert!(head.starts_with(line), "{input}: {head}");
        assert_eq!(sent, body, "{input}");
        let given = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-type: ").map(str::to_owned));
        assert_eq!(given.as_deref(), content_type, "{input}: {head}");
    }
}

#[tokio::test]
async fn every_problem_is_listed_and_nothing_is_sent() {
    let bench = bench();
    let site = Site::echo();
    let error = send(
        &bench,
        json!({
            "url": site.url("/?key=secret:NAME"), "method": "FETCH", "timeout_ms": 600_001,
            "headers": {"Host": "x", "X-A": "a\r\nX-B: b", "X Y": "1", "X-Nul": "\0", "Transfer-Encoding": "chunked"},
            "body": "a", "json": {}, "form": {"f": {"deep": 1}}, "file": "x",
        }),
    )
    .await
    .unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "nothing was sent:");
    for part in [
        "- url: must not contain secret:NAME",
        "- method: \"FETCH\" is not one of GET, POST, PUT, PATCH, DELETE, HEAD",
        "- timeout_ms: must be from 1 to 600000",
        "- headers.Host: is set by the client",
        "- headers.Transfer-Encoding: is set by the client",
        "- headers.X-A: must not contain a line break",
        "- headers.X-Nul: must not contain a line break",
        "- headers.X Y: is not a header name",
        "- form.f: must be a string, a number",
        "- body, json, form, file: at most one",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(part)), "{part} is not in {error}");
    }
    assert_eq!(lines.len(), 11, "{error}");
    for (input, expected) in [
        (json!({"url": "nonsense"}), "url: not a URL"),
        (json!({"url": "/path"}), "url: not a URL"),
        (json!({"url": "ftp://example.com/"}), "url: ftp: is not supported"),
        (json!({"url": "file:///etc/passwd"}), "url: file: is not supported"),
        (json!({"url": "http://u:p@example.com/"}), "url: must not contain a user name or password"),
        (json!({"url": "http://a\r\nb/"}), "url: must not contain control characters"),
        (json!({"url": site.url("/"), "body": "x"}), "body: GET has no body"),
        (json!({"url": site.url("/"), "method": "HEAD", "json": {}}), "json: HEAD has no body"),
        (json!({"url": site.url("/"), "method": "DELET"}), "did you mean DELETE?"),
        (json!({"url": site.url("/"), "headers": {"A": "1", "a": "2"}}), "headers.a: is given twice"),
        (json!({"url": site.url("/"), "timeout_ms": 0}), "timeout_ms: must be from 1"),
        (
            json!({"url": site.url("/"), "headers": {"A": "Bearer secret:NONE"}}),
            "headers.A: unknown secret NONE",
        ),
    ] {
        let error = send(&bench, input.clone()).await.unwrap_err();
        assert!(error.contains(expected), "{input}: {error}");
    }
    let unknown = send(&bench, json!({"url": site.url("/"), "methd": "GET"})).await.unwrap_err();
    assert!(unknown.contains("did you mean \\\"method\\\"?"), "{unknown}");
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn only_workspace_files_are_sent() {
    let bench = bench();
    let site = Site::echo();
    let outside = bench.workspace().parent().unwrap().join("home/key");
    std::fs::write(&outside, "a key").unwrap();
    std::os::unix::fs::symlink(&outside, bench.workspace().join("link")).unwrap();
    for file in [outside.to_str().unwrap(), "../home/key", "link", "/etc/passwd", "missing", "."] {
        let input = json!({"url": site.url("/"), "method": "POST", "file": file});
        assert!(send(&bench, input).await.is_err(), "{file}");
    }
    bench.write(".ssh/id_ed25519", "key");
    let input = json!({"url": site.url("/"), "method": "POST", "file": ".ssh/id_ed25519"});
    let error = bench.call_as(bench.agent_call("a"), "http_request", input).await.unwrap_err();
    assert_eq!(error["error"]["code"], "approval_needed", "{error}");
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn local_addresses_and_unlisted_hosts_are_denied() {
    let site = Site::echo();
    let closed = Bench::new();
    let error = send(&closed, json!({"url": site.url("/")})).await.unwrap_err();
    assert!(error.contains("denied") && error.contains("closed to tools"), "{error}");
    let listed = Bench::with(|parts| {
        let hosts = vec![gantry_net::HostPattern::parse("example.com").unwrap()];
        parts.settings.isolation.network = gantry_net::NetworkPolicy::AllowList(hosts);
    });
    let error = send(&listed, json!({"url": site.url("/")})).await.unwrap_err();
    assert!(error.contains("not on the list"), "{error}");
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn timeout_and_cancellation_end_a_slow_request() {
    let bench = bench();
    let site = Site::start(|_| {
        std::thread::sleep(std::time::Duration::from_secs(20));
        Vec::new()
    });
    let started = std::time::Instant::now();
    let error = send(&bench, json!({"url": site.url("/"), "timeout_ms": 200})).await.unwrap_err();
    assert!(error.contains("did not finish") && error.contains("timeout_ms"), "{error}");
    let call = bench.operator_call();
    let cancel = call.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        cancel.cancel();
    });
    let error = bench.call_as(call, "http_request", json!({"url": site.url("/")})).await.unwrap_err();
    assert_eq!(error["error"]["code"], "cancelled");
    assert!(started.elapsed() < std::time::Duration::from_secs(10));
}
