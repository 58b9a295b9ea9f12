//! Retries, limits and errors of the API client.

use std::time::{Duration, Instant};

use gantry_testkit::google::Fault;
use serde_json::{Value, json};

use super::*;
use crate::testing::{ANN, Bench};

const LIST: &str = "calendar.events.list";

fn list() -> Value {
    json!({"action": "list_events"})
}

async fn bench() -> Bench {
    Bench::with_scopes(&["calendar.readonly", "calendar.events", "spreadsheets"]).await
}

fn reject(status: u16, reason: &'static str, retry_after: Option<&str>) -> Fault {
    let headers = retry_after.map(|seconds| ("Retry-After".to_owned(), seconds.to_owned()));
    Fault::Reject(status, reason, headers.into_iter().collect())
}

#[tokio::test]
async fn reads_are_repeated_after_limits_and_failures() {
    let bench = bench().await;
    for fault in [
        reject(429, "rateLimitExceeded", Some("0")),
        reject(403, "userRateLimitExceeded", Some("0")),
        Fault::CutAfter,
        Fault::Html(502),
    ] {
        let before = bench.fake.seen_of(LIST).len();
        bench.fake.fail(LIST, fault.clone());
        assert!(bench.call("google_calendar", list()).await.is_ok(), "{fault:?}");
        assert_eq!(bench.fake.seen_of(LIST).len(), before + 2, "{fault:?}");
    }
}

#[tokio::test]
async fn retry_after_is_obeyed_and_a_long_one_ends_the_call() {
    let bench = bench().await;
    bench.fake.fail(LIST, reject(429, "rateLimitExceeded", Some("1")));
    let started = Instant::now();
    assert!(bench.call("google_calendar", list()).await.is_ok());
    assert!(started.elapsed() >= Duration::from_secs(1));
    bench.fake.fail(LIST, reject(429, "rateLimitExceeded", Some("3600")));
    let error = bench.call("google_calendar", list()).await.unwrap_err();
    assert!(error.contains("Google limits the rate of requests; wait a minute"), "{error}");
}

#[tokio::test]
async fn attempts_are_bounded() {
    let bench = bench().await;
    for _ in 0..10 {
        bench.fake.fail(LIST, reject(429, "rateLimitExceeded", Some("0")));
    }
    assert!(bench.call("google_calendar", list()).await.is_err());
    assert_eq!(bench.fake.seen_of(LIST).len(), usize::try_from(MAX_ATTEMPTS).unwrap());
}

/// A limit refuses before anything happens, so even an append may be repeated.
#[tokio::test]
async fn refused_append_is_repeated() {
    let bench = bench().await;
    let id = bench.fake.state().sheets.add("S", &[("One", json!([]))]);
    bench.fake.fail("sheets.spreadsheets.values.append", reject(429, "rateLimitExceeded", Some("0")));
    let input = json!({"action": "append", "spreadsheet_id": id, "range": "One", "values": [["x"]]});
    assert!(bench.call("google_sheets", input).await.is_ok());
    assert_eq!(bench.fake.state().sheets.spreadsheets[&id].sheets[0].1.len(), 1);
}

#[tokio::test]
async fn every_error_says_what_to_do() {
    let bench = bench().await;
    for (fault, expected) in [
        (reject(403, "accessNotConfigured", None), "enable the Google Calendar API for your project"),
        (
            reject(403, "insufficientPermissions", None),
            "the sign-in lacks a scope; `gantry google status` lists",
        ),
        (
            reject(403, "domainPolicy", None),
            "the administrator of the Workspace domain blocks this application",
        ),
        (reject(403, "quotaExceeded", None), "the account's quota is used up"),
        (reject(404, "notFound", None), "it does not exist, or it is not shared with this account"),
        (reject(412, "conditionNotMet", None), "it was changed meanwhile; read it again"),
        (
            reject(400, "badRequest", None),
            "Google Calendar rejected the request: the request was refused on purpose",
        ),
        (Fault::Html(404), "Google Calendar rejected the request: HTTP 404"),
    ] {
        bench.fake.fail(LIST, fault);
        let error = bench.call("google_calendar", list()).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains('<') && error.lines().count() == 1, "{error}");
    }
}

#[tokio::test]
async fn token_that_stays_rejected_is_renewed_once() {
    let bench = bench().await;
    for _ in 0..3 {
        bench.fake.fail(LIST, reject(401, "authError", None));
    }
    let error = bench.call("google_calendar", list()).await.unwrap_err();
    assert!(error.contains("the token was rejected; run `gantry google status`"), "{error}");
    assert_eq!(bench.fake.seen_of(LIST).len(), 2);
}

#[tokio::test]
async fn requests_stay_on_googles_hosts_and_within_the_agents_policy() {
    let bench = bench().await;
    let client = google_client(&ClientOptions::default(), None);
    let closed: Reachable = Arc::new(|_| NetworkPolicy::DenyAll);
    let root = Url::parse(&bench.fake.url()).ok();
    let own = google_client(&ClientOptions::default(), root.as_ref());
    let call = Call::new(gantry_tool::Principal::Operator, gantry_tool::Surface::Cli, "/".into());
    let request = || ApiCall::get(Service::Calendar, "/calendars/primary/events", &["calendar.readonly"]);
    let denied = Api::new(bench.google.api.sign_ins().clone(), own, root, closed)
        .call(&call, None, request())
        .await
        .unwrap_err();
    assert!(denied.to_string().contains("this agent may not use the network"), "{denied}");
    // Without the setting for tests, requests go to Google's own hosts.
    let api =
        Api::new(bench.google.api.sign_ins().clone(), client, None, Arc::new(|_| NetworkPolicy::AllowAll));
    let token = AccessToken { account: ANN.to_owned(), value: "x".to_owned() };
    for (service, url) in [
        (Service::Gmail, "https://gmail.googleapis.com/gmail/v1/users/me/x"),
        (Service::Sheets, "https://sheets.googleapis.com/v4/spreadsheets/x"),
        (Service::Drive, "https://www.googleapis.com/drive/v3/x"),
        (Service::DriveUpload, "https://www.googleapis.com/upload/drive/v3/x"),
        (Service::Calendar, "https://www.googleapis.com/calendar/v3/x"),
        (Service::Docs, "https://docs.googleapis.com/v1/documents/x"),
    ] {
        let request =
            api.request(&token, &ApiCall::get(service, "/x", &[]), tokio::time::Instant::now()).unwrap();
        assert_eq!(request.url.as_str(), url);
        assert!(api.0.policy.allows(request.url.host_str().unwrap()) && !api.0.policy.allows("evil.example"));
    }
}

#[tokio::test]
async fn cancelled_call_ends_at_once() {
    let bench = bench().await;
    bench.fake.fail(LIST, reject(429, "rateLimitExceeded", Some("20")));
    let call = Call::new(gantry_tool::Principal::Operator, gantry_tool::Surface::Cli, "/".into());
    let cancel = call.cancel.clone();
    let started = Instant::now();
    let calling = gantry_tool::testing::call_as(&bench.gate, call, "google_calendar", list());
    let (outcome, ()) = tokio::join!(calling, async {
        gantry_testkit::eventually_async("a request", gantry_testkit::SOON, || {
            !bench.fake.seen_of(LIST).is_empty()
        })
        .await;
        cancel.cancel();
    });
    assert!(outcome.is_err() && started.elapsed() < Duration::from_secs(10));
}
