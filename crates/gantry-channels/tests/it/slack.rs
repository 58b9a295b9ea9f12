//! Slack's own SDK for Python uses the server as it uses Slack.

use gantry_testkit::chat::slack::{APP_TOKEN, BOT_TOKEN, FakeSlack};
use gantry_testkit::{SOON, eventually_async};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn slack_sdk_accepts_the_server() {
    let fake = FakeSlack::start().await;
    let file = fake.store_file("photo.png", "image/png", b"PNG");
    let drive = async {
        eventually_async("a socket", SOON, || fake.sockets() == 1).await;
        let said = fake.say(json!({
            "type": "message", "channel": "C00000001", "channel_type": "channel", "user": "U00000007",
            "text": "<@UBOT00001> hello", "ts": "1700000001.000100",
        }));
        eventually_async("confirmed", SOON, || fake.confirmed().contains(&said)).await;
        let pressed = fake.push(
            "interactive",
            json!({
                "type": "block_actions",
                "user": { "id": "U00000007", "username": "ada" },
                "container": { "type": "message", "message_ts": "1700000001.000100", "channel_id": "C00000001" },
                "actions": [{ "type": "button", "action_id": "gantry-0", "value": "q1:yes" }],
            }),
        );
        eventually_async("confirmed", SOON, || fake.confirmed().contains(&pressed)).await;
    };
    let api = fake.api_url();
    let args = [api.as_str(), BOT_TOKEN, APP_TOKEN, &file];
    tokio::join!(crate::judge::run("slack", &args), drive);
    let posts = fake.posts();
    assert_eq!(posts.len(), 2);
    assert_eq!(posts[0]["thread_ts"], "1700000001.000100");
    assert_eq!(fake.ephemerals().len(), 1);
    assert_eq!((fake.uploads()[0].name.as_str(), &fake.uploads()[0].bytes[..]), ("a.txt", &b"data"[..]));
}
