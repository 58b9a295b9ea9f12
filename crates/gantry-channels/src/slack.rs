//! Slack: events over Socket Mode, answers over the Web API.

mod api;
mod event;
mod listen;
mod rich_text;

mod send;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, Redirects, Request, Url, header};
use serde::Deserialize;
use tokio::time::Instant;

use crate::adapter::{
    AccountInfo, Adapter, Intake, Limits, ListenError, Media, Outbound, Problem, SendOutcome,
};
use crate::config::SlackConfig;
use crate::connection::{Connection, REQUEST_LIMIT};
use api::{CallError, Token};

/// The hosts that get the account's credentials.
const HOSTS: &[&str] = &["slack.com", "*.slack.com", "*.slack-msgs.com"];
const API: &str = "https://slack.com/api/";
/// A socket without a frame for this long is dead: Slack sends pings more often.
const SILENCE: Duration = Duration::from_secs(75);
/// Slack shows at most 40,000 characters, and its clients fold long messages.
const MAX_TEXT: usize = 3_900;
const MAX_BUTTONS: usize = 25;
const MAX_FILE: usize = 50 << 20;
/// How many names of people are remembered.
const MAX_NAMES: usize = 2_000;
/// A name is for display, so nothing waits long for it.
const NAME_LIMIT: Duration = Duration::from_secs(1);
/// How many messages with an unknown outcome are remembered.
const MAX_UNSETTLED: usize = 1_000;
/// What the bot needs, and what fails without it.
const SCOPES: &[(&str, &str)] = &[
    ("chat:write", "answers cannot be sent"),
    ("app_mentions:read", "mentions in channels are not received"),
    ("im:history", "direct messages are not received"),
    ("files:read", "files from people cannot be read"),
    ("files:write", "files cannot be sent"),
];

pub(crate) struct Slack {
    connection: Connection,
    api: Option<Url>,
    bot_token: String,
    app_token: String,
    names: Mutex<HashMap<String, String>>,
    /// Keys of messages that may have arrived. They are looked for before they are sent again.
    unsettled: Mutex<VecDeque<String>>,
    silence: Duration,
}

/// Who the bot is.
#[derive(Debug, Clone, Default, Deserialize)]
struct Identity {
    #[serde(default)]
    user: String,
    #[serde(default)]
    user_id: String,
}

impl Slack {
    pub(crate) fn new(
        config: &SlackConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Slack {
        let own =
            config.api_url.as_deref().and_then(|url| format!("{}/", url.trim_end_matches('/')).parse().ok());
        let api = if config.api_url.is_some() { own.clone() } else { API.parse().ok() };
        Slack {
            connection: Connection::new(account, network, secrets, HOSTS, own.as_ref()),
            api,
            bot_token: config.bot_token.clone(),
            app_token: config.app_token.clone(),
            names: Mutex::default(),
            unsettled: Mutex::default(),
            silence: SILENCE,
        }
    }

    async fn identity(&self) -> Result<Identity, CallError> {
        self.form("auth.test", Token::Bot, &[]).await
    }

    /// Checks that a URL of the provider may get a credential.
    fn pinned(&self, url: &str, schemes: [&str; 2]) -> Result<Url, String> {
        self.connection.pinned("Slack", url, schemes, self.api.as_ref())
    }

    /// The name of a person, for display. It is empty if Slack does not say it in time.
    async fn name_of(&self, user: &str) -> String {
        #[derive(Deserialize)]
        struct Answer {
            user: User,
        }
        #[derive(Deserialize)]
        struct User {
            #[serde(default)]
            name: String,
            #[serde(default)]
            real_name: String,
        }
        if let Some(known) = self.names().get(user) {
            return known.clone();
        }
        let fields = [("user", user)];
        let asked = self.form::<Answer>("users.info", Token::Bot, &fields);
        let name = match tokio::time::timeout(NAME_LIMIT, asked).await {
            Ok(Ok(Answer { user })) if user.real_name.is_empty() => user.name,
            Ok(Ok(Answer { user })) => user.real_name,
            // Without the scope, every further question fails too.
            Ok(Err(CallError::Refused { .. })) => String::new(),
            Ok(Err(_)) | Err(_) => return String::new(),
        };
        let name: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
        let mut names = self.names();
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(user.to_owned(), name.clone());
        name
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn download(&self, media: &Media, limit: usize) -> Result<Bytes, String> {
        let url = self.pinned(&media.source, ["https", "http"])?;
        let mut request = Request::get(url, Instant::now() + REQUEST_LIMIT);
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        let bearer = self.bearer(Token::Bot).map_err(|err| err.to_string())?;
        request.secret_headers.insert(header::AUTHORIZATION, bearer);
        let response = self.connection.client.send(request).await.map_err(|err| err.to_string())?;
        let kind = response.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
        if response.status.is_redirection() || is_page && !media.mime.starts_with("text/html") {
            // Slack answers with its login page.
            return Err(
                "Slack does not give this file to the bot: add the scope files:read and reinstall the app"
                    .into(),
            );
        }
        if !response.status.is_success() {
            return Err(format!("Slack answered {} to the download", response.status));
        }
        let body = response.body.read(limit).await.map_err(|err| err.to_string())?;
        if body.cut {
            return Err(format!("the file is larger than {limit} bytes"));
        }
        Ok(body.bytes.into())
    }

    async fn check(&self) -> Result<AccountInfo, Problem> {
        let (identity, scopes) = self.identity_and_scopes().await.map_err(|err| err.problem(Token::Bot))?;
        self.socket_url().await.map_err(|err| err.problem(Token::App))?;
        let granted: Vec<&str> = scopes.split(',').map(str::trim).collect();
        let missing = SCOPES.iter().filter(|(scope, _)| !scopes.is_empty() && !granted.contains(scope));
        let warnings = missing.map(|(scope, without)| {
            format!("the scope {scope} is missing, so {without}: add it under OAuth & Permissions and reinstall the app")
        });
        Ok(AccountInfo { name: format!("@{}", identity.user), warnings: warnings.collect() })
    }
}

impl Adapter for Slack {
    fn limits(&self) -> Limits {
        Limits {
            text: MAX_TEXT,
            buttons: MAX_BUTTONS,
            file: MAX_FILE,
            can_edit: true,
            ignores_repetitions: false,
            may_approve: true,
        }
    }

    fn measure(&self, markdown: &str) -> usize {
        rich_text::plain(markdown).chars().count()
    }

    fn listen<'a>(&'a self, intake: &'a dyn Intake, _cursor: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(async move {
            match self.run(intake).await {
                Ok(never) => match never {},
                Err(err) => err,
            }
        })
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.deliver(message))
    }

    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.download(media, limit))
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(self.check())
    }
}
