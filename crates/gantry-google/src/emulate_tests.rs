//! The tools against a server of Google's APIs that somebody else wrote. It accepts more than Google does, so it is a second
//! opinion on what the tools send and read, and no judge of invalid requests.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gantry_net::Url;
use gantry_testkit::google::installed;
use serde_json::{Value, json};

use crate::testing::Bench;

struct Emulate {
    child: Child,
    url: Url,
}

impl Drop for Emulate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulate {
    fn start() -> Emulate {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = Command::new(installed("node_modules/node/bin/node"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/emulate.mjs"))
            .arg(installed("node_modules/emulate/dist/api.js"))
            .arg(port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Emulate { child, url: Url::parse(line.trim()).expect("emulate did not start") }
    }
}

async fn called(bench: &Bench, tool: &str, input: Value) -> String {
    bench.call(tool, input).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_understands_mail_calendar_and_drive() {
    let server = Emulate::start();
    let bench = Bench::at(&server.url, "emulate-token", &["gmail.modify", "calendar", "drive"]).await;

    let found = called(&bench, "google_gmail", json!({"action": "search", "query": "is:unread"})).await;
    assert!(found.contains("Plan for Friday") && found.contains("msgwelcome"), "{found}");
    let read = called(&bench, "google_gmail", json!({"action": "read", "message_id": "msgwelcome"})).await;
    assert!(read.contains("The meeting is at nine.") && read.contains("jo@c.example"), "{read}");
    let letter =
        json!({"action": "send", "to": "Jürgen <bob@b.example>", "subject": "Grüße", "body": "Bis bald\n"});
    let sent = called(&bench, "google_gmail", letter).await;
    assert!(sent.contains("Mail sent to bob@b.example"), "{sent}");
    let found = called(&bench, "google_gmail", json!({"action": "search", "query": "in:sent"})).await;
    assert!(found.contains("Grüße"), "{found}");
    let reply = json!({"action": "reply", "message_id": "msgwelcome", "body": "I will be there."});
    let replied = called(&bench, "google_gmail", reply).await;
    assert!(replied.contains("Reply sent to jo@c.example"), "{replied}");
    called(&bench, "google_gmail", json!({"action": "mark_read", "message_id": "msgwelcome"})).await;
    let unread = called(&bench, "google_gmail", json!({"action": "search", "query": "is:unread"})).await;
    assert!(!unread.contains("msgwelcome"), "{unread}");
    let labels = called(&bench, "google_gmail", json!({"action": "labels"})).await;
    assert!(labels.contains("INBOX"), "{labels}");

    let event = json!({
        "action": "create_event", "summary": "Stand-up", "start": "2026-11-20T09:00:00Z", "end": "2026-11-20T09:15:00Z",
    });
    called(&bench, "google_calendar", event).await;
    let days = json!({"action": "list_events", "time_min": "2026-11-20", "time_max": "2026-11-21"});
    let listed = called(&bench, "google_calendar", days).await;
    assert!(listed.contains("Stand-up") && listed.contains("10:00"), "in Berlin: {listed}");
    let times = json!({
        "action": "free_busy", "time_min": "2026-11-20T00:00:00Z", "time_max": "2026-11-21T00:00:00Z", "calendars": ["primary"],
    });
    let busy = called(&bench, "google_calendar", times).await;
    assert!(busy.contains("10:00"), "{busy}");

    // It has no `files.generateIds`, which uploads need.
    let found =
        called(&bench, "google_drive", json!({"action": "search", "query": "name contains 'Rep'"})).await;
    assert!(found.contains("Reports"), "{found}");
    let document =
        json!({"action": "create_doc", "file_name": "Notes", "content": "hello", "folder_id": "drvfolder"});
    let created = called(&bench, "google_drive", document).await;
    assert!(created.contains("Notes"), "{created}");
    let listed = called(&bench, "google_drive", json!({"action": "list", "folder_id": "drvfolder"})).await;
    assert!(listed.contains("Notes"), "{listed}");
}
