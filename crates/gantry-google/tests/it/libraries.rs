//! Google's client library for Python and gspread use the server as they use Google.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use gantry_testkit::google::{CLIENT_ID, CLIENT_SECRET, FakeGoogle};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn google_api_python_client_accepts_calendar_and_drive() {
    let fake = FakeGoogle::start().await;
    let token = fake.token("ann@example.com", &["calendar", "drive"]);
    fake.state().calendar.add(
        "ann@example.com",
        json!({"summary": "Standup", "start": {"dateTime": "2026-11-18T09:00:00+01:00"}, "end": {"dateTime": "2026-11-18T09:15:00+01:00"}}),
    );
    fake.state().drive.add_file("notes.txt", "text/plain", b"hello");
    crate::judge::run("calendar_and_drive", &[&fake.url(), &token]).await;
    assert_eq!(fake.seen_of("calendar.events.insert").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn gspread_accepts_sheets() {
    let fake = FakeGoogle::start().await;
    let token = fake.token("ann@example.com", &["spreadsheets", "drive"]);
    let id = fake.state().sheets.add("Budget", &[("Sheet1", json!([["a", "b"], [1, 2]]))]);
    crate::judge::run("sheets", &[&fake.url(), &token, &id]).await;
    assert_eq!(fake.rejected(), Vec::<String>::new());
}

const MAIL: &str = "From: Jo <j@c.example>\nTo: ann@example.com\nSubject: Plan\nMessage-ID: <m2@c.example>\nMIME-Version: 1.0\n\
    Content-Type: multipart/mixed; boundary=\"b1\"\n\n--b1\nContent-Type: text/plain\n\nHello\n--b1\n\
    Content-Type: application/pdf; name=\"plan.pdf\"\nContent-Disposition: attachment; filename=\"plan.pdf\"\n\
    Content-Transfer-Encoding: base64\n\nJVBERi0xLjQ=\n--b1--\n";

#[tokio::test(flavor = "multi_thread")]
async fn google_api_python_client_accepts_mail_and_docs() {
    let fake = FakeGoogle::start().await;
    let token = fake.token("ann@example.com", &["gmail.modify", "documents"]);
    let received = fake.state().gmail.receive(MAIL);
    let document = fake.state().docs.add("Log", "first");
    crate::judge::run("mail_and_docs", &[&fake.url(), &token, &received, &document]).await;
    assert_eq!(fake.state().gmail.sent().len(), 3);
}

/// Each line is a request that Google rejects, and the beginning of its reason.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_rejected() {
    let fake = FakeGoogle::start().await;
    let token = fake.token("ann@example.com", &["calendar.events", "drive.readonly"]);
    crate::judge::run("rejections", &[&fake.url(), &token]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn google_auth_accepts_the_sign_in() {
    let fake = FakeGoogle::start().await;
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let der = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let robot = "robot@project.example";
    let file = json!({
        "type": "service_account", "client_email": robot, "private_key_id": "k1",
        "private_key": format!("-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n"),
    });
    let path = folder.path().join("key.json");
    std::fs::write(&path, file.to_string()).unwrap();
    fake.state().oauth.service_keys.insert(robot.to_owned(), key.public_key().as_ref().to_vec());
    fake.state().oauth.delegations.insert(robot.to_owned(), vec!["ann@example.com".to_owned()]);
    crate::judge::run("oauth", &[&fake.url(), CLIENT_ID, CLIENT_SECRET, path.to_str().unwrap()]).await;
}
