//! Sign-ins and tokens against the checking server.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_net::Url;
use gantry_testkit::google::{Consent, FakeGoogle};
use serde_json::json;

use super::*;
use crate::testing::{ANN, Bench, accounts_in, browse, credentials};

const CALENDAR: &[&str] = &["calendar.readonly"];

fn grants_of(fake: &FakeGoogle, kind: &str) -> Vec<BTreeMap<String, String>> {
    let state = fake.state();
    state.oauth.token_requests.iter().filter(|form| form["grant_type"].ends_with(kind)).cloned().collect()
}

/// Signs in with the browser and returns the outcome and what the page said.
async fn sign_in(accounts: &Accounts, more: &[&str]) -> (Result<AccountStatus, SignInError>, String) {
    let more: Vec<String> = more.iter().map(|scope| (*scope).to_owned()).collect();
    let sign_in = accounts.begin_browser(&more).await.unwrap();
    let url = sign_in.url.clone();
    let (account, (_, page)) = tokio::join!(accounts.finish_browser(sign_in), browse(&url));
    (account, page)
}

#[tokio::test]
async fn browser_sign_in_stores_what_was_granted() {
    let bench = Bench::without_account(&["calendar.readonly", "gmail.send"]).await;
    // The person unticks a scope.
    bench.fake.state().oauth.consent = Consent::Only(vec!["calendar.readonly"]);
    let (account, page) = sign_in(&bench.accounts, &[]).await;
    assert_eq!(page, "You are logged in. You can close this page.");
    let account = account.unwrap();
    assert_eq!((account.email.as_str(), account.kind.as_str(), account.is_default), (ANN, "browser", true));
    assert_eq!(account.scopes, ["calendar.readonly"]);
    assert!(bench.accounts.token(None, CALENDAR).await.is_ok());
    let missing = bench.accounts.token(None, &["gmail.send"]).await.err();
    assert_eq!(missing, Some(GoogleError::MissingScope { account: ANN.to_owned(), needed: &["gmail.send"] }));
    // A later sign-in adds a scope and keeps the others.
    bench.fake.state().oauth.consent = Consent::All;
    let (account, _) = sign_in(&bench.accounts, &["drive.file"]).await;
    let mut scopes = account.unwrap().scopes;
    scopes.sort();
    assert_eq!(scopes, ["calendar.readonly", "drive.file", "gmail.send"]);
}

#[tokio::test]
async fn denied_sign_in_stores_nothing() {
    let bench = Bench::without_account(CALENDAR).await;
    bench.fake.state().oauth.consent = Consent::Deny;
    let (outcome, page) = sign_in(&bench.accounts, &[]).await;
    assert_eq!(page, "The login failed. See the terminal for the reason.");
    assert_eq!(outcome.unwrap_err().to_string(), "the sign-in was denied in the browser: access_denied");
    assert!(!bench.accounts.has_any());
}

#[tokio::test]
async fn redirect_with_another_state_is_ignored() {
    let bench = Bench::without_account(CALENDAR).await;
    let sign_in = bench.accounts.begin_browser(&[]).await.unwrap();
    let page = format!("http://127.0.0.1:{}/", sign_in.port().unwrap());
    let url = sign_in.url.clone();
    let attack = async {
        for target in ["?state=forged&code=4/stolen", "?code=4/stolen", "favicon.ico"] {
            let (status, _) = browse(&Url::parse(&format!("{page}{target}")).unwrap()).await;
            assert_eq!(status, 404);
        }
        browse(&url).await
    };
    let (account, _) = tokio::join!(bench.accounts.finish_browser(sign_in), attack);
    assert_eq!(account.unwrap().email, ANN);
}

/// The address that the browser ends at, without going there.
async fn final_address(url: &Url) -> String {
    use gantry_net::{Client, ClientOptions, HostPattern, Redirects, Request};
    let hosts = HostPattern::parse("127.0.0.1").into_iter().collect();
    let client = Client::new(ClientOptions { private_hosts: hosts, ..ClientOptions::default() });
    let mut request = Request::get(url.clone(), tokio::time::Instant::now() + Duration::from_secs(5));
    request.redirects = Redirects::Stop;
    client.send(request).await.unwrap().headers["location"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn pasted_address_signs_in_once_and_must_belong_to_the_sign_in() {
    let bench = Bench::without_account(CALENDAR).await;
    let one = bench.accounts.begin_paste(&[]).unwrap();
    let other = bench.accounts.begin_paste(&[]).unwrap();
    let address = final_address(&one.url).await;
    let wrong = bench.accounts.finish_paste(other, &address).await.unwrap_err();
    assert!(wrong.to_string().contains("does not belong to this sign-in"), "{wrong}");
    assert_eq!(bench.accounts.finish_paste(one, &format!("  {address}\n")).await.unwrap().email, ANN);
    // The code was used.
    let third = bench.accounts.begin_paste(&[]).unwrap();
    let replayed = final_address(&third.url).await;
    let fresh = Url::parse(&replayed).unwrap();
    let old = Url::parse(&address).unwrap();
    let value =
        |url: &Url, name: &str| url.query_pairs().find(|(known, _)| known == name).unwrap().1.into_owned();
    let replayed = replayed.replace(
        &fresh.query().unwrap().split("code=").nth(1).unwrap().to_owned(),
        old.query().unwrap().split("code=").nth(1).unwrap(),
    );
    assert_eq!(value(&Url::parse(&replayed).unwrap(), "code"), value(&old, "code"));
    let error = bench.accounts.finish_paste(third, &replayed).await.unwrap_err();
    assert_eq!(error.code(), Some("invalid_grant"));
}

#[tokio::test]
async fn fifty_callers_renew_a_token_once() {
    let bench = Bench::with_scopes(CALENDAR).await;
    let old = bench.accounts.token(None, CALENDAR).await.unwrap();
    bench.fake.state().oauth.expire_tokens();
    let callers = (0..50).map(|_| {
        let (accounts, old) = (bench.accounts.clone(), old.clone());
        tokio::spawn(async move { accounts.renewed(&old).await.unwrap().value })
    });
    let mut values = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        values.push(caller.await.unwrap());
    }
    values.dedup();
    assert_eq!(values.len(), 1);
    assert_ne!(values[0], old.value);
    assert_eq!(grants_of(&bench.fake, "refresh_token").len(), 1);
}

#[tokio::test]
async fn rejected_token_is_renewed_during_a_call() {
    let bench = Bench::with_scopes(CALENDAR).await;
    bench.fake.state().oauth.expire_tokens();
    let text = bench.call("google_calendar", json!({"action": "list_events"})).await.unwrap();
    assert!(text.starts_with("No events"), "{text}");
    assert_eq!(grants_of(&bench.fake, "refresh_token").len(), 1);
}

#[tokio::test]
async fn ended_grant_removes_the_tokens_and_says_so() {
    let bench = Bench::with_scopes(CALENDAR).await;
    let input = json!({"action": "list_events"});
    bench.fake.state().oauth.forget(ANN);
    let error = bench.call("google_calendar", input.clone()).await.unwrap_err();
    assert!(
        error.starts_with("Google ended the sign-in of ann@example.com: it was revoked, or it expired"),
        "{error}"
    );
    assert!(error.ends_with("(run `gantry google auth` to sign in again)"), "{error}");
    assert_eq!(bench.accounts.0.store.refresh(ANN), Ok(None));
    assert!(bench.accounts.list().unwrap()[0].ended.is_some());
    let requests = grants_of(&bench.fake, "refresh_token").len();
    assert!(bench.call("google_calendar", input.clone()).await.is_err());
    assert_eq!(grants_of(&bench.fake, "refresh_token").len(), requests, "Google is not asked again");
    // A new sign-in repairs it.
    assert!(sign_in(&bench.accounts, &[]).await.0.unwrap().ended.is_none());
    assert!(bench.call("google_calendar", input).await.is_ok());
}

#[tokio::test]
async fn wrong_client_and_server_errors_keep_the_grant() {
    let bench = Bench::with_scopes(CALENDAR).await;
    let input = json!({"action": "list_events"});
    for (fault, expected) in [
        ("invalid_client", "Google does not accept the client id and secret of this application"),
        ("html", "cannot reach Google to sign in"),
        ("server_error", "Google refused the sign-in: server_error"),
    ] {
        bench.fake.state().oauth.expire_tokens();
        bench.fake.state().oauth.token_errors = vec![fault];
        let error = bench.call("google_calendar", input.clone()).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(bench.accounts.0.store.refresh(ANN).unwrap().is_some(), "{fault} lost the grant");
        assert!(bench.call("google_calendar", input.clone()).await.is_ok(), "after {fault}");
    }
}

#[tokio::test]
async fn device_gets_the_scopes_that_google_allows_and_waits_patiently() {
    let bench = Bench::without_account(&["calendar.readonly", "gmail.readonly", "drive.file"]).await;
    let mut sign_in = bench.accounts.begin_device(&[]).await.unwrap();
    sign_in.interval = Duration::from_millis(10);
    assert_eq!(sign_in.left_out, ["gmail.readonly"]);
    assert_eq!(
        (sign_in.user_code.as_str(), sign_in.verification_url.as_str()),
        ("GQVQ-JKEC", "https://www.google.com/device")
    );
    bench.fake.state().oauth.token_errors = vec!["authorization_pending", "html"];
    let account = bench.accounts.finish_device(sign_in).await.unwrap();
    assert_eq!((account.kind.as_str(), account.scopes.len()), ("device", 2));
    assert_eq!(grants_of(&bench.fake, "device_code").len(), 3);
    // Tokens of the device's client are renewed with that client.
    bench.fake.state().oauth.expire_tokens();
    assert!(bench.call("google_calendar", json!({"action": "list_events"})).await.is_ok());
}

#[tokio::test]
async fn device_obeys_slow_down_denial_and_expiry() {
    let bench = Bench::without_account(CALENDAR).await;
    for (errors, expected, requests) in [
        (
            vec!["slow_down", "slow_down", "access_denied"],
            "the sign-in was denied in the browser: access_denied",
            3,
        ),
        (vec!["expired_token"], "the sign-in was not finished within 30 minutes", 1),
        (vec!["invalid_grant"], "Google refused the sign-in: invalid_grant", 1),
    ] {
        let mut sign_in = bench.accounts.begin_device(&[]).await.unwrap();
        let before = grants_of(&bench.fake, "device_code").len();
        let slow_downs = errors.iter().filter(|error| **error == "slow_down").count();
        bench.fake.state().oauth.token_errors = errors;
        assert_eq!((sign_in.interval, sign_in.slower), (Duration::from_secs(1), Duration::from_secs(5)));
        (sign_in.interval, sign_in.slower) = (Duration::from_millis(10), Duration::from_millis(50));
        let started = tokio::time::Instant::now();
        let waiting = bench.accounts.finish_device(sign_in).await;
        let took = started.elapsed();
        let error = waiting.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(grants_of(&bench.fake, "device_code").len() - before, requests);
        // The interval grows each time.
        let least = if slow_downs == 2 { 10 + 60 + 110 } else { 10 };
        assert!(took >= Duration::from_millis(least), "{took:?}");
    }
    let none = Bench::without_account(&["gmail.readonly"]).await;
    let error = none.accounts.begin_device(&[]).await.err().unwrap().to_string();
    assert!(error.contains("Google grants none of these scopes to devices: gmail.readonly"), "{error}");
}

/// A key file, and the public key for the server.
fn key_file(token_uri: &str) -> (String, Vec<u8>) {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der.as_ref())
    );
    let file = json!({
        "type": "service_account", "client_email": "robot@project.example", "private_key": pem,
        "private_key_id": "k1", "token_uri": token_uri,
    });
    (file.to_string(), key.public_key().as_ref().to_vec())
}

#[tokio::test]
async fn service_account_signs_and_its_key_goes_to_google_only() {
    let fake = FakeGoogle::start().await;
    let elsewhere = FakeGoogle::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, public) = key_file(&format!("{}/token", elsewhere.url()));
    fake.state().oauth.service_keys.insert("robot@project.example".to_owned(), public);
    let mut own = credentials(&fake, &["calendar.readonly", "drive"]);
    (own.client, own.device_client, own.service_account) = (None, None, Some(file.clone()));
    let accounts = accounts_in(&folder, own.clone());
    let token = accounts.token(None, CALENDAR).await.unwrap();
    assert_eq!(token.account, "robot@project.example");
    assert_eq!(accounts.token(None, &["drive"]).await.unwrap().value, token.value, "one token for all calls");
    assert_eq!(grants_of(&fake, "jwt-bearer").len(), 1);
    assert!(elsewhere.state().oauth.token_requests.is_empty(), "the key file chose the address");
    assert_eq!(
        accounts.token(None, &["gmail.send"]).await.err().map(|err| err.to_string()).unwrap(),
        "robot@project.example has not granted the scope gmail.send"
    );
    assert!(accounts.sign_out(None).await.unwrap_err().contains("GOOGLE_SERVICE_ACCOUNT_KEY"));
    // With delegation it acts for a user.
    own.service_account_user = Some(ANN.to_owned());
    let accounts = accounts_in(&folder, own);
    let error = accounts.token(None, CALENDAR).await.err().unwrap().to_string();
    assert!(
        error.contains("the service account may not act for ann@example.com")
            && error.contains("domain-wide delegation"),
        "{error}"
    );
    fake.state().oauth.delegations.insert("robot@project.example".to_owned(), vec![ANN.to_owned()]);
    assert_eq!(accounts.token(None, CALENDAR).await.unwrap().account, ANN);
}

#[tokio::test]
async fn unusable_key_is_explained() {
    let fake = FakeGoogle::start().await;
    let folder = tempfile::tempdir().unwrap();
    for (file, expected) in [
        ("no JSON", "is not the JSON file of a service account"),
        (
            r#"{"type":"authorized_user","client_email":"a@b.c","private_key":"x"}"#,
            "must have the type service_account",
        ),
        (r#"{"type":"service_account","client_email":"a@b.c","private_key":"x"}"#, "has no valid RSA key"),
    ] {
        let mut own = credentials(&fake, CALENDAR);
        own.service_account = Some(file.to_owned());
        let accounts = accounts_in(&folder, own);
        assert!(accounts.service_problem().unwrap().contains(expected), "{file}");
        assert!(!accounts.has_any());
    }
}

#[tokio::test]
async fn sign_out_revokes_and_removes_also_if_google_cannot_be_reached() {
    let bench = Bench::with_scopes(CALENDAR).await;
    bench.fake.state().oauth.person = "bob@example.com".to_owned();
    sign_in(&bench.accounts, &[]).await.0.unwrap();
    let emails =
        |accounts: &Accounts| accounts.list().unwrap().into_iter().map(|one| one.email).collect::<Vec<_>>();
    assert_eq!(emails(&bench.accounts), [ANN, "bob@example.com"]);
    bench.accounts.choose("BOB@example.com").unwrap();
    assert_eq!(emails(&bench.accounts), ["bob@example.com", ANN]);
    assert_eq!(bench.accounts.sign_out(None).await, Ok(("bob@example.com".to_owned(), None)));
    assert_eq!(bench.fake.state().oauth.revoked.len(), 1);
    bench.fake.state().oauth.forget(ANN);
    let (email, problem) = bench.accounts.sign_out(Some(ANN)).await.unwrap();
    assert_eq!(email, ANN);
    assert!(problem.unwrap().contains("invalid_token"));
    assert!(!bench.accounts.has_any());
    assert_eq!(bench.accounts.0.store.refresh(ANN), Ok(None));
    let error = bench.call("google_calendar", json!({"action": "list_events"})).await.unwrap_err();
    assert_eq!(error, "no Google account is signed in (run `gantry google auth`)");
}

#[tokio::test]
async fn tokens_are_sealed_masked_and_never_shown() {
    let bench = Bench::with_scopes(&["calendar.readonly", "calendar.events", "drive", "spreadsheets"]).await;
    let id = bench.fake.state().drive.add_file("a.txt", "text/plain", b"x");
    let mut shown = Vec::new();
    for (tool, input) in [
        ("google_calendar", json!({"action": "list_events"})),
        ("google_calendar", json!({"action": "delete_event", "event_id": "missing"})),
        ("google_drive", json!({"action": "read", "file_id": id})),
        ("google_sheets", json!({"action": "read", "spreadsheet_id": "missing"})),
    ] {
        shown.push(format!("{:?}", bench.call(tool, input).await));
    }
    for fault in ["invalid_client", "invalid_grant"] {
        bench.fake.state().oauth.expire_tokens();
        bench.fake.state().oauth.token_errors = vec![fault];
        shown.push(format!("{:?}", bench.call("google_calendar", json!({"action": "list_events"})).await));
    }
    shown.push(format!("{:?}", bench.audit.records()));
    shown.push(format!("{:?} {:?}", bench.accounts.list(), bench.accounts.credentials()));
    // Nothing in the data directory is readable, the account's record included.
    let mut stack = vec![bench.folder.path().join("data")];
    while let Some(folder) = stack.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => stack.push(path),
                false => shown.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()),
            }
        }
    }
    for secret in ["fake-access-token", "fake-refresh-token", "fake-desktop-client-secret", "fake-code"] {
        for text in &shown {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
