//! Discovery asks servers which models they have, and sets the tiers that nobody configured.

use std::time::Duration;

use gantry_model::{ModelEntry, Models, ModelsConfig, Price, Provider, ProviderKind, Tier, list_models};
use gantry_net::Url;
use gantry_protocol::ModelsReport;

use super::agent_models::ModelSetup;
use super::report;

/// A server on this machine answers at once, or does not run.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(600);
const REMOTE_TIMEOUT: Duration = Duration::from_secs(5);
/// A small machine needs minutes to read a long prompt.
const LOCAL_FIRST_BYTE: Duration = Duration::from_secs(600);

/// The models of each company for tiers that nobody configured.
const USUAL_TIERS: [(&str, [&str; 3]); 2] = [
    ("anthropic", ["claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"]),
    ("openai", ["gpt-6-luna", "gpt-6-sol", "gpt-6-sol"]),
];

/// A server on this machine that works without configuration.
#[derive(Debug, Clone)]
pub struct LocalServer {
    pub name: &'static str,
    url: Option<Url>,
}

impl LocalServer {
    /// `address` is a URL, or a host with or without a port. Only addresses of this machine count.
    pub fn new(name: &'static str, address: &str, default_port: u16) -> LocalServer {
        LocalServer { name, url: local_url(address, default_port) }
    }
}

/// The configured models, and those that servers reported.
#[derive(Debug)]
pub struct DiscoveredModels {
    setup: ModelSetup,
    pub models: Models,
    /// The servers that could not be asked, and why.
    pub problems: Vec<String>,
}

impl DiscoveredModels {
    pub async fn find(setup: ModelSetup, local: &[LocalServer]) -> DiscoveredModels {
        let (settings, problems) = discover(&setup.settings, local).await;
        DiscoveredModels { setup, models: Models::new(settings), problems }
    }

    /// Returns the models as `gantry models` shows them.
    pub fn report(&self) -> ModelsReport {
        report::report(&self.setup, &self.models, &self.problems)
    }

    /// Whether a provider was found on this machine, and is not configured.
    pub fn is_found(&self, provider: &Provider) -> bool {
        self.setup.is_found(provider)
    }
}

/// Adds the models that servers report: servers on this machine that are not configured, and
/// providers that are configured without models. Also returns the servers that could not be asked.
pub(super) async fn discover(settings: &ModelsConfig, local: &[LocalServer]) -> (ModelsConfig, Vec<String>) {
    let mut models = settings.clone();
    let mut problems = Vec::new();
    for provider in
        models.providers.iter_mut().filter(|provider| !provider.first_party && provider.models.is_empty())
    {
        match list_models(provider, &models.network, REMOTE_TIMEOUT).await {
            Ok(listed) => provider.models = priced(provider, listed),
            Err(err) => problems.push(format!("cannot list the models of {}: {err}", provider.name)),
        }
    }
    for server in local {
        let is_known = |provider: &Provider| {
            provider.name == server.name || Some(&provider.base_url) == server.url.as_ref()
        };
        let Some(url) = server.url.clone().filter(|_| !models.providers.iter().any(is_known)) else {
            continue;
        };
        let mut provider = Provider::new(server.name, ProviderKind::Openai, url);
        provider.first_byte = Some(LOCAL_FIRST_BYTE);
        // Usually no server runs there, so a failure is not a problem.
        if let Ok(listed) = list_models(&provider, &models.network, LOCAL_TIMEOUT).await {
            provider.models = priced(&provider, listed);
            models.providers.push(provider);
        }
    }
    set_usual_tiers(&mut models);
    (models, problems)
}

/// Models on this machine are free.
fn priced(provider: &Provider, mut listed: Vec<ModelEntry>) -> Vec<ModelEntry> {
    if is_loopback(&provider.base_url) {
        listed.iter_mut().for_each(|model| model.price = Some(Price::FREE));
    }
    listed
}

/// A server that listens on every address is reached over loopback.
fn local_url(text: &str, port: u16) -> Option<Url> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let mut url: Url = text.replace("0.0.0.0", "127.0.0.1").parse().ok()?;
    if url.port().is_none() && url.scheme() == "http" {
        url.set_port(Some(port)).ok()?;
    }
    Some(url).filter(is_loopback)
}

pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Sets the tiers that nobody configured, to models of the first provider that has models.
pub fn set_usual_tiers(models: &mut ModelsConfig) {
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
    fn address_of_a_local_server_is_normalized() {
        let url = |text: &str| local_url(text, 11434).map(|url| url.to_string());
        assert_eq!(url("127.0.0.1:11434").as_deref(), Some("http://127.0.0.1:11434/"));
        assert_eq!(url("0.0.0.0").as_deref(), Some("http://127.0.0.1:11434/"));
        assert_eq!(url("http://localhost:8123").as_deref(), Some("http://localhost:8123/"));
        assert_eq!(url("[::1]:5").as_deref(), Some("http://[::1]:5/"));
        assert_eq!(url("10.0.0.7:11434"), None, "another machine is configured, not found");
        assert_eq!(url("a b"), None);
    }
}
