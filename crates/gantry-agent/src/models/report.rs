//! The report about models: what `gantry models` shows and what a gateway's status returns.

use gantry_model::{Model, Models, PRICES_AS_OF, Provider};
use gantry_protocol::{ModelPrice, ModelReport, ModelsReport, ProviderReport};

use super::agent_models::ModelSetup;

impl ModelSetup {
    /// Whether a provider was found on this machine, and is not configured.
    pub(super) fn is_found(&self, provider: &Provider) -> bool {
        !provider.first_party && !self.configured_providers.contains(&provider.name)
    }
}

pub(super) fn report(setup: &ModelSetup, models: &Models, problems: &[String]) -> ModelsReport {
    let providers = models.providers().map(|provider| ProviderReport {
        name: provider.name.clone(),
        base_url: provider.base_url.to_string(),
        found: setup.is_found(provider),
        // Company endpoints need a key; other servers often do not.
        lacks_key: provider.first_party && provider.key.is_none(),
    });
    let budgets = setup.budgets;
    let limits = [("a run", budgets.run), ("an agent and day", budgets.agent), ("a day", budgets.day)];
    let limits = limits.into_iter().filter_map(|(of, limit)| Some(format!("{} {of}", limit?)));
    let unusable = models.tiers().filter_map(|(tier, name)| {
        let err = models.resolve(name).err()?;
        Some(format!("{} is set to {name}, but {err}", tier.name()))
    });
    ModelsReport {
        providers: providers.collect(),
        models: models.list().iter().map(|model| model_report(setup, models, model)).collect(),
        budgets: limits.collect(),
        warnings: problems.iter().cloned().chain(unusable).collect(),
    }
}

fn model_report(setup: &ModelSetup, models: &Models, model: &Model) -> ModelReport {
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
        found: provider.is_some_and(|provider| setup.is_found(provider)),
        is: roles(models, model).into_iter().map(str::to_owned).collect(),
        context_window: model.facts.context_window,
        max_output: model.facts.max_output,
        price,
        prices_as_of: PRICES_AS_OF.to_owned(),
    }
}

/// The tiers of a model, and `fallback` if it is the fallback.
fn roles(models: &Models, model: &Model) -> Vec<&'static str> {
    let is = |name: &str| models.resolve(name).is_ok_and(|found| found.name == model.name);
    let tiers = models.tiers().filter(|(_, name)| is(name)).map(|(tier, _)| tier.name());
    tiers.chain(models.fallback().filter(|name| is(name)).map(|_| "fallback")).collect()
}
