//! Models for agents: the configured ones, those found on this machine when somebody asks, and what they may cost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use gantry_agent::{AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure};
use gantry_model::{Limits, ModelError, Models, Reply, Request, StreamEvent, Tier};
use gantry_store::Database;
use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::models::{NO_MODEL, configured, found};
use crate::places::Places;
use crate::spending::Spending;

/// Servers on this machine are looked for at most so often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(crate) struct AgentModels {
    places: Places,
    config: Config,
    spending: Spending,
    models: Mutex<Arc<Models>>,
    looked: tokio::sync::Mutex<Option<Instant>>,
}

impl AgentModels {
    pub(crate) fn new(
        places: &Places,
        config: &Config,
        database: Database,
        zone: TimeZone,
    ) -> Result<AgentModels> {
        Ok(AgentModels {
            models: Mutex::new(Arc::new(Models::new(configured(places, config)?))),
            spending: Spending::new(config.models.budgets(), database, zone),
            places: places.clone(),
            config: config.clone(),
            looked: tokio::sync::Mutex::default(),
        })
    }

    fn models(&self) -> Arc<Models> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks for servers on this machine, unless somebody has just done so.
    async fn look(&self) {
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|when| when.elapsed() < LOOK_AGAIN) {
            return;
        }
        if let Ok((settings, _)) = found(&self.places, &self.config).await {
            *self.models.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Models::new(settings));
        }
        *looked = Some(Instant::now());
    }

    async fn ask(
        &self,
        asker: &Asker,
        request: &Request,
        cancel: &CancellationToken,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, ModelFailure> {
        let models = self.models();
        let model = models.resolve(&request.model).map_err(|err| ModelFailure::Failed(err.to_string()))?;
        let fallback = models.fallback().and_then(|name| models.resolve(name).ok());
        let allowed =
            self.spending.allow(asker, request, model, fallback).await.map_err(ModelFailure::Failed)?;
        let limits = &self.config.models.limits;
        let within = Limits {
            stall: Duration::from_secs(limits.stall_seconds),
            fallback: allowed.fallback,
            ..Limits::within(Duration::from_secs(limits.seconds))
        };
        let reply = models.answer(request, within, cancel, events).await.map_err(|err| match &err {
            ModelError::ContextTooLong { .. } => ModelFailure::Overflow(in_words(&err)),
            _ => ModelFailure::Failed(in_words(&err)),
        })?;
        let cost = models.cost(&reply.usage, &reply.model);
        let settled = self.spending.settle(allowed, asker, cost).await;
        settled.map_err(|err| ModelFailure::Failed(err.to_string()))?;
        Ok(reply)
    }
}

impl Model for AgentModels {
    fn answer<'a>(
        &'a self,
        asker: &'a Asker,
        request: &'a Request,
        cancel: &'a CancellationToken,
        events: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> AnswerFuture<'a> {
        Box::pin(self.ask(asker, request, cancel, events))
    }

    fn facts<'a>(&'a self, name: Option<&'a str>) -> FactsFuture<'a> {
        Box::pin(async move {
            if let Ok(facts) = facts(&self.models(), name) {
                return Ok(facts);
            }
            self.look().await;
            facts(&self.models(), name)
        })
    }
}

/// By its name; without one, the balanced model, or the only one there is.
fn facts(models: &Models, name: Option<&str>) -> Result<ModelFacts, String> {
    if models.list().is_empty() {
        return Err(NO_MODEL.to_owned());
    }
    let model = match name {
        Some(name) => models.resolve(name).map_err(|err| err.to_string())?,
        None => match (models.resolve(Tier::Balanced.name()), models.list()) {
            (Ok(model), _) | (Err(_), [model, ..]) => model,
            (Err(err), []) => return Err(err.to_string()),
        },
    };
    Ok(ModelFacts {
        name: model.name.clone(),
        window: usize::try_from(model.facts.context_window).unwrap_or(usize::MAX / 16),
        max_output: model.facts.max_output,
    })
}

fn in_words(err: &ModelError) -> String {
    match err.hint() {
        Some(hint) => format!("{err} ({hint})"),
        None => err.to_string(),
    }
}
