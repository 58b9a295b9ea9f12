//! The adapter against a server of Slack's Web API that somebody else wrote.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::adapter::SendOutcome;

const GENERAL: &str = "C000000001";

struct Emulate {
    child: Child,
    api: String,
}

impl Drop for Emulate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulate {
    fn start() -> Emulate {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mcp/node_modules");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/slack/tests/emulate.mjs");
        let mut child = Command::new(root.join("node/bin/node"))
            .arg(script)
            .arg(root.join("emulate/dist/api.js"))
            .arg(port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("emulate is needed for this test: run `cargo xtask setup`");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http"), "emulate did not start: {line:?}");
        Emulate { child, api: format!("{}/api/", line.trim()) }
    }

    fn slack(&self, token: &'static str) -> Slack {
        let secrets = move |_: &str, _: &gantry_net::Url| Ok(token.to_owned());
        Slack::new(&config(&self.api), "default", &ClientOptions::default(), Arc::new(secrets))
    }
}

async fn sent(slack: &Slack, key: &str, thread: Option<&str>, content: Content) -> String {
    let message = Outbound { key: key.into(), ..outbound(to(GENERAL, thread), content) };
    match slack.send(&message).await {
        SendOutcome::Sent { message_id } => message_id.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_stores_messages_threads_edits_and_files() {
    let server = Emulate::start();
    let slack = server.slack(BOT_TOKEN);
    let first = sent(&slack, "k1", None, Content::Text("**hello** <all>".into())).await;
    let reply = sent(&slack, "k2", Some(&first), Content::Text("in the thread".into())).await;
    let edit = Content::Edit { message_id: first.clone(), markdown: "changed".into() };
    sent(&slack, "k3", None, edit).await;
    let file = Content::File {
        name: "a.md".into(),
        mime: "text/markdown".into(),
        bytes: b"content".to_vec().into(),
        caption: "a file".into(),
    };
    sent(&slack, "k4", None, file).await;
    let read = json!({ "channel": GENERAL, "ts": first, "include_all_metadata": true });
    let thread: Value = slack.json("conversations.replies", &read).await.unwrap();
    let messages = thread["messages"].as_array().unwrap();
    let texts: Vec<&str> = messages.iter().filter_map(|message| message["text"].as_str()).collect();
    assert_eq!(texts, ["changed", "in the thread"], "{thread}");
    assert_eq!(messages[1]["ts"], reply.as_str());
    assert_eq!(messages[1]["metadata"]["event_payload"]["key"], "k2", "{thread}");
    let history: Value = slack.json("conversations.history", &json!({ "channel": GENERAL })).await.unwrap();
    let files: Vec<&Value> = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["files"].is_array())
        .collect();
    assert_eq!(files.len(), 1, "{history}");
    assert_eq!(files[0]["files"][0]["name"], "a.md", "{history}");
    // A token without the scope is refused, and nobody tries again.
    let refused = server
        .slack("xoxb-0000-READONLY")
        .send(&outbound(to(GENERAL, None), Content::Text("x".into())))
        .await;
    assert!(matches!(&refused, SendOutcome::Refused(why) if why.contains("missing_scope")), "{refused:?}");
}
