//! Tests of failures before and after sending, and of the texts that report them.

use super::profiles::{create, profile};
use super::*;

#[tokio::test]
async fn response_with_a_broken_body_is_shown_up_to_the_error() {
    for (headers, body, expected) in [
        ("Content-Encoding: foo\r\n", "x", "its encoding \"foo\" is unknown"),
        ("Content-Encoding: gzip\r\n", "not gzip", "cannot be decoded"),
    ] {
        let (bench, site) = (bench(), Site::start(move |_| answer("201 Created", headers, body)));
        let text = send(&bench, json!({"url": site.url("/"), "method": "POST", "body": "b"})).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 201 Created\n") && text.contains("content-encoding: "), "{text}");
        assert!(text.contains(expected) && text.contains("the request was sent"), "{text}");
    }
    let bench = bench();
    let short = Site::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf".to_vec());
    let text = send(&bench, json!({"url": short.url("/")})).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\n") && text.contains("\n\nhalf\n["), "{text}");
    assert!(text.contains("the request was sent"), "{text}");
    let silent = Site::start(|_| Vec::new());
    let error = send(&bench, json!({"url": silent.url("/"), "method": "POST"})).await.unwrap_err();
    assert!(error.contains("the server may have processed the request"), "{error}");
}

#[tokio::test]
async fn echoed_literal_credential_is_masked() {
    let (bench, site) = (bench(), Site::echo());
    for (name, value, hidden) in [
        ("Authorization", "Bearer LITERALTOKEN99", "LITERALTOKEN99"),
        ("X-Api-Key", "LITERALTOKEN99", "LITERALTOKEN99"),
        ("Cookie", "theme=dark; sid=LITERALTOKEN99", "LITERALTOKEN99"),
        ("Authorization", "Basic user-name:pass-word", "dXNlci1uYW1lOnBhc3Mtd29yZA"),
    ] {
        let text = send(&bench, json!({"url": site.url("/"), "headers": {name: value}})).await.unwrap();
        assert!(site.seen().last().unwrap().contains(hidden), "{:?}", site.seen());
        assert!(!text.contains(hidden) && text.contains("[masked]"), "{name}: {text}");
    }
}

#[tokio::test]
async fn hint_for_a_missing_profile_contains_the_base_url() {
    let (bench, site) = (bench(), Site::echo());
    create(&bench, profile("mine", &site.url("/v1"), json!({"type": "none"}))).await;
    let error = send(&bench, json!({"url": site.url("/api/x")})).await.unwrap_err();
    assert!(error.contains(&format!("whose base_url is {}", site.url("/"))), "{error}");
}

#[tokio::test]
async fn bad_addresses_and_files_are_listed_with_other_problems() {
    let bench = bench();
    let error = send(
        &bench,
        json!({"url": "http://example.com:22/", "method": "POST", "file": "nope", "headers": {"Host": "x"}}),
    )
    .await
    .unwrap_err();
    for part in ["\n- url: ", "\n- file: ", "\n- headers.Host: "] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    for url in ["http://a..b/".to_owned(), format!("http://example.com/{}", "x".repeat(9_000))] {
        let error = send(&bench, json!({"url": url, "headers": {"Host": "x"}})).await.unwrap_err();
        assert!(error.contains("\n- url: ") && error.contains("\n- headers.Host: "), "{error}");
    }
}

#[tokio::test]
async fn json_null_is_sent_as_a_body() {
    let (bench, site) = (bench(), Site::echo());
    send(&bench, json!({"url": site.url("/"), "method": "POST", "json": null})).await.unwrap();
    let (head, body) = only_body(&site);
    assert_eq!(body, "null");
    assert!(head.contains("content-type: application/json"), "{head}");
}

#[tokio::test]
async fn session_headers_and_tokens_in_addresses_are_redacted() {
    let bench = bench();
    let site = Site::start(|_| {
        let headers = "X-Session-Id: HIDDEN1\r\nAuthentication-Info: HIDDEN2\r\n\
                       Location: /next?a=b&access_token=HIDDEN3#id_token=HIDDEN4\r\n";
        answer("201 Created", headers, "")
    });
    let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
    assert!(!text.contains("HIDDEN"), "{text}");
    assert!(text.contains("location: /next?a=b&access_token=[redacted]"), "{text}");
}

#[tokio::test]
async fn escaped_secret_is_masked() {
    let bench = bench();
    bench.secrets().set("S", "SUPERSECRETVALUE1", &["127.0.0.1".to_owned()], 1).unwrap();
    let spelt: String = "SUPERSECRETVALUE1".chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
    for body in [format!("{{\"a\": \"{spelt}\"}}"), format!("[\"{spelt}\", ")] {
        let site = Site::start(move |_| page("application/json", body.clone()));
        let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
        assert!(text.contains("[masked]") && !text.contains("\\u0053"), "{text}");
    }
}

#[tokio::test]
async fn unreadable_secrets_disable_the_web_tools() {
    let (bench, site) = (bench(), Site::echo());
    bench.secrets().set("S", "SUPERSECRETVALUE1", &["127.0.0.1".to_owned()], 1).unwrap();
    std::fs::write(bench.data().join("secrets.sealed"), "damaged").unwrap();
    let bench = bench.restart_with(reach_this_machine).await;
    for (tool, input) in [
        ("http_request", json!({"url": site.url("/")})),
        ("tool::web_fetch", json!({"url": site.url("/")})),
        ("tool::web_search", json!({"query": "x"})),
        ("web_research", json!({"action": "search", "query": "x"})),
    ] {
        let error = bench.call(tool, input).await.unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("gantry doctor"), "{tool}: {error}");
    }
    assert_eq!(site.connections(), 0);
}
