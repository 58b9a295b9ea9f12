//! The models there are: what is configured, what the environment has keys for, and what runs on this machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gantry_model::{
    Model, ModelEntry, Models, ModelsConfig, PRICES_AS_OF, Price, Provider, ProviderKind, Tier, list_models,
};
use gantry_net::{HostPattern, Url};
use gantry_protocol::{ModelPrice, ModelReport, ModelsReport, ProviderReport};
use gantry_tool::nearest;

use crate::config::{Config, StoredSecret};
use crate::environment::Environment;

/// What to say where there is none.
pub(crate) const NO_MODEL: &str = "no model is configured; there are three ways to get one:\n  \
    1. set ANTHROPIC_API_KEY or OPENAI_API_KEY, and restart the gateway if it runs without it\n  \
    2. start Ollama or llama.cpp's server on this machine; Gantry finds it\n  \
    3. configure a server: gantry config set models.providers.NAME.baseUrl http://HOST:PORT/v1";

/// A server on this machine answers at once, or is not there.
const LOCAL_PATIENCE: Duration = Duration::from_millis(600);
const REMOTE_PATIENCE: Duration = Duration::from_secs(5);
/// A small machine reads a long prompt for minutes.
const LOCAL_FIRST_BYTE: Duration = Duration::from_secs(600);

/// The usual ones of each company, for tiers that nobody has set.
const USUAL_TIERS: [(&str, [&str; 3]); 2] = [
    ("anthropic", ["claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"]),
    ("openai", ["gpt-6-luna", "gpt-6-sol", "gpt-6-sol"]),
];

/// A server that need not be configured.
struct Local {
    name: &'static str,
    url: Option<Url>,
}

/// What is configured and what the environment has keys for; nobody is asked anything.
pub(crate) fn configured(environment: &Environment, config: &Config) -> Result<ModelsConfig> {
    let secrets = environment.secrets();
    let secret: StoredSecret = Arc::new(move |name, url| {
        let stored = secrets.all().map_err(|err| err.to_string())?;
        let host = url.host_str().unwrap_or_default();
        let Some(secret) = stored.get(name) else {
            let near = nearest(name, stored.keys().map(String::as_str));
            let near = near.first().map(|near| format!("; did you mean secret:{near}?")).unwrap_or_default();
            return Err(format!(
                "there is no secret {name}{near}; it is stored with `gantry secrets set {name} --host {host}`"
            ));
        };
        let mut patterns = secret.hosts.iter().filter_map(|host| HostPattern::parse(host).ok());
        if !patterns.any(|pattern| pattern.matches(host)) {
            return Err(format!("secret:{name} was stored for {}, not for {host}", secret.hosts.join(", ")));
        }
        if url.scheme() != "https" && !is_loopback(url) {
            return Err(format!("secret:{name} goes out over https only, and {url} is http"));
        }
        Ok(secret.expose().to_owned())
    });
    let variable = |name: &str| environment.variable(name)?.to_str().map(str::to_owned);
    let mut models = config.models.settings(&variable, &secret, environment.trust()?);
    set_usual_tiers(&mut models);
    Ok(models)
}

/// As [`configured`], and with what the servers say they have: those on this machine that nobody configured, and those that
/// are configured without their models. What could not be asked is told.
pub(crate) async fn found(environment: &Environment, config: &Config) -> Result<(ModelsConfig, Vec<String>)> {
    let mut models = configured(environment, config)?;
    let mut problems = Vec::new();
    for provider in
        models.providers.iter_mut().filter(|provider| !provider.first_party && provider.models.is_empty())
    {
        match list_models(provider, &models.network, REMOTE_PATIENCE).await {
            Ok(listed) => provider.models = priced(provider, listed),
            Err(err) => problems.push(format!("{} could not be asked for its models: {err}", provider.name)),
        }
    }
    for local in locals(environment) {
        let known = |provider: &Provider| {
            provider.name == local.name || Some(&provider.base_url) == local.url.as_ref()
        };
        let Some(url) = local.url.clone().filter(|_| !models.providers.iter().any(known)) else { continue };
        let mut provider = Provider::new(local.name, ProviderKind::Openai, url);
        provider.first_byte = Some(LOCAL_FIRST_BYTE);
        // Nobody there is the usual case.
        if let Ok(listed) = list_models(&provider, &models.network, LOCAL_PATIENCE).await {
            provider.models = priced(&provider, listed);
            models.providers.push(provider);
        }
    }
    set_usual_tiers(&mut models);
    Ok((models, problems))
}

/// The models there are, as `gantry models` shows them and a gateway reports them.
pub(crate) fn describe(config: &Config, models: &Models, problems: &[String]) -> ModelsReport {
    let providers = models.providers().map(|provider| ProviderReport {
        name: provider.name.clone(),
        base_url: provider.base_url.to_string(),
        found: is_found(config, provider),
        // Company endpoints want a key; other servers often do not.
        lacks_key: provider.first_party && provider.key.is_none(),
    });
    let budgets = config.models.budgets();
    let limits = [("a run", budgets.run), ("an agent and day", budgets.agent), ("a day", budgets.day)];
    let limits = limits.into_iter().filter_map(|(of, limit)| Some(format!("{} {of}", limit?)));
    let unusable = models.tiers().filter_map(|(tier, name)| {
        let err = models.resolve(name).err()?;
        Some(format!("{} is set to {name}, but {err}", tier.name()))
    });
    ModelsReport {
        providers: providers.collect(),
        models: models.list().iter().map(|model| row(config, models, model)).collect(),
        budgets: limits.collect(),
        warnings: problems.iter().cloned().chain(unusable).collect(),
    }
}

fn row(config: &Config, models: &Models, model: &Model) -> ModelReport {
    let provider = models.providers().find(|provider| provider.name == model.provider);
    let price = model.facts.price.map(|price| {
        let rates = price.rates;
        ModelPrice {
            input: rates.input,
            output: rates.output,
            cache_read: rates.cache_read,
            cache_write: rates.cache_write,
        }
    });
    ModelReport {
        name: model.name.clone(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        base_url: provider.map(|provider| provider.base_url.to_string()),
        has_key: provider.is_some_and(|provider| provider.key.is_some()),
        found: provider.is_some_and(|provider| is_found(config, provider)),
        is: roles(models, model).into_iter().map(str::to_owned).collect(),
        context_window: model.facts.context_window,
        max_output: model.facts.max_output,
        price,
        prices_as_of: PRICES_AS_OF.to_owned(),
    }
}

/// The tiers that a model is, and whether it is the fallback.
fn roles(models: &Models, model: &Model) -> Vec<&'static str> {
    let is = |name: &str| models.resolve(name).is_ok_and(|found| found.name == model.name);
    let tiers = models.tiers().filter(|(_, name)| is(name)).map(|(tier, _)| tier.name());
    tiers.chain(models.fallback().filter(|name| is(name)).map(|_| "fallback")).collect()
}

/// Whether a provider was found on this machine, and not configured.
pub(crate) fn is_found(config: &Config, provider: &Provider) -> bool {
    !provider.first_party && !config.models.has_provider(&provider.name)
}

/// One's own machine asks no money.
fn priced(provider: &Provider, mut listed: Vec<ModelEntry>) -> Vec<ModelEntry> {
    if is_loopback(&provider.base_url) {
        listed.iter_mut().for_each(|model| model.price = Some(Price::FREE));
    }
    listed
}

/// Where Ollama and llama.cpp listen, by the variables that they go by themselves.
fn locals(environment: &Environment) -> [Local; 2] {
    let variable = |name: &str| {
        environment.variable(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
    };
    let ollama = variable("OLLAMA_HOST").unwrap_or("127.0.0.1:11434");
    let llama = variable("LLAMA_ARG_PORT").unwrap_or("8080");
    [
        Local { name: "ollama", url: local_url(ollama, 11434) },
        Local { name: "llamacpp", url: local_url(&format!("127.0.0.1:{llama}"), 8080) },
    ]
}

/// Servers are told to listen everywhere, but are reached somewhere.
fn local_url(text: &str, port: u16) -> Option<Url> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let mut url: Url = text.replace("0.0.0.0", "127.0.0.1").parse().ok()?;
    if url.port().is_none() && url.scheme() == "http" {
        url.set_port(Some(port)).ok()?;
    }
    Some(url).filter(is_loopback)
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The first provider that has models serves the tiers that nobody has set.
fn set_usual_tiers(models: &mut ModelsConfig) {
    let names = USUAL_TIERS.iter().find_map(|(provider, ids)| {
        let own = models.providers.iter().find(|known| known.first_party && known.name == *provider)?;
        Some(ids.map(|id| format!("{}/{id}", own.name)))
    });
    let any = || {
        let provider = models.providers.iter().find(|provider| !provider.models.is_empty())?;
        let id = &provider.models.first()?.id;
        Some([(); 3].map(|()| format!("{}/{id}", provider.name)))
    };
    let Some(names) = names.or_else(any) else { return };
    for (tier, name) in Tier::ALL.into_iter().zip(names) {
        models.tiers.entry(tier).or_insert(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_servers_address_is_understood_as_it_is_written() {
        let shown = |text: &str| local_url(text, 11434).map(|url| url.to_string());
        assert_eq!(shown("127.0.0.1:11434").as_deref(), Some("http://127.0.0.1:11434/"));
        assert_eq!(shown("0.0.0.0").as_deref(), Some("http://127.0.0.1:11434/"));
        assert_eq!(shown("http://localhost:8123").as_deref(), Some("http://localhost:8123/"));
        assert_eq!(shown("[::1]:5").as_deref(), Some("http://[::1]:5/"));
        assert_eq!(shown("10.0.0.7:11434"), None, "another machine is configured, not found");
        assert_eq!(shown("a b"), None);
    }
}
