//! Builds the setup of models from the configuration, the environment and the stored secrets.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gantry_agent::{
    AnswerLimits, ConfigVersion, DiscoveredModels, LocalServer, ModelSetup, ModelSource, is_loopback,
    set_usual_tiers,
};
use gantry_net::HostPattern;
use gantry_tool::nearest;

use crate::config::{Config, StoredSecret, changes_that_need_restart};
use crate::environment::Environment;

/// Returns the configured models, and the models of providers whose keys the environment holds.
pub(crate) fn setup(environment: &Environment, config: &Config) -> Result<ModelSetup> {
    let secret = stored_secret(environment);
    let variable = |name: &str| environment.variable(name)?.to_str().map(str::to_owned);
    let mut settings = config.models.settings(&variable, &secret, environment.trust()?);
    set_usual_tiers(&mut settings);
    Ok(ModelSetup {
        settings,
        budgets: config.models.budgets(),
        limits: AnswerLimits {
            total: Duration::from_secs(config.models.limits.seconds),
            stall: Duration::from_secs(config.models.limits.stall_seconds),
        },
        configured_providers: config.models.provider_names(),
        section: serde_json::to_value(&config.models)?,
    })
}

/// Returns the models of [`setup`], and those that servers report. Asks the servers.
pub(crate) async fn found(environment: &Environment, config: &Config) -> Result<DiscoveredModels> {
    Ok(DiscoveredModels::find(setup(environment, config)?, &local_servers(environment)).await)
}

/// Opens a stored secret for the host that it was stored for.
pub(crate) fn stored_secret(environment: &Environment) -> StoredSecret {
    let secrets = environment.secrets();
    Arc::new(move |name, url| {
        let stored = secrets.all().map_err(|err| err.to_string())?;
        let host = url.host_str().unwrap_or_default();
        let Some(secret) = stored.get(name) else {
            let near = nearest(name, stored.keys().map(String::as_str));
            let near = near.first().map(|near| format!("; did you mean secret:{near}?")).unwrap_or_default();
            return Err(format!(
                "unknown secret {name}{near}; store it with `gantry secrets set {name} --host {host}`"
            ));
        };
        let mut patterns = secret.hosts.iter().filter_map(|host| HostPattern::parse(host).ok());
        if !patterns.any(|pattern| pattern.matches(host)) {
            return Err(format!("secret:{name} was stored for {}, not for {host}", secret.hosts.join(", ")));
        }
        if url.scheme() != "https" && !is_loopback(url) {
            return Err(format!("secret:{name} is sent over https only, and {url} is http"));
        }
        Ok(secret.expose().to_owned())
    })
}

/// The addresses of Ollama and llama.cpp, from the variables that these programs read themselves.
fn local_servers(environment: &Environment) -> Vec<LocalServer> {
    let variable = |name: &str| {
        environment.variable(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
    };
    let ollama = variable("OLLAMA_HOST").unwrap_or("127.0.0.1:11434");
    let llama = variable("LLAMA_ARG_PORT").unwrap_or("8080");
    vec![
        LocalServer::new("ollama", ollama, 11434),
        LocalServer::new("llamacpp", &format!("127.0.0.1:{llama}"), 8080),
    ]
}

/// The configuration file as the source of a gateway's models.
pub(crate) struct ConfiguredModels {
    environment: Environment,
    /// The configuration that the gateway started with.
    started_with: Config,
}

impl ConfiguredModels {
    pub(crate) fn new(environment: &Environment, config: &Config) -> ConfiguredModels {
        ConfiguredModels { environment: environment.clone(), started_with: config.clone() }
    }

    /// Returns the changed keys of the configuration file that need a restart.
    pub(crate) fn needs_restart(&self) -> Vec<String> {
        self.load_config().map(|now| changes_that_need_restart(&self.started_with, &now)).unwrap_or_default()
    }

    fn load_config(&self) -> Option<Config> {
        let mut config = self.environment.layers.load().ok()?;
        config.resolve_paths(|path| self.environment.resolve(path));
        Some(config)
    }
}

impl ModelSource for ConfiguredModels {
    fn version(&self) -> ConfigVersion {
        self.environment.configuration_version()
    }

    fn load(&self) -> Option<ModelSetup> {
        let config = self.load_config()?;
        let setup = setup(&self.environment, &config).ok()?;
        self.environment.live_secrets.add(config.secrets());
        Some(setup)
    }

    fn local_servers(&self) -> Vec<LocalServer> {
        local_servers(&self.environment)
    }
}
