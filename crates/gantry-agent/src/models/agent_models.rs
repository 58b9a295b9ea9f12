//! [`AgentModels`] answers agents' requests: it selects the model, checks budgets and records costs.
//!
//! Models come from the configuration and from servers found on this machine. A changed
//! configuration applies to the next request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gantry_model::{Budgets, Limits, ModelError, Models, ModelsConfig, Reply, Request, StreamEvent, Tier};
use gantry_protocol::ModelsReport;
use gantry_store::Database;
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::discovery::{LocalServer, discover};
use super::report::report;
use super::spending::Spending;
use super::{AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure, NO_MODEL};

/// The shortest time between two searches for servers on this machine.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// `ModelSource` reads the configuration of models, which can change while a gateway runs.
pub trait ModelSource: Send + Sync + 'static {
    /// Returns the version of the configuration, which differs after every change.
    fn version(&self) -> ConfigVersion;

    /// Reads the configuration. Returns `None` if it is invalid; the models then stay unchanged.
    fn load(&self) -> Option<ModelSetup>;

    /// Returns the addresses on this machine where servers usually listen.
    fn local_servers(&self) -> Vec<LocalServer>;
}

/// Length and modification time of the configuration file.
pub type ConfigVersion = Option<(u64, SystemTime)>;

/// `ModelSetup` is what the configuration says about models.
#[derive(Debug, Clone)]
pub struct ModelSetup {
    pub settings: ModelsConfig,
    pub budgets: Budgets,
    pub limits: AnswerLimits,
    /// The names of the configured providers. Other servers were found.
    pub configured_providers: Vec<String>,
    /// The configuration section. Setups with equal sections are the same.
    pub section: Value,
}

/// Time limits of an answer.
#[derive(Debug, Clone, Copy)]
pub struct AnswerLimits {
    /// The limit over all attempts.
    pub total: Duration,
    /// A stream without events for this long is aborted.
    pub stall: Duration,
}

pub struct AgentModels {
    source: Arc<dyn ModelSource>,
    spending: Spending,
    current: Mutex<Current>,
    last_search: tokio::sync::Mutex<Option<(Instant, ConfigVersion)>>,
}

/// The models of one version of the configuration.
#[derive(Clone)]
struct Current {
    version: ConfigVersion,
    setup: Arc<ModelSetup>,
    models: Arc<Models>,
}

impl AgentModels {
    pub fn new(
        source: Arc<dyn ModelSource>,
        setup: ModelSetup,
        database: Database,
        zone: TimeZone,
    ) -> AgentModels {
        let models = Arc::new(Models::new(setup.settings.clone()));
        AgentModels {
            spending: Spending::new(setup.budgets, database, zone),
            current: Mutex::new(Current { version: source.version(), setup: Arc::new(setup), models }),
            source,
            last_search: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the models as configured now. An invalid file changes nothing; the gateway warns about it.
    fn current(&self) -> Current {
        let version = self.source.version();
        let mut current = self.lock();
        if current.version != version {
            current.version = version;
            if let Some(setup) = self.source.load() {
                self.apply(&mut current, setup);
            }
        }
        current.clone()
    }

    fn apply(&self, current: &mut Current, setup: ModelSetup) {
        if setup.section == current.setup.section {
            return;
        }
        self.spending.set_budgets(setup.budgets);
        current.models = Arc::new(Models::new(setup.settings.clone()));
        current.setup = Arc::new(setup);
    }

    /// Searches for servers on this machine, unless a search has just ended. Returns what failed.
    async fn search(&self) -> Vec<String> {
        let mut last_search = self.last_search.lock().await;
        let Current { version, setup, .. } = self.current();
        if last_search.is_some_and(|(when, of)| of == version && when.elapsed() < SEARCH_INTERVAL) {
            return Vec::new();
        }
        let (settings, problems) = discover(&setup.settings, &self.source.local_servers()).await;
        let mut current = self.lock();
        if current.version == version {
            current.models = Arc::new(Models::new(settings));
        }
        drop(current);
        *last_search = Some((Instant::now(), version));
        problems
    }

    /// Returns the models that agents have, with the providers, budgets and warnings.
    pub async fn report(&self) -> ModelsReport {
        let problems = self.search().await;
        let Current { setup, models, .. } = self.current();
        report(&setup, &models, &problems)
    }

    async fn ask(
        &self,
        asker: &Asker,
        request: &Request,
        cancel: &CancellationToken,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, ModelFailure> {
        let Current { setup, models, .. } = self.current();
        let model = models.resolve(&request.model).map_err(|err| ModelFailure::Failed(err.to_string()))?;
        let fallback = models.fallback().and_then(|name| models.resolve(name).ok());
        let permit =
            self.spending.reserve(asker, request, model, fallback).await.map_err(ModelFailure::Failed)?;
        let shorter = permit.max_tokens.map(|max_tokens| Request { max_tokens, ..request.clone() });
        let request = shorter.as_ref().unwrap_or(request);
        let limits = Limits {
            stall: setup.limits.stall,
            fallback: permit.fallback,
            ..Limits::within(setup.limits.total)
        };
        let reply = models.answer(request, limits, cancel, events).await.map_err(|err| match &err {
            ModelError::ContextTooLong { window, .. } => ModelFailure::Overflow {
                message: describe(&err),
                window: window.and_then(|tokens| usize::try_from(tokens).ok()),
            },
            ModelError::Empty { .. } => ModelFailure::Empty(describe(&err)),
            _ => ModelFailure::Failed(describe(&err)),
        })?;
        let cost = models.cost(&reply.usage, &reply.model);
        let recorded = self.spending.record(permit, asker, cost).await;
        recorded.map_err(|err| ModelFailure::Failed(err.to_string()))?;
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
            self.search().await;
            facts(&self.current().models, name)
        })
    }
}

/// Finds a model by its name. Without a name it is the balanced model, or else the first one.
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

fn describe(err: &ModelError) -> String {
    match err.hint() {
        Some(hint) => format!("{err} ({hint})"),
        None => err.to_string(),
    }
}
