//! The `[flow]` section of `gantry.toml`.

use std::collections::BTreeMap;

use gantry_domain::ConfigSection;
use gantry_net::Url;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prefix of a reference to a stored secret.
const SECRET: &str = "secret:";

/// Budgets of background work in US dollars, and where its messages can go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FlowConfig {
    /// Runs schedules, tasks and watches. Definitions can be read and changed either way.
    pub enabled: bool,
    /// The highest cost of one run.
    pub run_budget_usd: f64,
    /// The highest cost of one schedule or task on one day.
    pub daily_budget_usd: f64,
    /// Channels that send messages to a URL, by name.
    pub webhooks: BTreeMap<String, WebhookConfig>,
}

/// A URL that messages are sent to as POST requests with JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebhookConfig {
    /// The receiver. Its address may be private, because the operator names it.
    pub url: String,
    /// A stored secret, as `secret:NAME`. It is sent as `Authorization: Bearer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl WebhookConfig {
    pub(crate) fn secret_name(&self) -> Option<&str> {
        self.secret.as_deref().and_then(|secret| secret.strip_prefix(SECRET))
    }

    fn violations(&self, at: &str) -> Vec<Violation> {
        let violation =
            |key: &str, message: &str| Violation { path: format!("{at}.{key}"), message: message.to_owned() };
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let url = (!self.url.parse::<Url>().is_ok_and(|url| is_web(&url)))
            .then(|| violation("url", "must be an http or https URL"));
        let secret = (self.secret.is_some() && self.secret_name().is_none_or(str::is_empty))
            .then(|| violation("secret", "must be a reference such as secret:NAME, never the value itself"));
        url.into_iter().chain(secret).collect()
    }
}

impl Default for FlowConfig {
    fn default() -> Self {
        FlowConfig { enabled: true, run_budget_usd: 1.0, daily_budget_usd: 5.0, webhooks: BTreeMap::new() }
    }
}

impl ConfigSection for FlowConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let limits = [("runBudgetUsd", self.run_budget_usd), ("dailyBudgetUsd", self.daily_budget_usd)];
        let wrong = limits.into_iter().filter(|(_, limit)| !(limit.is_finite() && *limit > 0.0));
        let limits = wrong.map(|(key, _)| Violation {
            path: format!("{at}.{key}"),
            message: "must be a number of dollars above 0".to_owned(),
        });
        let webhooks = self.webhooks.iter().flat_map(|(name, webhook)| {
            let at = format!("{at}.webhooks.{name}");
            let reserved = (name == "session" || name.trim().is_empty()).then(|| Violation {
                path: at.clone(),
                message: "must have another name, because sessions are a channel of their own".to_owned(),
            });
            reserved.into_iter().chain(webhook.violations(&at)).collect::<Vec<_>>()
        });
        limits.chain(webhooks).collect()
    }
}
