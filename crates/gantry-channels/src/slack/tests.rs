//! The adapter against a server that behaves like Slack.

#[expect(clippy::disallowed_methods, reason = "the test starts a server")]
mod emulate;
mod receiving;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use gantry_net::ClientOptions;
use gantry_testkit::chat::slack::{APP_TOKEN, BOT_TOKEN, FakeSlack};
use gantry_testkit::{SOON, eventually_async};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Slack;
use crate::adapter::{Adapter, Content, ListenError, Outbound};
use crate::address::{Address, PeerKind};
use crate::config::SlackConfig;
use crate::testing::RecordingIntake;

const USER: &str = "U00000007";

fn config(api_url: &str) -> SlackConfig {
    let config = json!({ "botToken": "secret:BOT", "appToken": "secret:APP", "apiUrl": api_url });
    serde_json::from_value(config).unwrap()
}

fn slack_with(fake: &FakeSlack, bot: &'static str, app: &'static str) -> Slack {
    let secrets = move |name: &str, _: &gantry_net::Url| match name {
        "BOT" => Ok(bot.to_owned()),
        "APP" => Ok(app.to_owned()),
        _ => Err("unknown secret".to_owned()),
    };
    Slack::new(&config(&fake.api_url()), "default", &ClientOptions::default(), Arc::new(secrets))
}

fn slack(fake: &FakeSlack) -> Slack {
    slack_with(fake, BOT_TOKEN, APP_TOKEN)
}

struct Listening {
    intake: Arc<RecordingIntake>,
    task: JoinHandle<ListenError>,
}

impl Listening {
    /// Starts to listen and waits for the socket.
    async fn start(fake: &FakeSlack, slack: Slack) -> Listening {
        let intake = Arc::new(RecordingIntake::default());
        let listening = Listening::with(slack, &intake);
        eventually_async("connected", SOON, || !intake.names.lock().unwrap().is_empty()).await;
        assert_eq!(fake.sockets(), 1);
        listening
    }

    fn with(slack: Slack, intake: &Arc<RecordingIntake>) -> Listening {
        let heard = Arc::clone(intake);
        let task = tokio::spawn(async move { slack.listen(&*heard, None).await });
        Listening { intake: Arc::clone(intake), task }
    }

    async fn ended(self) -> ListenError {
        tokio::time::timeout(SOON, self.task).await.expect("listening goes on").unwrap()
    }

    async fn hear(&self, count: usize) {
        let messages = || self.intake.messages.lock().unwrap().len();
        eventually_async("messages arrive", SOON, || messages() >= count).await;
    }
}

async fn confirmed(fake: &FakeSlack, envelope: &str) {
    eventually_async("confirmed", SOON, || fake.confirmed().iter().any(|known| known == envelope)).await;
}

fn said(channel: &str, ts: &str, text: &str) -> Value {
    json!({ "type": "message", "channel": channel, "channel_type": "channel", "user": USER, "text": text, "ts": ts })
}

fn to(chat: &str, thread: Option<&str>) -> Address {
    let kind = if chat.starts_with('D') { PeerKind::Dm } else { PeerKind::Channel };
    Address {
        channel: "slack".into(),
        account: "default".into(),
        kind,
        chat: chat.into(),
        thread: thread.map(str::to_owned),
    }
}

fn outbound(address: Address, content: Content) -> Outbound {
    Outbound { key: "k0123456789abcdef".into(), address, reply_to: None, content }
}

/// Waits a moment for something that must not happen.
async fn moment() {
    tokio::time::sleep(Duration::from_millis(150)).await;
}
