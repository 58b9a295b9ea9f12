//! Attempts to bypass a profile: its limits, the scope of its credentials, and the rule that APIs
//! need a profile.

use super::profiles::{create, keep, profile};
use super::*;

fn limited(id: &str, base_url: &str) -> Value {
    let mut limited = profile(id, base_url, json!({"type": "none"}));
    limited["rate_limit"] = json!({"requests_per_day": 1});
    limited
}

/// Redirects to the address after `to=`, and echoes everything else.
fn redirecting() -> Site {
    Site::start(|request| {
        let path = request.split_whitespace().nth(1).unwrap_or_default();
        match path.split_once("to=") {
            Some((_, to)) => answer("307 Temporary Redirect", &format!("Location: {to}\r\n"), "moved"),
            None => page("text/plain", request),
        }
    })
}

#[tokio::test]
async fn escaped_path_is_the_same_path() {
    let (bench, site) = (bench(), Site::echo());
    create(&bench, limited("mine", &site.url("/a"))).await;
    send(&bench, json!({"url": site.url("/%61/x")})).await.unwrap();
    for path in
        ["/a/x", "/%61/x", "//a/x", "/a%2Fx", "/b/%2e%2e%2fa/x", "/a/..%2fb", "/a/..;/b", "/b/..;/a/x"]
    {
        let error = send(&bench, json!({"url": site.url(path)})).await.unwrap_err();
        assert!(error.contains("nothing was sent"), "{path}: {error}");
    }
    for path in ["/%61pi/x", "/x/%76%31/y", "/x%2fapi/y"] {
        let error = send(&bench, json!({"url": site.url(path)})).await.unwrap_err();
        assert!(error.contains("no API profile covers it"), "{path}: {error}");
    }
    assert_eq!(site.connections(), 1);
}

#[tokio::test]
async fn redirect_is_counted_and_does_not_enter_another_profile() {
    let (bench, site) = (bench(), redirecting());
    create(&bench, limited("mine", &site.url("/a"))).await;
    create(&bench, profile("two", &site.url("/b"), json!({"type": "none"}))).await;
    for (from, expected) in [
        ("/go?to=/a/x", "API profile \"mine\" covers that address; request it separately"),
        ("/go?to=/%61/x", "API profile \"mine\" covers that address; request it separately"),
        ("/go?to=/api/x", "it looks like an API"),
        ("/b/go?to=/a/x", "API profile \"mine\" covers that address; request it separately"),
        // The first request uses up the limit, so the redirect exceeds it.
        ("/a/go?to=/a/x", "allows 1 request a day"),
    ] {
        let text = send(&bench, json!({"url": site.url(from)})).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 307"), "{from}: {text}");
        assert!(
            text.contains("the redirect was not followed: ") && text.contains(expected),
            "{from}: {text}"
        );
    }
    let text = send(&bench, json!({"url": site.url("/b/go?to=/b/x")})).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("[after 1 redirect"), "{text}");
    let arrived = site.seen().iter().filter(|seen| seen.contains("/x HTTP") && !seen.contains("to=")).count();
    assert_eq!(arrived, 1, "{:?}", site.seen());
}

#[tokio::test]
async fn profile_credential_does_not_follow_a_redirect_out_of_the_base_url() {
    let (bench, site) = (bench(), redirecting());
    keep(&bench, "TOKEN", "token-value-1");
    create(&bench, profile("mine", &site.url("/a"), json!({"type": "bearer", "token": "secret:TOKEN"})))
        .await;
    for (to, sent) in [("/other", false), ("/a/within", true)] {
        let text = send(&bench, json!({"url": site.url(&format!("/a/go?to={to}"))})).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let last = site.seen().last().unwrap().clone();
        assert!(last.starts_with(&format!("GET {to} ")), "{last}");
        assert_eq!(last.contains("token-value-1"), sent, "{last}");
    }
}

#[tokio::test]
async fn too_many_redirects_return_the_last_response() {
    let bench = bench();
    let site = Site::start(|_| answer("302 Found", "Location: /again\r\n", ""));
    let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
    assert!(text.contains("the redirect was not followed: ") && text.contains("too many"), "{text}");
    assert_eq!(site.connections(), 6);
}

#[tokio::test]
async fn count_survives_a_new_id_and_a_base_url_has_one_profile() {
    let (bench, site) = (bench(), Site::echo());
    create(&bench, limited("mine", &site.url("/a"))).await;
    send(&bench, json!({"url": site.url("/a/x")})).await.unwrap();
    for base in ["/a", "/a/", "/%61", "//a"] {
        let twice = json!({"action": "create", "profile": limited("twice", &site.url(base))});
        let error = bench.call("api_setup", twice).await.unwrap_err().to_string();
        assert!(
            error.contains("\\\"mine\\\" has the same base_url")
                || error.contains("\"mine\" has the same base_url"),
            "{base}: {error}"
        );
    }
    bench.call("api_setup", json!({"action": "delete", "id": "mine"})).await.unwrap();
    create(&bench, limited("other", &site.url("/a/"))).await;
    let error = send(&bench, json!({"url": site.url("/a/x")})).await.unwrap_err();
    assert!(error.contains("allows 1 request a day"), "{error}");
    // Two files were given the same base URL by hand: neither can be trusted.
    let text = std::fs::read_to_string(bench.data().join("apis/other.json")).unwrap();
    std::fs::write(bench.data().join("apis/z.json"), text.replace("\"other\"", "\"z\"")).unwrap();
    let error = send(&bench, json!({"url": site.url("/a/x")})).await.unwrap_err();
    assert!(error.contains("other, z") && error.contains("same base_url"), "{error}");
    assert_eq!(site.connections(), 1);
}

#[tokio::test]
async fn unreadable_profile_blocks_requests_that_no_other_profile_covers() {
    let (bench, site) = (bench(), Site::echo());
    create(&bench, profile("good", &site.url("/good"), json!({"type": "none"}))).await;
    std::fs::write(bench.data().join("apis/torn.json"), "{\"id\": \"torn\", \"base_url\": \"http://12")
        .unwrap();
    for path in ["/a/x", "/page.html"] {
        let error = send(&bench, json!({"url": site.url(path)})).await.unwrap_err();
        assert!(error.contains("torn.json") && error.contains("not JSON"), "{error}");
    }
    assert_eq!(site.connections(), 0);
    send(&bench, json!({"url": site.url("/good/x")})).await.unwrap();
}

#[tokio::test]
async fn only_sent_requests_are_counted() {
    let closed = Bench::new();
    let site = Site::echo();
    create(&closed, limited("mine", &site.url("/a"))).await;
    for _ in 0..2 {
        let error = send(&closed, json!({"url": site.url("/a/x")})).await.unwrap_err();
        assert!(error.contains("closed to tools"), "{error}");
    }
    let bench = closed.restart_with(reach_this_machine).await;
    send(&bench, json!({"url": site.url("/a/x")})).await.unwrap();
    assert!(send(&bench, json!({"url": site.url("/a/x")})).await.unwrap_err().contains("allows 1 request "));
}

#[tokio::test]
async fn query_credential_follows_redirects_within_the_base_url_only() {
    let bench = bench();
    let site = Site::start(|request| match request.split_whitespace().nth(1).unwrap_or_default() {
        path if path.starts_with("/a/in") => answer("302 Found", "Location: /a/x?y=1\r\n", ""),
        path if path.starts_with("/a/out") => answer("302 Found", "Location: /b/x?y=1\r\n", ""),
        _ => page("text/plain", request),
    });
    bench.secrets().set("KEY", "Query/Key+value99", &["127.0.0.1".to_owned()], 1).unwrap();
    let auth = json!({"type": "query", "query_param": "key", "value": "secret:KEY"});
    create(&bench, profile("mine", &site.url("/a"), auth)).await;
    let text = send(&bench, json!({"url": site.url("/a/in")})).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && !text.contains("value99"), "{text}");
    assert!(
        site.seen().last().unwrap().starts_with("GET /a/x?y=1&key=Query%2FKey%2Bvalue99 "),
        "{:?}",
        site.seen()
    );
    send(&bench, json!({"url": site.url("/a/out")})).await.unwrap();
    assert!(site.seen().last().unwrap().starts_with("GET /b/x?y=1 "), "{:?}", site.seen());
}
