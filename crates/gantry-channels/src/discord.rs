//! Discord: events over the gateway, answers over REST.

mod api;
mod buckets;
mod cursor;
mod error;
mod event;
mod gateway;
mod listen;
mod missing;
mod nonce;
mod places;
mod press;
mod send;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests set up their own world")]
mod tests;
mod text;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, Redirects, Request, Url};
use serde::Deserialize;
use tokio::time::Instant;

use crate::adapter::{
    AccountInfo, Adapter, Intake, Limits, ListenError, Media, Outbound, Problem, SendOutcome,
};
use crate::address::Address;
use crate::config::DiscordConfig;
use crate::connection::{Connection, REQUEST_LIMIT};
use crate::render;
use api::Call;
use cursor::is_id;

/// The hosts that get the account's credentials.
const HOSTS: &[&str] = &["discord.com", "*.discord.gg"];
/// The hosts that files are read from.
const FILE_HOSTS: &[&str] = &["cdn.discordapp.com", "media.discordapp.net"];
const API: &str = "https://discord.com/api/v10";
const MAX_TEXT: usize = 2_000;
const MAX_BUTTONS: usize = 25;
const MAX_FILE: usize = 10 << 20;
/// The field of `allowed_mentions` that, when empty, lets a message notify nobody.
const NO_MENTIONS: &str = "parse";
/// The application may read the content of messages: in general, or with fewer than 100 servers.
const MAY_READ_CONTENT: u64 = 1 << 18 | 1 << 19;
/// The most listed channels that a test looks at.
const MAX_TESTED: usize = 50;

pub(crate) struct Discord {
    connection: Connection,
    /// Without credentials, for files.
    files: Connection,
    api: Option<Url>,
    token: String,
    /// The channels that the configuration lists.
    listed: Vec<String>,
    buckets: buckets::Buckets,
    places: places::Places,
    /// The pauses before an attempt to send is repeated.
    pauses: [Duration; 3],
}

#[derive(Deserialize)]
struct Application {
    #[serde(default)]
    flags: u64,
}

impl Discord {
    pub(crate) fn new(
        config: &DiscordConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Discord {
        let own = config.api_url.as_deref().and_then(|url| url.parse().ok());
        let api = if config.api_url.is_some() { own.clone() } else { API.parse().ok() };
        Discord {
            connection: Connection::new(account, network, secrets.clone(), HOSTS, own.as_ref()),
            files: Connection::new(account, network, secrets, FILE_HOSTS, own.as_ref()),
            api,
            token: config.token.clone(),
            listed: config.groups.keys().cloned().collect(),
            buckets: buckets::Buckets::default(),
            places: places::Places::default(),
            pauses: send::PAUSES,
        }
    }

    /// Reads a file. The address has a signature, and no credential goes along.
    async fn download(&self, media: &Media, limit: usize) -> Result<Bytes, String> {
        let url: Url =
            media.source.parse().map_err(|_| "Discord sent an address that is not a URL".to_owned())?;
        let host = url.host_str().unwrap_or_default();
        let is_plain = self.api.as_ref().is_some_and(|api| api.scheme() == "http");
        if !self.files.policy.allows(host) || url.scheme() != "https" && !is_plain {
            return Err(format!("the file is at {host}, which is not one of Discord's hosts for files"));
        }
        let mut request = Request::get(url, Instant::now() + REQUEST_LIMIT);
        request.policy = self.files.policy.clone();
        request.redirects = Redirects::Stop;
        let response = self.files.client.send(request).await.map_err(|err| err.to_string())?;
        if response.status.is_redirection() {
            return Err("Discord redirects the download elsewhere, which is not followed".to_owned());
        }
        if !response.status.is_success() {
            return Err(format!("Discord answered {} to the download", response.status));
        }
        let body = response.body.read(limit).await.map_err(|err| err.to_string())?;
        if body.cut {
            return Err(format!("the file is larger than {limit} bytes"));
        }
        Ok(body.bytes.into())
    }

    async fn check(&self) -> Result<AccountInfo, Problem> {
        let me = self.me().await.map_err(|err| err.problem())?;
        let path = ["applications", "@me"];
        let application: Application =
            self.call(Call::get("read the application", &path)).await.map_err(|err| err.problem())?;
        if application.flags & MAY_READ_CONTENT == 0 {
            let text = gateway::message_content_is_off();
            let (message, fix) = text.split_once(": ").unwrap_or((&text, ""));
            return Err(Problem { message: message.to_owned(), fix: fix.to_owned() });
        }
        let mut warnings = Vec::new();
        for channel in self.listed.iter().take(MAX_TESTED) {
            if !is_id(channel) {
                warnings.push(format!(
                    "groups.{channel:?} is not the id of a channel: copy the id with Copy Channel ID in Discord"
                ));
                continue;
            }
            match self.place(channel).await {
                Ok(place) => warnings.extend(
                    place
                        .parent
                        .map(|parent| format!("{channel} is a thread: list its channel {parent} instead")),
                ),
                Err(err) => warnings.push(format!("the listed channel {channel}: {err}: {}", err.fix())),
            }
        }
        Ok(AccountInfo { name: format!("@{}", me.username), warnings })
    }
}

impl Adapter for Discord {
    fn limits(&self) -> Limits {
        Limits {
            text: MAX_TEXT,
            buttons: MAX_BUTTONS,
            file: MAX_FILE,
            can_edit: true,
            // Discord ignores repetitions for some minutes only, and a restart may take longer. An attempt that a crash
            // interrupted is settled by the event about the message, which has the nonce.
            ignores_repetitions: false,
            may_approve: true,
        }
    }

    fn measure(&self, markdown: &str) -> usize {
        render::discord::measure(markdown)
    }

    fn listen<'a>(&'a self, intake: &'a dyn Intake, cursor: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(self.run(intake, cursor))
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.deliver(message))
    }

    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.download(media, limit))
    }

    fn typing<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(err) = self.show_typing(address).await {
                tracing::debug!("{err}");
            }
        })
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(self.check())
    }
}
