//! Models for agents: the configured ones, those found on this machine when somebody asks, and what they may cost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use gantry_agent::{AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure};
use gantry_model::{Limits, ModelError, Models, Reply, Request, StreamEvent, Tier};
use gantry_protocol::GatewayStatus;
use gantry_store::Database;
use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, changes_that_need_restart};
use crate::environment::Environment;
use crate::models::{NO_MODEL, configured, describe, found};
use crate::spending::Spending;

/// Servers on this machine are looked for at most so often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(crate) struct AgentModels {
    environment: Environment,
    /// The configuration that the gateway was started with.
    started_with: Config,
    spending: Spending,
    current: Mutex<Current>,
    looked: tokio::sync::Mutex<Option<(Instant, FileVersion)>>,
}

type FileVersion = Option<(u64, SystemTime)>;

/// The models as the configuration file has them now.
#[derive(Clone)]
struct Current {
    version: FileVersion,
    config: Arc<Config>,
    models: Arc<Models>,
}

impl AgentModels {
    pub(crate) fn new(
        environment: &Environment,
        config: &Config,
        database: Database,
        zone: TimeZone,
    ) -> Result<AgentModels> {
        let models = Arc::new(Models::new(configured(environment, config)?));
        let version = environment.configuration_version();
        Ok(AgentModels {
            current: Mutex::new(Current { version, config: Arc::new(config.clone()), models }),
            spending: Spending::new(config.models.budgets(), database, zone),
            environment: environment.clone(),
            started_with: config.clone(),
            looked: tokio::sync::Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The models as they are configured now. A file that is not valid changes nothing; the gateway warns of it.
    fn current(&self) -> Current {
        let version = self.environment.configuration_version();
        let mut current = self.lock();
        if current.version != version {
            current.version = version;
            if let Ok(mut config) = self.environment.layers.load() {
                config.resolve_paths(|path| self.environment.resolve(path));
                self.take_up(&mut current, config);
            }
        }
        current.clone()
    }

    fn take_up(&self, current: &mut Current, config: Config) {
        let is_same =
            serde_json::to_value(&config.models).ok() == serde_json::to_value(&current.config.models).ok();
        let Ok(settings) = configured(&self.environment, &config) else { return };
        if is_same {
            return;
        }
        self.environment.live_secrets.add(config.secrets());
        self.spending.set_budgets(config.models.budgets());
        current.models = Arc::new(Models::new(settings));
        current.config = Arc::new(config);
    }

    /// Looks for servers on this machine, unless somebody has just done so.
    async fn look(&self) -> Vec<String> {
        let mut looked = self.looked.lock().await;
        let Current { version, config, .. } = self.current();
        if looked.is_some_and(|(when, of)| of == version && when.elapsed() < LOOK_AGAIN) {
            return Vec::new();
        }
        let mut problems = Vec::new();
        match found(&self.environment, &config).await {
            Ok((settings, reported)) => {
                problems = reported;
                let mut current = self.lock();
                if current.version == version {
                    current.models = Arc::new(Models::new(settings));
                }
            }
            Err(err) => problems.push(format!("{err:#}")),
        }
        *looked = Some((Instant::now(), version));
        problems
    }

    /// The models that agents have, and the keys of the configuration file that wait for a restart.
    pub(crate) async fn status(&self) -> GatewayStatus {
        let problems = self.look().await;
        let Current { config, models, .. } = self.current();
        GatewayStatus {
            models: Some(describe(&config, &models, &problems)),
            needs_restart: self.needs_restart(),
        }
    }

    fn needs_restart(&self) -> Vec<String> {
        let Ok(mut now) = self.environment.layers.load() else { return Vec::new() };
        now.resolve_paths(|path| self.environment.resolve(path));
        changes_that_need_restart(&self.started_with, &now)
    }

    async fn ask(
        &self,
        asker: &Asker,
        request: &Request,
        cancel: &CancellationToken,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, ModelFailure> {
        let Current { config, models, .. } = self.current();
        let model = models.resolve(&request.model).map_err(|err| ModelFailure::Failed(err.to_string()))?;
        let fallback = models.fallback().and_then(|name| models.resolve(name).ok());
        let allowed =
            self.spending.allow(asker, request, model, fallback).await.map_err(ModelFailure::Failed)?;
        let shorter = allowed.max_tokens.map(|max_tokens| Request { max_tokens, ..request.clone() });
        let request = shorter.as_ref().unwrap_or(request);
        let limits = &config.models.limits;
        let within = Limits {
            stall: Duration::from_secs(limits.stall_seconds),
            fallback: allowed.fallback,
            ..Limits::within(Duration::from_secs(limits.seconds))
        };
        let reply = models.answer(request, within, cancel, events).await.map_err(|err| match &err {
            ModelError::ContextTooLong { window, .. } => ModelFailure::Overflow {
                message: in_words(&err),
                window: window.and_then(|tokens| usize::try_from(tokens).ok()),
            },
            ModelError::Empty { .. } => ModelFailure::Empty(in_words(&err)),
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
            if let Ok(facts) = facts(&self.current().models, name) {
                return Ok(facts);
            }
            self.look().await;
            facts(&self.current().models, name)
        })
    }
}

/// By its name; without one, the balanced model, or the only one there is.
fn facts(models: &Models, name: Option<&str>) -> Result<ModelFacts, String> {
    if models.list().is_empty() {
        return Err(format!("{NO_MODEL}\n`gantry models` lists the models that the gateway has"));
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
