//! Google Workspace through the real program: sign-in, tools on every surface, sign-out.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use gantry_testkit::google::{CLIENT_ID, CLIENT_SECRET, FakeGoogle};
use gantry_testkit::{Gateway, SOON, World, eventually, files_below};
use serde_json::json;

/// A user who has configured Google, with a stored client secret.
fn configured(fake: &FakeGoogle) -> World {
    let world = World::new();
    world.configure(&format!(
        "userTimezone = \"Europe/Berlin\"\n[google]\nclientId = \"{CLIENT_ID}\"\nclientSecret = \"secret:GOOGLE\"\n\
         apiUrl = \"{}\"\n",
        fake.url()
    ));
    let stored =
        world.run_with_input(&["secrets", "set", "GOOGLE", "--host", "oauth2.googleapis.com"], CLIENT_SECRET);
    assert_eq!(stored.code, 0, "{stored:?}");
    world
}

/// Runs `gantry google auth` and plays the browser.
pub(crate) fn sign_in(world: &World, more: &[&str]) -> String {
    let args = [&["google", "auth", "--no-browser"], more].concat();
    let mut child = world
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.find_map(|line| line.strip_prefix("Sign in here: ").map(str::to_owned)).unwrap();
    let page = Command::new("curl").args(["-sL", "--max-time", "10", &url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&page.stdout), "You are logged in. You can close this page.");
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    rest.join("\n")
}

fn google_tools(world: &World) -> Vec<String> {
    let listed = world.run(&["tools", "--json"]).json().to_string();
    let names = ["google_gmail", "google_sheets", "google_drive", "google_calendar", "google_docs"];
    names.into_iter().filter(|name| listed.contains(name)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_come_with_the_sign_in_and_go_with_the_sign_out() {
    let fake = FakeGoogle::start().await;
    let event = json!({
        "summary": "Standup", "start": {"dateTime": "2026-11-18T09:00:00+01:00"},
        "end": {"dateTime": "2026-11-18T09:15:00+01:00"},
    });
    fake.state().calendar.add("ann@example.com", event);
    let world = configured(&fake);
    let gateway = Gateway::start(&world);
    assert_eq!(google_tools(&world), Vec::<String>::new());
    let doctor = world.run(&["doctor"]);
    assert!(doctor.stdout.contains("nobody is signed in"), "{}", doctor.stdout);
    let said = sign_in(&world, &["--scope", "calendar.events"]);
    assert!(said.contains("calendar.events"), "{said}");
    eventually("the tools", SOON, || google_tools(&world).len() == 5);
    let input = json!({"action": "list_events", "time_min": "2026-11-18", "time_max": "2026-11-19"});
    let called = world.run(&["call", "google_calendar", &input.to_string()]);
    assert!(called.stdout.contains("- 2026-11-18 09:00 to 09:15: Standup"), "{called:?}");
    let answer = gateway.call("google_calendar", &input);
    assert!(String::from_utf8_lossy(&answer.body).contains("Standup"));
    let refused = world.run(&[
        "call",
        "google_drive",
        r#"{"action":"share","file_id":"abcdef","email":"eve@example.net"}"#,
    ]);
    assert!(
        refused.stderr.contains("gantry google scopes add drive")
            || refused.stdout.contains("gantry google scopes add drive"),
        "{refused:?}"
    );
    let status = world.run(&["google", "status", "--json"]).json();
    assert_eq!(status["accounts"][0]["email"], "ann@example.com");
    let doctor = world.run(&["doctor"]);
    assert!(doctor.stdout.contains("ann@example.com is signed in"), "{}", doctor.stdout);
    let out = world.run(&["google", "logout"]);
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(fake.state().oauth.revoked.len(), 1);
    eventually("no tools", SOON, || google_tools(&world).is_empty());
    assert_eq!(fake.rejected(), Vec::<String>::new());
    // No file of the data directory shows a token or the client's secret.
    for (path, bytes) in files_below(&world.data()) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for secret in ["fake-access-token", "fake-refresh-token", CLIENT_SECRET] {
            assert!(!text.contains(secret), "{secret} in {}", path.display());
        }
    }
}

/// Sends a slash command to the owner's conversation. Returns the status and the answer.
fn command(gateway: &Gateway, text: &str) -> (u16, String) {
    let path = "/v1/sessions/agent:main:main/messages";
    let answer = gateway.ask("POST", path, &[], json!({"message": text}).to_string().as_bytes());
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_signs_in_from_a_conversation() {
    let fake = FakeGoogle::start().await;
    let world = configured(&fake);
    let gateway = Gateway::start(&world);
    let (status, help) = command(&gateway, "/help");
    assert!(status == 200 && help.contains("/google [auth SCOPE"), "{help}");
    let (_, begun) = command(&gateway, "/google auth gmail.send");
    let url = begun.split(['"', ' ', '\\']).find(|word| word.starts_with("http://127")).unwrap().to_owned();
    let page = Command::new("curl").args(["-sL", "--max-time", "10", &url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&page.stdout), "You are logged in. You can close this page.");
    eventually("the tools", SOON, || google_tools(&world).len() == 5);
    let (_, shown) = command(&gateway, "/google");
    assert!(shown.contains("ann@example.com") && shown.contains("gmail.send"), "{shown}");
    // A client token is not the owner.
    let token = world.run(&["tokens", "add", "ci", "--json"]).json()["token"].as_str().unwrap().to_owned();
    let path = "/v1/sessions/agent:main:main/messages";
    let bearer = format!("Bearer {token}");
    let message = json!({"message": "/google auth"}).to_string();
    let refused = gateway.ask("POST", path, &[("authorization", &bearer)], message.as_bytes());
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status >= 400 && !text.contains("http://127"), "{text}");
}

#[test]
fn without_credentials_there_are_no_tools_and_a_hint() {
    let world = World::new();
    let gateway = Gateway::start(&world);
    assert_eq!(google_tools(&world), Vec::<String>::new());
    let status = world.run(&["google"]);
    assert_eq!(status.stdout, "Google is not configured. docs/google.md shows every step.\n");
    let auth = world.run(&["google", "auth"]);
    assert!(
        auth.code != 0 && auth.stderr.contains("set GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET"),
        "{auth:?}"
    );
    let wrong = world.run(&["google", "auth", "--scope", "gmail.sent"]);
    assert!(wrong.stderr.contains("did you mean gmail.send?"), "{wrong:?}");
    drop(gateway);
}
