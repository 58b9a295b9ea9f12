//! The `[channels]` section of `gantry.toml`: accounts by channel and name, such as `[channels.telegram.default]`.

use std::collections::BTreeMap;

use gantry_domain::ConfigSection;
use gantry_net::Url;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prefix of a reference to a stored secret.
const SECRET: &str = "secret:";

/// Who may write to the bot in a chat of two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DmPolicy {
    /// Strangers get a code, with which the operator can admit them.
    #[default]
    Pairing,
    /// Strangers get no answer.
    Allowlist,
}

/// A group that the bot may take part in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GroupConfig {
    /// The ids of people who may write to the bot here. `*` admits everybody. The owner and members are always admitted.
    pub allow: Vec<String>,
    /// The bot answers messages that do not address it.
    pub answer_all: bool,
}

/// Defines the settings of one channel's accounts: its own fields and those that all channels share.
macro_rules! account {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            /// The agent that answers; `main` when left out.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub agent: Option<String>,
            /// What strangers get who write to the bot alone.
            #[serde(default)]
            pub dm_policy: DmPolicy,
            /// Groups by the provider's id. In others the bot is silent.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub groups: BTreeMap<String, GroupConfig>,
            /// Messages that are older than this when they arrive start no run of their own; 60 when left out.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub stale_minutes: Option<u32>,
        }

        impl $name {
            /// The settings that all channels share.
            pub(crate) fn access(&self) -> Access {
                Access {
                    agent: self.agent.clone().unwrap_or_else(|| "main".to_owned()),
                    dm_policy: self.dm_policy,
                    groups: self.groups.clone(),
                    stale_minutes: self.stale_minutes.unwrap_or(60),
                }
            }
        }
    };
}

/// Who may use an account, and which agent answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) agent: String,
    pub(crate) dm_policy: DmPolicy,
    pub(crate) groups: BTreeMap<String, GroupConfig>,
    pub(crate) stale_minutes: u32,
}

account! {
    /// A Telegram bot.
    TelegramConfig {
        /// The bot's token, as `secret:NAME`.
        token: String,
        /// The address of a Bot API server of your own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        api_url: Option<String>,
        /// Receive by webhook instead of polling. The value is the secret token, as `secret:NAME`. Needs `gateway.publicUrl`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        webhook_secret: Option<String>,
    }
}

account! {
    /// A Slack app, over Socket Mode.
    SlackConfig {
        /// The bot token (`xoxb-…`), as `secret:NAME`.
        bot_token: String,
        /// The app-level token (`xapp-…`) with `connections:write`, as `secret:NAME`.
        app_token: String,
        /// The address of the Web API, for tests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        api_url: Option<String>,
    }
}

account! {
    /// A phone number of the WhatsApp Cloud API. It needs `gateway.publicUrl`.
    WhatsappConfig {
        /// The id of the phone number at Meta: digits, not the number itself.
        phone_number_id: String,
        /// The access token of a system user, as `secret:NAME`.
        token: String,
        /// The app secret, with which Meta signs its requests, as `secret:NAME`.
        app_secret: String,
        /// The verify token that you enter at Meta, as `secret:NAME`.
        verify_token: String,
        /// The message that is sent to people who have not written for 24 hours. Without it such messages fail.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<WhatsappTemplate>,
        /// The address of the Graph API with its version, for tests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        api_url: Option<String>,
    }
}

account! {
    /// A Discord bot.
    DiscordConfig {
        /// The bot's token, as `secret:NAME`.
        token: String,
        /// The address of the REST interface, for tests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        api_url: Option<String>,
    }
}

/// An approved template of the WhatsApp account. Its body has one variable, which gets the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WhatsappTemplate {
    /// The name of the template, such as `agent_notice`.
    pub name: String,
    /// The code of its language, such as `en_US`.
    pub language: String,
}

account! {
    /// A Matrix account.
    MatrixConfig {
        /// The homeserver, such as `https://matrix.example.org`.
        homeserver: String,
        /// The access token, as `secret:NAME`.
        token: String,
    }
}

account! {
    /// A mailbox.
    EmailConfig {
        /// The address that the agent writes from.
        address: String,
        /// The IMAP server as `host:port`; port 993 uses TLS, 143 STARTTLS.
        imap: String,
        /// The SMTP server as `host:port`; port 465 uses TLS, 587 STARTTLS.
        smtp: String,
        /// The name of the login; the address when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// The password, as `secret:NAME`.
        password: String,
        /// The `authserv-id` of the receiving server. Only mail that it calls genuine is accepted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authserv_id: Option<String>,
        /// Accept mail without a verdict of the receiving server. Senders can then be forged.
        #[serde(default)]
        accept_unverified: bool,
    }
}

account! {
    /// Signed HTTP requests in both directions.
    WebhookAccountConfig {
        /// The key of the signatures, as `secret:NAME`.
        secret: String,
        /// Where answers are sent. Without it there are no answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    }
}

account! {
    /// A bridge: a program that connects to the gateway with the role `channel`.
    BridgeConfig {
        /// The name of the client token that the bridge connects with.
        token_name: String,
    }
}

/// The accounts of all channels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ChannelsConfig {
    pub telegram: BTreeMap<String, TelegramConfig>,
    pub slack: BTreeMap<String, SlackConfig>,
    pub whatsapp: BTreeMap<String, WhatsappConfig>,
    pub discord: BTreeMap<String, DiscordConfig>,
    pub matrix: BTreeMap<String, MatrixConfig>,
    pub email: BTreeMap<String, EmailConfig>,
    pub webhook: BTreeMap<String, WebhookAccountConfig>,
    /// By the channel's name, which the bridge chooses, such as `irc`.
    pub bridge: BTreeMap<String, BridgeConfig>,
}

/// The name in a reference such as `secret:TELEGRAM`.
pub(crate) fn secret_name(reference: &str) -> Option<&str> {
    reference.strip_prefix(SECRET).filter(|name| !name.is_empty())
}

impl ConfigSection for ChannelsConfig {
    fn needs_restart(&self) -> bool {
        false
    }

    fn violations(&self, at: &str) -> Vec<Violation> {
        let mut found = Found { at: at.to_owned(), violations: Vec::new() };
        for (name, account) in &self.telegram {
            found.secret("telegram", name, "token", &account.token);
            found.url("telegram", name, "apiUrl", account.api_url.as_deref());
            if let Some(secret) = &account.webhook_secret {
                found.secret("telegram", name, "webhookSecret", secret);
            }
        }
        for (name, account) in &self.slack {
            found.secret("slack", name, "botToken", &account.bot_token);
            found.secret("slack", name, "appToken", &account.app_token);
            found.url("slack", name, "apiUrl", account.api_url.as_deref());
        }
        for (name, account) in &self.whatsapp {
            found.secret("whatsapp", name, "token", &account.token);
            found.secret("whatsapp", name, "appSecret", &account.app_secret);
            found.secret("whatsapp", name, "verifyToken", &account.verify_token);
            found.url("whatsapp", name, "apiUrl", account.api_url.as_deref());
            let id = &account.phone_number_id;
            if id.is_empty() || id.len() > 32 || !id.bytes().all(|byte| byte.is_ascii_digit()) {
                let message =
                    "must be the id that Meta shows below the phone number, such as 106540352242922";
                found.add("whatsapp", name, "phoneNumberId", message);
            }
            if account
                .template
                .as_ref()
                .is_some_and(|template| template.name.is_empty() || template.language.is_empty())
            {
                found.add("whatsapp", name, "template", "must have a name and a language, such as en_US");
            }
        }
        for (name, account) in &self.discord {
            found.secret("discord", name, "token", &account.token);
            found.url("discord", name, "apiUrl", account.api_url.as_deref());
        }
        for (name, account) in &self.matrix {
            found.secret("matrix", name, "token", &account.token);
            found.url("matrix", name, "homeserver", Some(&account.homeserver));
        }
        for (name, account) in &self.email {
            found.secret("email", name, "password", &account.password);
            for (key, server) in [("imap", &account.imap), ("smtp", &account.smtp)] {
                if host_and_port(server).is_none() {
                    found.add(
                        "email",
                        name,
                        key,
                        "must be a server and a port, such as mail.example.org:993",
                    );
                }
            }
        }
        for (name, account) in &self.webhook {
            found.secret("webhook", name, "secret", &account.secret);
            found.url("webhook", name, "url", account.url.as_deref());
        }
        found.violations
    }
}

/// Splits `host:port`.
pub(crate) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|(host, port)| !host.is_empty() && *port > 0)
}

struct Found {
    at: String,
    violations: Vec<Violation>,
}

impl Found {
    fn add(&mut self, channel: &str, account: &str, key: &str, message: &str) {
        let path = format!("{}.{channel}.{account}.{key}", self.at);
        self.violations.push(Violation { path, message: message.to_owned() });
    }

    fn secret(&mut self, channel: &str, account: &str, key: &str, reference: &str) {
        if secret_name(reference).is_none() {
            let message = "must be a reference such as secret:NAME, never the value itself";
            self.add(channel, account, key, message);
        }
    }

    fn url(&mut self, channel: &str, account: &str, key: &str, url: Option<&str>) {
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        if url.is_some_and(|url| !url.parse::<Url>().is_ok_and(|url| is_web(&url))) {
            self.add(channel, account, key, "must be an http or https URL");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn paths(channel: &str, account: Value) -> Vec<String> {
        let config: ChannelsConfig =
            serde_json::from_value(json!({ channel: { "default": account } })).unwrap();
        config.violations("channels").into_iter().map(|violation| violation.path).collect()
    }

    #[test]
    fn whatsapp_takes_an_id_and_references() {
        let account = |id: &str, token: &str, language: &str| {
            json!({
                "phoneNumberId": id, "token": token, "appSecret": "secret:APP", "verifyToken": "secret:VERIFY",
                "template": { "name": "agent_notice", "language": language },
            })
        };
        assert_eq!(
            paths("whatsapp", account("106540352242922", "secret:WHATSAPP", "en_US")),
            Vec::<String>::new()
        );
        for id in ["", "+49 170 1234567", "../me", &"1".repeat(40)] {
            let expected = ["channels.whatsapp.default.phoneNumberId"];
            assert_eq!(paths("whatsapp", account(id, "secret:WHATSAPP", "en_US")), expected, "{id}");
        }
        let expected = ["channels.whatsapp.default.token", "channels.whatsapp.default.template"];
        assert_eq!(paths("whatsapp", account("1", "EAAtheTokenItself", "")), expected);
    }
}
