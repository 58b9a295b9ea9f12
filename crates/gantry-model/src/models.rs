//! All configured models by name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use gantry_net::{Client, ClientOptions, HostPattern};

use crate::Usage;
use crate::error::UnknownModel;
use crate::known_models;
use crate::model::{Facts, Model, ModelEntry};
use crate::money::Money;
use crate::provider::Provider;
use crate::retry::RetryPolicy;

#[derive(Debug, Clone, Default)]
pub struct ModelsConfig {
    /// In order: a model named without its provider belongs to the first provider that has it.
    pub providers: Vec<Provider>,
    /// The name of the model for each tier.
    pub tiers: BTreeMap<Tier, String>,
    /// The model to ask when the other one cannot answer.
    pub fallback: Option<String>,
    pub retry: RetryPolicy,
    /// Network settings. The providers' own hosts may be private, because the operator named them.
    pub network: ClientOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Fast,
    Balanced,
    Deep,
}

impl Tier {
    pub const ALL: [Tier; 3] = [Tier::Fast, Tier::Balanced, Tier::Deep];

    pub fn name(self) -> &'static str {
        match self {
            Tier::Fast => "fast",
            Tier::Balanced => "balanced",
            Tier::Deep => "deep",
        }
    }
}

impl FromStr for Tier {
    type Err = ();

    fn from_str(text: &str) -> Result<Tier, ()> {
        match text {
            "fast" | "haiku" => Ok(Tier::Fast),
            "balanced" | "sonnet" => Ok(Tier::Balanced),
            "deep" | "opus" => Ok(Tier::Deep),
            _ => Err(()),
        }
    }
}

/// `Models` is cheap to share behind an `Arc`. Connections are kept between requests.
#[derive(Debug)]
pub struct Models {
    pub(crate) providers: Vec<Reached>,
    models: Vec<Model>,
    tiers: BTreeMap<Tier, String>,
    pub(crate) fallback: Option<String>,
    pub(crate) retry: RetryPolicy,
}

/// `Reached` is a provider and the connections to it.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) provider: Provider,
    pub(crate) client: Client,
}

impl Models {
    pub fn new(config: ModelsConfig) -> Models {
        let ModelsConfig { providers, tiers, fallback, retry, network } = config;
        let mut models: Vec<Model> = Vec::new();
        for provider in &providers {
            let named = tiers.values().chain(&fallback).filter_map(|name| name.strip_prefix(&provider.name));
            let named = named.filter_map(|name| name.strip_prefix('/')).map(ModelEntry::named);
            let offered =
                known_models::offered(provider.kind).filter(|_| provider.first_party).map(ModelEntry::named);
            for entry in provider.models.iter().cloned().chain(named).chain(offered) {
                let model = model_of(provider, entry);
                if !models.iter().any(|known| known.name == model.name) {
                    models.push(model);
                }
            }
        }
        let reach =
            |provider: Provider| Reached { client: Client::new(reaching(&network, &provider)), provider };
        Models { providers: providers.into_iter().map(reach).collect(), models, tiers, fallback, retry }
    }

    /// Lists every model, by provider.
    pub fn list(&self) -> &[Model] {
        &self.models
    }

    pub fn tiers(&self) -> impl Iterator<Item = (Tier, &str)> {
        self.tiers.iter().map(|(tier, name)| (*tier, name.as_str()))
    }

    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.iter().map(|reached| &reached.provider)
    }

    /// Finds a model by `provider/model`, by its own name, or by a tier.
    pub fn resolve(&self, name: &str) -> Result<&Model, UnknownModel> {
        let tier = Tier::from_str(name).ok().and_then(|tier| self.tiers.get(&tier));
        let wanted = tier.map_or(name, String::as_str);
        let whole = self.models.iter().find(|model| model.name == wanted);
        let found = whole.or_else(|| self.models.iter().find(|model| model.id == wanted));
        found.ok_or_else(|| self.unknown(wanted))
    }

    /// Returns the cost; `None` if the price is unknown. `model` is any name, including the one in
    /// a [`crate::Reply`].
    pub fn cost(&self, usage: &Usage, model: &str) -> Option<Money> {
        self.resolve(model).ok()?.cost(usage)
    }

    fn unknown(&self, name: &str) -> UnknownModel {
        let lowered = name.to_lowercase();
        let tiers = self.tiers.keys().map(|tier| (tier.name(), tier.name()));
        let names = self.models.iter().flat_map(|model| {
            [(model.name.as_str(), model.name.as_str()), (model.id.as_str(), model.name.as_str())]
        });
        let mut scored: Vec<(f64, &str)> = names
            .chain(tiers)
            .map(|(known, shown)| (strsim::jaro_winkler(&lowered, &known.to_lowercase()), shown))
            .filter(|(score, _)| *score >= 0.72)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let mut nearest: Vec<String> = Vec::new();
        for (_, shown) in scored {
            if nearest.len() < 3 && !nearest.iter().any(|known| known == shown) {
                nearest.push(shown.to_owned());
            }
        }
        UnknownModel { name: name.to_owned(), nearest }
    }
}

impl ModelEntry {
    fn named(id: &str) -> ModelEntry {
        ModelEntry { id: id.to_owned(), ..ModelEntry::default() }
    }
}

fn model_of(provider: &Provider, entry: ModelEntry) -> Model {
    let known = known_models::facts(provider.kind, &entry.id).unwrap_or(Facts::UNKNOWN);
    // A list price applies only to the first party. Resellers set their own prices.
    let list_price = known.price.filter(|_| provider.first_party);
    let context_window = entry.context_window.unwrap_or(known.context_window);
    // A guess must leave room for the prompt.
    let quarter = u32::try_from(context_window / 4).unwrap_or(u32::MAX).max(1);
    let facts = Facts {
        price: entry.price.or(list_price),
        context_window,
        max_output: entry.max_output.unwrap_or(known.max_output.min(quarter)),
        ..known
    };
    Model {
        name: format!("{}/{}", provider.name, entry.id),
        provider: provider.name.clone(),
        id: entry.id,
        facts,
    }
}

pub(crate) fn reaching(network: &ClientOptions, provider: &Provider) -> ClientOptions {
    let mut options = network.clone();
    let host = provider.base_url.host_str();
    options.private_hosts.extend(host.and_then(|host| HostPattern::parse(host).ok()));
    let address = host.and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    if host == Some("localhost") || address.is_some_and(|address| address.is_loopback()) {
        // A loopback address means another machine when it is reached through a proxy.
        options.proxy = None;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ProviderKind;

    fn models() -> Models {
        let anthropic =
            Provider::new("anthropic", ProviderKind::Anthropic, "https://api.anthropic.com".parse().unwrap());
        let mut local =
            Provider::new("local", ProviderKind::Openai, "http://127.0.0.1:8080".parse().unwrap());
        local.models.push(ModelEntry {
            id: "qwen3".into(),
            context_window: Some(8_000),
            ..ModelEntry::default()
        });
        let tiers = [(Tier::Fast, "local/llama"), (Tier::Deep, "claude-opus-5-5")];
        Models::new(ModelsConfig {
            providers: vec![anthropic, local],
            tiers: tiers.into_iter().map(|(tier, name)| (tier, name.to_owned())).collect(),
            ..ModelsConfig::default()
        })
    }

    #[test]
    fn models_are_found_by_every_name() {
        let models = models();
        let check = |name: &str, expected: &str| assert_eq!(models.resolve(name).unwrap().name, expected);
        check("anthropic/claude-sonnet-5-5", "anthropic/claude-sonnet-5-5");
        check("claude-sonnet-5-5", "anthropic/claude-sonnet-5-5");
        check("qwen3", "local/qwen3");
        check("fast", "local/llama");
        check("haiku", "local/llama");
        check("deep", "anthropic/claude-opus-5-5");
        check("opus", "anthropic/claude-opus-5-5");
        let window = |name| models.resolve(name).unwrap().facts.context_window;
        assert_eq!((window("qwen3"), window("fast"), window("deep")), (8_000, 32_768, 1_000_000));
        let output = |name| models.resolve(name).unwrap().facts.max_output;
        assert_eq!((output("qwen3"), output("fast"), output("deep")), (2_000, 8_192, 128_000));
    }

    #[test]
    fn unknown_model_error_names_the_nearest() {
        let models = models();
        let err = models.resolve("claude-sonet-5-5").unwrap_err();
        assert_eq!(err.nearest[0], "anthropic/claude-sonnet-5-5");
        assert!(err.to_string().contains("did you mean anthropic/claude-sonnet-5-5"), "{err}");
        assert_eq!(models.resolve("qwen").unwrap_err().nearest[0], "local/qwen3");
        assert_eq!(
            models.resolve("balanced").unwrap_err().nearest,
            Vec::<String>::new(),
            "a tier nobody set"
        );
        assert_eq!(models.resolve("zzz").unwrap_err().to_string(), "unknown model \"zzz\"");
    }

    #[test]
    fn unknown_price_is_reported_as_unknown() {
        let models = models();
        let usage = Usage { input_tokens: 1_000_000, ..Usage::default() };
        assert_eq!(models.cost(&usage, "deep"), Some(Money::from_dollars(4.0)));
        assert_eq!(models.cost(&usage, "qwen3"), None);
        let mut resold =
            Provider::new("proxy", ProviderKind::Anthropic, "https://proxy.example".parse().unwrap());
        resold.models.push(ModelEntry::named("claude-opus-5-5"));
        let models = Models::new(ModelsConfig { providers: vec![resold], ..ModelsConfig::default() });
        assert_eq!(models.cost(&usage, "claude-opus-5-5"), None, "a list price is the first party's");
    }
}
