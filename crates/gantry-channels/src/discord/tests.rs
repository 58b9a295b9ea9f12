//! The adapter against a server that behaves like Discord.

mod connection;
mod receiving;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use gantry_net::ClientOptions;
use gantry_testkit::chat::discord::{CHANNEL, DIRECT, FakeDiscord, TOKEN};
use gantry_testkit::{SOON, eventually_async};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Discord;
use crate::adapter::{Adapter, Content, ListenError, Outbound};
use crate::address::{Address, PeerKind};
use crate::testing::RecordingIntake;

fn discord_with(fake: &FakeDiscord, token: &'static str, listed: &[&str]) -> Discord {
    let groups: serde_json::Map<String, Value> =
        listed.iter().map(|id| ((*id).to_owned(), json!({ "allow": ["*"] }))).collect();
    let config = json!({ "token": "secret:DISCORD", "apiUrl": fake.api_url(), "groups": groups });
    let config = serde_json::from_value(config).unwrap();
    let secrets = move |name: &str, _: &gantry_net::Url| match name {
        "DISCORD" => Ok(token.to_owned()),
        _ => Err("unknown secret".to_owned()),
    };
    Discord::new(&config, "default", &ClientOptions::default(), Arc::new(secrets))
}

fn discord(fake: &FakeDiscord) -> Discord {
    discord_with(fake, TOKEN, &[CHANNEL])
}

struct Listening {
    intake: Arc<RecordingIntake>,
    task: JoinHandle<ListenError>,
}

impl Listening {
    /// Starts to listen and waits for the session.
    async fn start(fake: &FakeDiscord) -> Listening {
        let intake = Arc::new(RecordingIntake::default());
        let listening = Listening::with(discord(fake), &intake);
        listening.connected(1).await;
        listening
    }

    /// Listens from the cursor of the intake.
    fn with(discord: Discord, intake: &Arc<RecordingIntake>) -> Listening {
        let heard = Arc::clone(intake);
        let task = tokio::spawn(async move {
            let cursor = heard.cursor.lock().unwrap().clone();
            discord.listen(&*heard, cursor).await
        });
        Listening { intake: Arc::clone(intake), task }
    }

    async fn connected(&self, times: usize) {
        let count = || self.intake.names.lock().unwrap().len();
        eventually_async("connected", SOON, || count() >= times).await;
    }

    async fn ended(self) -> ListenError {
        tokio::time::timeout(SOON, self.task).await.expect("listening goes on").unwrap()
    }

    async fn hear(&self, count: usize) {
        let messages = || self.intake.messages.lock().unwrap().len();
        eventually_async("messages arrive", SOON, || messages() >= count).await;
    }

    /// Stops as a killed process does.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

fn again(ended: &ListenError) -> &str {
    match ended {
        ListenError::Again { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

fn to(chat: &str, thread: Option<&str>) -> Address {
    let kind = match (chat, thread) {
        (_, Some(_)) => PeerKind::Thread,
        (DIRECT, None) => PeerKind::Dm,
        _ => PeerKind::Channel,
    };
    Address {
        channel: "discord".into(),
        account: "default".into(),
        kind,
        chat: chat.into(),
        thread: thread.map(str::to_owned),
    }
}

const KEY: &str = "00112233445566778899aabbccddeeff00112233";

fn outbound(address: Address, content: Content) -> Outbound {
    Outbound { key: KEY.into(), address, reply_to: None, content }
}

/// Waits a moment for something that must not happen.
async fn moment() {
    tokio::time::sleep(Duration::from_millis(150)).await;
}
