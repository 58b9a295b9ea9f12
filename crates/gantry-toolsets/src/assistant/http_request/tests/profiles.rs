//! Tests of requests that a profile covers, and of requests that need one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

pub(super) fn profile(id: &str, base_url: &str, auth: Value) -> Value {
    json!({
        "id": id, "name": id, "base_url": base_url, "description": "For tests.", "auth": auth,
        "endpoints": [{"method": "GET", "path": "/things", "description": "All things."}],
        "guidelines": ["Ask for pages."], "avoid": ["Asking twice."],
    })
}

pub(super) async fn create(bench: &Bench, profile: Value) {
    bench.call("api_setup", json!({"action": "create", "profile": profile})).await.unwrap();
}

pub(super) fn keep(bench: &Bench, name: &str, value: &str) {
    bench.secrets().set(name, value, &["127.0.0.1".to_owned()], 1).unwrap();
}

#[tokio::test]
async fn every_auth_type_is_attached_and_never_shown() {
    for (auth, expected) in [
        (json!({"type": "none"}), "GET /v1/things HTTP/1.1"),
        (json!({"type": "bearer", "token": "secret:TOKEN"}), "authorization: Bearer token-value-1"),
        (
            json!({"type": "basic", "username": "me", "password": "secret:TOKEN"}),
            "authorization: Basic bWU6dG9rZW4tdmFsdWUtMQ==",
        ),
        (
            json!({"type": "header", "header_name": "X-Key", "value": "Token secret:TOKEN"}),
            "x-key: Token token-value-1",
        ),
        (
            json!({"type": "query", "query_param": "key", "value": "secret:TOKEN"}),
            "GET /v1/things?a=b&key=token-value-1",
        ),
    ] {
        let (bench, site) = (bench(), Site::echo());
        keep(&bench, "TOKEN", "token-value-1");
        create(&bench, profile("mine", &site.url("/v1"), auth.clone())).await;
        let path = if auth["type"] == "query" { "/v1/things?a=b" } else { "/v1/things" };
        let text = send(&bench, json!({"url": site.url(path)})).await.unwrap();
        let seen = site.seen().concat();
        assert!(seen.contains(expected), "{auth}: {seen}");
        assert!(!text.contains("token-value-1") && !text.contains("bWU6dG9r"), "{auth}: {text}");
        assert!(!format!("{:?}", bench.audit.records()).contains("token-value-1"));
        if auth["type"] == "bearer" {
            let own = json!({"url": site.url(path), "headers": {"Authorization": "Bearer x"}});
            let error = send(&bench, own).await.unwrap_err();
            assert!(error.contains("adds this header; leave it out"), "{error}");
        }
    }
}

#[tokio::test]
async fn apis_without_a_profile_are_refused_once_one_exists() {
    let (bench, site) = (bench(), Site::echo());
    send(&bench, json!({"url": site.url("/api/things")})).await.unwrap();
    create(&bench, profile("mine", &site.url("/v1"), json!({"type": "none"}))).await;
    let before = site.connections();
    for input in [
        json!({"url": site.url("/api/things")}),
        json!({"url": site.url("/v2/things")}),
        json!({"url": site.url("/graphql"), "method": "POST", "body": "{}"}),
        json!({"url": site.url("/page"), "method": "POST", "json": {}}),
        json!({"url": site.url("/page"), "headers": {"Accept": "application/json"}}),
    ] {
        let error = send(&bench, input.clone()).await.unwrap_err();
        assert!(
            error.contains("no API profile covers it") && error.contains("api_setup with action create"),
            "{input}: {error}"
        );
    }
    assert_eq!(site.connections(), before);
    send(&bench, json!({"url": site.url("/v1/things"), "method": "POST", "json": {}})).await.unwrap();
    send(&bench, json!({"url": site.url("/page.html")})).await.unwrap();
    bench.call("api_setup", json!({"action": "delete", "id": "mine"})).await.unwrap();
    send(&bench, json!({"url": site.url("/api/things")})).await.unwrap();
}

#[tokio::test]
async fn longest_path_wins_and_a_manual_change_applies_at_once() {
    let (bench, site) = (bench(), Site::echo());
    keep(&bench, "OUTER", "outer-value-1");
    keep(&bench, "INNER", "inner-value-1");
    create(&bench, profile("outer", &site.url("/api"), json!({"type": "bearer", "token": "secret:OUTER"})))
        .await;
    create(
        &bench,
        profile("inner", &site.url("/api/admin"), json!({"type": "bearer", "token": "secret:INNER"})),
    )
    .await;
    let last = |site: &Site| site.seen().last().unwrap().clone();
    for (path, value) in [
        ("/api/x", "outer-value-1"),
        ("/api/admin/x", "inner-value-1"),
        ("/api/administrator", "outer-value-1"),
    ] {
        send(&bench, json!({"url": site.url(path)})).await.unwrap();
        assert!(last(&site).contains(value), "{path}: {}", last(&site));
    }
    let file = bench.data().join("apis/inner.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("secret:INNER", "secret:OUTER")).unwrap();
    send(&bench, json!({"url": site.url("/api/admin/x")})).await.unwrap();
    assert!(last(&site).contains("outer-value-1"));
    std::fs::write(&file, text.replace("\"avoid\"", "\"avoidd\"")).unwrap();
    let before = site.connections();
    let error = send(&bench, json!({"url": site.url("/api/admin/x")})).await.unwrap_err();
    assert!(
        error.contains("profile \"inner\" covers it and is invalid") && error.contains("avoidd"),
        "{error}"
    );
    assert_eq!(site.connections(), before);
}

#[tokio::test]
async fn limits_survive_a_restart() {
    let (bench, site) = (bench(), Site::echo());
    let mut limited = profile("mine", &site.url("/v1"), json!({"type": "none"}));
    limited["rate_limit"] = json!({"requests_per_hour": 2, "requests_per_day": 100});
    create(&bench, limited).await;
    let url = site.url("/v1/things");
    send(&bench, json!({"url": url})).await.unwrap();
    let bench = bench.restart_with(reach_this_machine).await;
    send(&bench, json!({"url": url})).await.unwrap();
    let bench = bench.restart_with(reach_this_machine).await;
    let error = send(&bench, json!({"url": url})).await.unwrap_err();
    assert!(
        error.starts_with("the API profile \"mine\" allows 2 requests an hour; nothing was sent (retry in "),
        "{error}"
    );
    assert_eq!(site.connections(), 2);
}

#[tokio::test]
async fn tokens_are_cached_until_they_expire_and_never_shown() {
    for (style, asked) in [
        ("basic", "authorization: Basic Y2xpZW50LTE6Y2xpZW50LXNlY3JldC0x"),
        ("body", "client_secret=client-secret-1"),
    ] {
        let bench = bench();
        let fetched = Arc::new(AtomicUsize::new(0));
        let (count, life) = (fetched.clone(), if style == "basic" { 3600 } else { 5 });
        let tokens = Site::start(move |request| match request.contains("scope=read+write") {
            false => answer("400 Bad Request", "", r#"{"error": "invalid_scope"}"#),
            true => {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let token = format!(
                    r#"{{"access_token":"fetched-token-{number}","token_type":"Bearer","expires_in":{life}}}"#
                );
                page("application/json", token)
            }
        });
        let site = Site::start(|request| match request.contains("/revoked") {
            true => answer("401 Unauthorized", "", request),
            false => page("text/plain", request),
        });
        keep(&bench, "CLIENT", "client-secret-1");
        let auth = json!({
            "type": "oauth2", "token_url": tokens.url("/token"), "client_id": "client-1", "client_style": style,
            "client_secret": "secret:CLIENT", "scope": "read write",
        });
        create(&bench, profile("mine", &site.url("/v1"), auth)).await;
        let mut texts = Vec::new();
        for path in ["/v1/a", "/v1/b", "/v1/revoked", "/v1/c"] {
            texts.push(send(&bench, json!({"url": site.url(path)})).await.unwrap());
        }
        assert!(tokens.seen()[0].contains(asked), "{:?}", tokens.seen());
        // A token is cached for an hour and removed once the API rejects it. A token that expires
        // in 5 s is never cached.
        let numbers = if style == "basic" { [0, 0, 0, 1] } else { [0, 1, 2, 3] };
        for (request, number) in site.seen().iter().zip(numbers) {
            assert!(request.contains(&format!("authorization: Bearer fetched-token-{number}")), "{request}");
        }
        let shown = texts.concat();
        assert!(!shown.contains("fetched-token") && !shown.contains("client-secret"), "{shown}");
        assert!(shown.contains("the server rejected them"), "{shown}");
    }
}

#[tokio::test]
async fn failed_token_request_is_reported_and_the_request_is_not_sent() {
    let (bench, site) = (bench(), Site::echo());
    let tokens = Site::start(|request| {
        answer(
            "401 Unauthorized",
            "",
            json!({"error": "invalid_client", "error_description": request}).to_string(),
        )
    });
    keep(&bench, "CLIENT", "client-secret-1");
    let auth = json!({"type": "oauth2", "token_url": tokens.url("/token"), "client_id": "id", "client_secret": "secret:CLIENT"});
    create(&bench, profile("mine", &site.url("/v1"), auth)).await;
    let error = send(&bench, json!({"url": site.url("/v1/x")})).await.unwrap_err();
    assert!(
        error.contains("cannot get an access token for API profile \"mine\" from 127.0.0.1: it answered 401"),
        "{error}"
    );
    assert!(
        error.contains("invalid_client") && !error.contains("Y2xpZW50") && !error.contains("client-secret"),
        "{error}"
    );
    assert_eq!(site.connections(), 0);
}

/// Otherwise the author of a profile could have a token fetched for one host and sent to another.
#[tokio::test]
async fn access_token_goes_only_to_hosts_of_its_secret() {
    let (bench, site, tokens) = (bench(), Site::echo(), Site::echo());
    let token_url = tokens.url("/token").replace("127.0.0.1", "localhost");
    bench.secrets().set("CLIENT", "client-secret-1", &["localhost".to_owned()], 1).unwrap();
    let auth = json!({"type": "oauth2", "token_url": token_url, "client_id": "id", "client_secret": "secret:CLIENT"});
    create(&bench, profile("mine", &site.url("/v1"), auth)).await;
    let error = send(&bench, json!({"url": site.url("/v1/x")})).await.unwrap_err();
    assert!(error.contains("secret:CLIENT is stored for localhost, not for 127.0.0.1"), "{error}");
    assert_eq!((site.connections(), tokens.connections()), (0, 0));
}
