//! `[models]`: who serves models, which of them are `fast`, `balanced` and `deep`, and how much they may cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_domain::ConfigSection;
use gantry_model::{
    Budgets, Key, ModelEntry, Money, Price, Provider, ProviderKind, Rates, RetryPolicy, Tier, Unpriced,
};
use gantry_net::{ClientOptions, Trust, Url, names_metadata};
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::no_model;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct ModelsConfig {
    /// The model for simple work, as `provider/model`; `haiku` means it too.
    fast: Option<String>,
    /// The model for most work; `sonnet` means it too.
    balanced: Option<String>,
    /// The model for hard work; `opus` means it too.
    deep: Option<String>,
    /// The model to use when the chosen one cannot answer.
    fallback: Option<String>,
    /// Providers by name, which is the first part of `provider/model`.
    providers: BTreeMap<String, ProviderConfig>,
    /// A proxy on the way to them, as `http://HOST:PORT`; the environment's is not used. Servers on this machine are reached
    /// without it.
    proxy: Option<String>,
    pub(crate) limits: LimitsConfig,
    budgets: BudgetsConfig,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ProviderConfig {
    /// The protocol: `anthropic` (the Messages API) or `openai` (chat completions, as most servers do).
    kind: Option<KindConfig>,
    /// Base URL. It may be a private address.
    base_url: Option<String>,
    /// The API key, or `secret:NAME` for a stored one. Without it, the company's own endpoints use `ANTHROPIC_API_KEY` and
    /// `OPENAI_API_KEY`.
    key: Option<String>,
    /// Models by the provider's own name for them. Missing values come from Gantry's table of known models.
    models: BTreeMap<String, ModelConfig>,
    /// Timeout for the first output, for machines that process long prompts slowly.
    first_byte_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum KindConfig {
    Anthropic,
    Openai,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ModelConfig {
    /// Tokens of prompt and answer together.
    context_window: Option<u64>,
    /// Tokens of an answer.
    max_output: Option<u32>,
    price: Option<PriceConfig>,
}

/// Dollars for a million tokens.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PriceConfig {
    input: f64,
    output: f64,
    /// As the input if left out.
    cache_read: Option<f64>,
    /// As the input if left out.
    cache_write: Option<f64>,
}

/// How long an answer may take.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct LimitsConfig {
    /// Over all attempts.
    pub(crate) seconds: u64,
    /// Timeout of a silent stream.
    pub(crate) stall_seconds: u64,
    /// Of each model.
    attempts: u32,
}

/// In dollars; a call that might pass one is not made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct BudgetsConfig {
    /// Of one run, its children included.
    run: Option<f64>,
    /// Of each agent, in a day.
    agent: Option<f64>,
    /// Of everybody.
    day: Option<f64>,
    /// What to do with a model of unknown price while a budget is set: `refuse` it (the default), or count it as `free`.
    unpriced: UnpricedConfig,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum UnpricedConfig {
    #[default]
    Refuse,
    Free,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig { seconds: 600, stall_seconds: 120, attempts: RetryPolicy::default().attempts }
    }
}

/// Where a provider's key is when it is not in the configuration.
pub(crate) type StoredSecret = Arc<dyn Fn(&str, &Url) -> Result<String, String> + Send + Sync>;

/// The two companies whose endpoints need not be configured.
const KNOWN: [(&str, KindConfig, &str, &str); 2] = [
    ("anthropic", KindConfig::Anthropic, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    ("openai", KindConfig::Openai, "https://api.openai.com/v1", "OPENAI_API_KEY"),
];

impl ConfigSection for ModelsConfig {
    fn violations(&self, _: &str) -> Vec<Violation> {
        ModelsConfig::violations(self)
    }

    /// The gateway loads changed models with the next request of an agent.
    fn needs_restart(&self) -> bool {
        false
    }

    fn secrets(&self) -> Vec<String> {
        ModelsConfig::secrets(self).collect()
    }
}

impl ModelsConfig {
    /// `variable` is the environment; `secret` opens what `secret:NAME` names, for one address.
    pub(crate) fn settings(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
        secret: &StoredSecret,
        trust: Trust,
    ) -> gantry_model::ModelsConfig {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut providers: Vec<Provider> =
            self.providers.iter().filter_map(|(name, own)| own.settings(name, &variable, secret)).collect();
        for (name, _, _, key) in KNOWN {
            if !self.providers.contains_key(name) && variable(key).is_some() {
                providers.extend(ProviderConfig::default().settings(name, &variable, secret));
            }
        }
        let tiers = [(Tier::Fast, &self.fast), (Tier::Balanced, &self.balanced), (Tier::Deep, &self.deep)];
        gantry_model::ModelsConfig {
            providers,
            tiers: tiers.into_iter().filter_map(|(tier, name)| Some((tier, name.clone()?))).collect(),
            fallback: self.fallback.clone(),
            retry: RetryPolicy { attempts: self.limits.attempts, ..RetryPolicy::default() },
            network: ClientOptions {
                proxy: self.proxy.as_ref().and_then(|proxy| proxy.parse().ok()),
                trust,
                ..ClientOptions::default()
            },
        }
    }

    pub(crate) fn provider_names(&self) -> Vec<String> {
        self.providers.keys().cloned().collect()
    }

    pub(crate) fn budgets(&self) -> Budgets {
        let BudgetsConfig { run, agent, day, unpriced } = self.budgets;
        Budgets {
            run: run.map(Money::from_dollars),
            agent: agent.map(Money::from_dollars),
            day: day.map(Money::from_dollars),
            unpriced: match unpriced {
                UnpricedConfig::Refuse => Unpriced::Refused,
                UnpricedConfig::Free => Unpriced::Free,
            },
        }
    }

    /// Returns the values that must not be shown. The name of a stored secret is not one of them.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        let keys = self.providers.values().filter_map(|provider| provider.key.clone());
        let proxy = self.proxy.clone().filter(|proxy| proxy.contains('@'));
        keys.filter(|key| !key.starts_with(SECRET)).chain(proxy)
    }

    /// Checks the model name under a key and returns its error.
    pub(super) fn unknown(&self, key: &str, model: Option<&str>) -> Option<Violation> {
        let providers = self.providers.iter().map(|(name, provider)| {
            (name.as_str(), provider.models.keys().map(String::as_str).collect::<Vec<_>>())
        });
        let message = no_model(model?, providers)?;
        Some(Violation { path: key.to_owned(), message })
    }

    /// Returns the errors that the types cannot express.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let violation = |key: &str, message: &str| Violation {
            path: format!("models.{key}"),
            message: message.to_owned(),
        };
        let mut violations = Vec::new();
        for (key, model) in [
            ("models.fast", &self.fast),
            ("models.balanced", &self.balanced),
            ("models.deep", &self.deep),
            ("models.fallback", &self.fallback),
        ] {
            violations.extend(self.unknown(key, model.as_deref()));
        }
        for (name, provider) in &self.providers {
            violations.extend(provider.violations(&format!("models.providers.{name}"), name));
        }
        let is_proxy =
            |text: &String| text.parse::<Url>().is_ok_and(|url| url.scheme() == "http" && url.has_host());
        if self.proxy.as_ref().is_some_and(|proxy| !is_proxy(proxy)) {
            // Not quoted: it may hold credentials.
            violations.push(violation("proxy", "is not a valid proxy; write it as http://HOST:PORT"));
        }
        for (key, value) in [
            ("limits.seconds", self.limits.seconds),
            ("limits.stallSeconds", self.limits.stall_seconds),
            ("limits.attempts", u64::from(self.limits.attempts)),
        ] {
            if value == 0 {
                violations.push(violation(key, "must be at least 1"));
            }
        }
        if self.limits.attempts > 20 {
            violations.push(violation("limits.attempts", "must be at most 20"));
        }
        let BudgetsConfig { run, agent, day, .. } = self.budgets;
        for (key, value) in [("budgets.run", run), ("budgets.agent", agent), ("budgets.day", day)] {
            if value.is_some_and(|value| !is_amount(value)) {
                violations.push(violation(key, "must be a number of dollars, 0 or more"));
            }
        }
        violations
    }
}

const SECRET: &str = "secret:";

impl ProviderConfig {
    fn settings(
        &self,
        name: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        secret: &StoredSecret,
    ) -> Option<Provider> {
        let kind = match self.kind(name) {
            KindConfig::Anthropic => ProviderKind::Anthropic,
            KindConfig::Openai => ProviderKind::Openai,
        };
        let mut provider = Provider::new(name, kind, address(self.address(name)?).ok()?);
        let usual = KNOWN.into_iter().find(|known| known.1 == self.kind(name)).map(|known| known.3);
        provider.key = match self.key.as_deref().map(str::trim) {
            Some(key) => Some(match key.strip_prefix(SECRET) {
                Some(stored) => {
                    let (stored, url, secret) =
                        (stored.to_owned(), provider.base_url.clone(), Arc::clone(secret));
                    Key::read_by(move || secret(&stored, &url))
                }
                None => Key::fixed(key),
            }),
            // Only where it belongs: others would learn it.
            None if provider.first_party => usual.and_then(variable).map(Key::fixed),
            None => None,
        };
        provider.models = self.models.iter().map(|(id, model)| model.settings(id)).collect();
        provider.first_byte = self.first_byte_seconds.map(Duration::from_secs);
        Some(provider)
    }

    fn kind(&self, name: &str) -> KindConfig {
        let known = KNOWN.into_iter().find(|known| known.0 == name).map(|known| known.1);
        self.kind.or(known).unwrap_or(KindConfig::Openai)
    }

    fn address(&self, name: &str) -> Option<&str> {
        let known = KNOWN.into_iter().find(|known| known.0 == name).map(|known| known.2);
        self.base_url.as_deref().or(known)
    }

    fn violations(&self, path: &str, name: &str) -> Vec<Violation> {
        let violation = |key: &str, message: &str| Violation {
            path: format!("{path}{key}"),
            message: message.to_owned(),
        };
        let mut violations = Vec::new();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_plain) || name.parse::<Tier>().is_ok() {
            violations.push(violation(
                "",
                "is not a valid provider name: use letters, digits, - and _, and not a tier's name",
            ));
        }
        match self.address(name).map(address) {
            None => {
                violations.push(violation(".baseUrl", "is missing; set it, such as http://127.0.0.1:8000/v1"))
            }
            Some(Err(message)) => violations.push(violation(".baseUrl", message)),
            Some(Ok(_)) => {}
        }
        if self.key.as_ref().is_some_and(|key| key.trim().chars().any(|c| !c.is_ascii_graphic())) {
            violations
                .push(violation(".key", "is not a valid key: it contains characters that cannot be sent"));
        }
        for (id, model) in &self.models {
            let price = model.price.iter().flat_map(|price| {
                [Some(price.input), Some(price.output), price.cache_read, price.cache_write]
            });
            if price.flatten().any(|price| !is_amount(price)) {
                violations.push(violation(
                    &format!(".models.{id}.price"),
                    "must be a number of dollars, 0 or more",
                ));
            }
            if model.context_window == Some(0) || model.max_output == Some(0) {
                violations.push(violation(
                    &format!(".models.{id}"),
                    "contextWindow and maxOutput must be at least 1",
                ));
            }
        }
        violations
    }
}

impl ModelConfig {
    fn settings(&self, id: &str) -> ModelEntry {
        let price = self.price.map(|price| {
            Price::flat(Rates {
                input: price.input,
                output: price.output,
                cache_read: price.cache_read.unwrap_or(price.input),
                cache_write: price.cache_write.unwrap_or(price.input),
            })
        });
        ModelEntry {
            id: id.to_owned(),
            price,
            context_window: self.context_window,
            max_output: self.max_output,
        }
    }
}

fn is_amount(dollars: f64) -> bool {
    (0.0..1e9).contains(&dollars)
}

/// Parses and checks the base URL of a provider.
fn address(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL; write it as https://models.example.org/v1")?;
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("must not contain a user or a password; set `key` instead")
        }
        "http" | "https" if url.query().is_some() || url.fragment().is_some() => Err("must not have ? or #"),
        "http" | "https" if names_metadata(&url) => Err("is a cloud's metadata service, which has no models"),
        "http" | "https" => Ok(url),
        _ => Err("must start with https:// or http://"),
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::Models;
    use gantry_tool::parse_checked;
    use serde_json::{Value, json};

    use super::*;

    fn read(config: Value) -> Result<ModelsConfig, String> {
        let listed = |violations: Vec<Violation>| violations.iter().map(|each| format!("{each}\n")).collect();
        let models: ModelsConfig = parse_checked(config).map_err(listed)?;
        match models.violations() {
            wrong if wrong.is_empty() => Ok(models),
            wrong => Err(listed(wrong)),
        }
    }

    fn secret() -> StoredSecret {
        Arc::new(|name, url| Ok(format!("{name}-for-{}", url.host_str().unwrap())))
    }

    fn environment(name: &str) -> Option<String> {
        matches!(name, "ANTHROPIC_API_KEY" | "OPENAI_API_KEY").then(|| format!("key-{name}"))
    }

    fn providers(
        config: Value,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<(String, ProviderKind, String, bool)> {
        let settings = read(config).unwrap().settings(variable, &secret(), Trust::System);
        let shown = |provider: &Provider| {
            (provider.name.clone(), provider.kind, provider.base_url.to_string(), provider.key.is_some())
        };
        settings.providers.iter().map(shown).collect()
    }

    #[test]
    fn keys_in_the_environment_are_enough() {
        assert_eq!(providers(json!({}), &|_| None), []);
        assert_eq!(providers(json!({}), &|_| Some(" ".into())), [], "an empty variable is none");
        let both = [
            ("anthropic".into(), ProviderKind::Anthropic, "https://api.anthropic.com/".into(), true),
            ("openai".into(), ProviderKind::Openai, "https://api.openai.com/v1".into(), true),
        ];
        assert_eq!(providers(json!({}), &environment), both);
    }

    #[test]
    fn a_key_of_the_environment_goes_to_its_company_alone() {
        let elsewhere = json!({"providers": {"anthropic": {"baseUrl": "https://proxy.example"}}});
        let found = providers(elsewhere, &environment);
        assert_eq!(
            found[0],
            ("anthropic".into(), ProviderKind::Anthropic, "https://proxy.example/".into(), false)
        );
    }

    #[test]
    fn a_server_needs_nothing_but_its_address() {
        let lab = json!({"providers": {"lab": {"baseUrl": "http://10.0.0.7:8000/v1"}}});
        let expected = ("lab".into(), ProviderKind::Openai, "http://10.0.0.7:8000/v1".into(), false);
        assert_eq!(providers(lab, &|_| None), [expected]);
    }

    #[test]
    fn tiers_prices_and_budgets_are_taken_over() {
        let config = read(json!({
            "fast": "lab/small", "fallback": "lab/large",
            "providers": {"lab": {"baseUrl": "http://lab:8000", "key": "secret:LAB", "firstByteSeconds": 300, "models": {
                "small": {"contextWindow": 8000, "maxOutput": 500, "price": {"input": 1.0, "output": 2.0, "cacheRead": 0.5}}}}},
            "budgets": {"day": 2.5, "unpriced": "free"}, "limits": {"attempts": 2},
        }))
        .unwrap();
        let settings = config.settings(&|_| None, &secret(), Trust::System);
        assert_eq!(
            (settings.retry.attempts, settings.providers[0].first_byte),
            (2, Some(Duration::from_secs(300)))
        );
        let models = Models::new(settings);
        let fast = models.resolve("haiku").unwrap();
        assert_eq!(
            (fast.name.as_str(), fast.facts.context_window, fast.facts.max_output),
            ("lab/small", 8000, 500)
        );
        let rates = fast.facts.price.unwrap().rates;
        assert_eq!((rates.cache_read, rates.cache_write), (0.5, 1.0));
        assert_eq!(config.budgets().day, Some(Money::from_dollars(2.5)));
        assert_eq!(config.budgets().unpriced, Unpriced::Free);
        assert_eq!(config.secrets().count(), 0, "a secret's name is not a secret value");
    }

    #[test]
    fn invalid_settings_are_reported() {
        for (config, part) in [
            (json!({"providers": {"lab": {}}}), "models.providers.lab.baseUrl: is missing"),
            (json!({"providers": {"a/b": {"baseUrl": "http://x"}}}), "is not a valid provider name"),
            (json!({"providers": {"opus": {"baseUrl": "http://x"}}}), "is not a valid provider name"),
            (json!({"providers": {"lab": {"baseUrl": "ftp://x"}}}), "must start with https://"),
            (json!({"providers": {"lab": {"baseUrl": "http://u:p@x"}}}), "must not contain a user"),
            (json!({"providers": {"lab": {"baseUrl": "http://169.254.169.254/"}}}), "metadata service"),
            (json!({"providers": {"openai": {"key": "two words"}}}), "is not a valid key"),
            (json!({"providers": {"openai": {"kind": "gemini"}}}), "is not one of \"anthropic\", \"openai\""),
            (
                json!({"providers": {"openai": {"models": {"m": {"price": {"input": -1.0, "output": 1.0}}}}}}),
                "must be a number of dollars",
            ),
            (json!({"budgets": {"day": -1.0}}), "models.budgets.day: must be a number of dollars"),
            (json!({"limits": {"attempts": 0}}), "models.limits.attempts: must be at least 1"),
            (json!({"proxy": "socks5://x"}), "is not a valid proxy"),
            (json!({"fst": "x"}), "did you mean \"fast\"?"),
        ] {
            let error = read(config).unwrap_err();
            assert!(error.contains(part), "{part} not in {error}");
        }
    }
}
