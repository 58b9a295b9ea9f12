//! Starts and stops the accounts of the configuration, and connects them again after failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::OutboxBody;
use gantry_store::NewOutboxMessage;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::adapter::{Adapter, ListenError};
use crate::address::Person;
use crate::chat_channel::ChatChannel;
use crate::chats::{Account, AccountState, Chats, account_id, now_ms};
use crate::config::{Access, ChannelsConfig};
use crate::intake::AccountIntake;
use crate::people::Role;

/// The pauses between attempts to connect. The last one repeats.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
];
/// A connection of this length was good: the pauses start again.
const GOOD: Duration = Duration::from_secs(60);
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// An account of the configuration.
struct Wanted {
    channel: &'static str,
    name: String,
    access: Access,
    settings: Value,
    build: Build,
}

/// Makes the adapter of an account.
type Build = Box<dyn Fn(&Arc<Chats>) -> Arc<dyn Adapter> + Send + Sync>;

/// Adds the accounts of a channel. The constructor gets `$more` too.
macro_rules! wanted {
    ($found:ident, $accounts:expr, $channel:literal, $adapter:path $(, |$chats:ident| $more:expr)?) => {
        for (name, config) in $accounts {
            let (own, account) = (config.clone(), name.clone());
            $found.push(Wanted {
                channel: $channel,
                name: name.clone(),
                access: config.access(),
                settings: serde_json::to_value(config).unwrap_or_default(),
                build: Box::new(move |chats: &Arc<Chats>| {
                    let (network, secret) = (&chats.parts.network, chats.parts.secret.clone());
                    $(let $chats = chats;)?
                    Arc::new($adapter(&own, &account, network, secret $(, $more)?))
                }),
            });
        }
    };
}

fn public_url(chats: &Chats) -> Option<&str> {
    chats.parts.public_url.as_deref()
}

/// The accounts of a configuration.
fn wanted(config: &ChannelsConfig) -> Vec<Wanted> {
    let mut found = Vec::new();
    wanted!(found, &config.discord, "discord", crate::discord::Discord::new);
    wanted!(found, &config.email, "email", crate::email::Email::new);
    wanted!(found, &config.slack, "slack", crate::slack::Slack::new);
    wanted!(found, &config.telegram, "telegram", crate::telegram::Telegram::new, |chats| public_url(chats));
    wanted!(found, &config.webhook, "webhook", crate::webhook::Webhook::new);
    wanted!(found, &config.whatsapp, "whatsapp", crate::whatsapp::WhatsApp::new, |chats| public_url(chats));
    for (name, matrix) in &config.matrix {
        let (own, account) = (matrix.clone(), name.clone());
        found.push(Wanted {
            channel: "matrix",
            name: name.clone(),
            access: matrix.access(),
            settings: serde_json::to_value(matrix).unwrap_or_default(),
            build: Box::new(move |chats: &Arc<Chats>| {
                let (people, name) = (Arc::downgrade(chats), account.clone());
                // Only known people may invite the bot to a room. The owner is not known until the link code was sent in
                // a room, so anybody may invite it while a code waits: that gives no other right.
                let may_invite = Arc::new(move |id: &str| {
                    let person =
                        Person { id: id.to_owned(), alias: None, name: String::new(), is_bot: false };
                    people.upgrade().is_some_and(|chats| {
                        matches!(chats.people.role("matrix", &name, &person), Role::Owner | Role::Member)
                            || chats.people.is_linking("matrix", &name, now_ms())
                    })
                });
                let (network, secret) = (&chats.parts.network, chats.parts.secret.clone());
                Arc::new(crate::matrix::Matrix::new(&own, &account, network, secret, may_invite))
            }),
        });
    }
    for (name, bridge) in &config.bridge {
        let own = bridge.clone();
        found.push(Wanted {
            channel: "bridge",
            name: name.clone(),
            access: bridge.access(),
            settings: serde_json::to_value(bridge).unwrap_or_default(),
            build: Box::new(move |_| Arc::new(crate::bridge::Bridge::new(&own))),
        });
    }
    found
}

/// Makes the running accounts those of a configuration. Accounts whose settings did not change keep running.
pub(crate) fn apply(
    chats: &Arc<Chats>,
    config: &ChannelsConfig,
    tasks: &TaskTracker,
    stopping: &CancellationToken,
) {
    let wanted = wanted(config);
    let keep: BTreeMap<String, &Wanted> =
        wanted.iter().map(|one| (account_id(one.channel, &one.name), one)).collect();
    for account in chats.accounts() {
        if keep.get(&account.id()).is_none_or(|wanted| wanted.settings != account.settings) {
            stop(chats, &account.id());
        }
    }
    for (id, one) in &keep {
        if chats.account(id).is_none() {
            let only = wanted.iter().filter(|other| other.channel == one.channel).count() == 1;
            start(chats, one, only || one.name == "default", tasks, stopping);
        }
    }
}

/// Connects an account again, for example after its secret was stored.
pub(crate) fn restart(
    chats: &Arc<Chats>,
    id: &str,
    config: &ChannelsConfig,
    tasks: &TaskTracker,
    stopping: &CancellationToken,
) {
    stop(chats, id);
    apply(chats, config, tasks, stopping);
}

fn stop(chats: &Chats, id: &str) {
    if let Some(account) = chats.take_account(id) {
        account.stop.cancel();
        account.adapter.close();
        chats.parts.outbox.remove_channel(id);
    }
}

fn start(
    chats: &Arc<Chats>,
    wanted: &Wanted,
    is_default: bool,
    tasks: &TaskTracker,
    stopping: &CancellationToken,
) {
    let account = Arc::new(Account {
        channel: wanted.channel.to_owned(),
        name: wanted.name.clone(),
        access: wanted.access.clone(),
        adapter: (wanted.build)(chats),
        status: Default::default(),
        stop: stopping.child_token(),
        settings: wanted.settings.clone(),
    });
    chats.put_account(account.clone());
    chats.parts.outbox.add_channel(Arc::new(ChatChannel {
        name: account.id(),
        is_default,
        account: account.clone(),
        chats: Arc::downgrade(chats),
    }));
    let (chats, stop) = (chats.clone(), account.stop.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = listen(chats, account) => {}
        }
    });
}

/// Listens until the operator has to do something.
async fn listen(chats: Arc<Chats>, account: Arc<Account>) {
    let intake = AccountIntake { chats: chats.clone(), account: account.clone() };
    let mut failures = 0;
    loop {
        let cursor = match chats.parts.database.channel_cursor(&account.channel, &account.name).await {
            Ok(cursor) => cursor,
            Err(err) => {
                account.set_state(AccountState::Connecting, Some(err.to_string()));
                tokio::time::sleep(PAUSES[2]).await;
                continue;
            }
        };
        let since = Instant::now();
        let ended = account.adapter.listen(&intake, cursor).await;
        let (state, why) = match ended {
            ListenError::Again { why, after } => {
                failures = if since.elapsed() >= GOOD { 0 } else { failures + 1 };
                let pause = PAUSES[(failures as usize).min(PAUSES.len() - 1)];
                let pause = after.unwrap_or(pause).min(MAX_PAUSE);
                tracing::info!(account = account.id(), why, "channel_reconnects");
                account.set_state(AccountState::Connecting, Some(why));
                tokio::time::sleep(pause).await;
                continue;
            }
            ListenError::NeedsLogin(why) => (AccountState::NeedsLogin, why),
            ListenError::Conflict(why) => (AccountState::Conflict, why),
            ListenError::Refused(why) => (AccountState::Refused, why),
        };
        tracing::warn!(account = account.id(), why, "channel_stopped");
        account.set_state(state, Some(why.clone()));
        notify(&chats, &account, &why).await;
        return;
    }
}

/// Tells the operator that an account needs attention: in the main session, and so in another chat.
async fn notify(chats: &Chats, account: &Account, why: &str) {
    let agent = &account.access.agent;
    let id = account.id();
    let message = NewOutboxMessage {
        dedupe: format!("channel-stopped:{id}:{}", now_ms() / 3_600_000),
        channel: "session".to_owned(),
        target: format!("agent:{agent}:main"),
        body: OutboxBody {
            agent: agent.clone(),
            title: format!("The channel {id} stopped"),
            text: format!(
                "{why}\nAfter fixing it, run `gantry channels login {id}`. `gantry channels test {id}` checks it."
            ),
            from: "channels".to_owned(),
            ..OutboxBody::default()
        },
        expires: None,
    };
    if let Err(err) = chats.parts.database.add_outbox(&[message], now_ms()).await {
        tracing::warn!(error = %err, "notice_failed");
    }
    chats.parts.outbox.wake();
}
