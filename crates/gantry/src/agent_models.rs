//! Models for agents: the configured ones, those found on this machine when somebody asks, and what they may cost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use gantry_agent::{AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure};
use gantry_model::{
    Budgets, Limits, Model as Known, ModelError, Models, Money, Reply, Request, Spent, StreamEvent, Tier,
    most_it_costs,
};
use gantry_store::Database;
use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::models::{NO_MODEL, configured, found};
use crate::places::Places;

mod held;

use held::{Held, Holds};

/// Servers on this machine are looked for at most so often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(crate) struct AgentModels {
    places: Places,
    config: Config,
    database: Database,
    zone: TimeZone,
    budgets: Budgets,
    holds: Holds,
    /// One looks at what is left at a time.
    looking: tokio::sync::Mutex<()>,
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
            budgets: config.models.budgets(),
            holds: Holds::default(),
            looking: tokio::sync::Mutex::default(),
            places: places.clone(),
            config: config.clone(),
            database,
            zone,
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
        let day = jiff::Timestamp::now().to_zoned(self.zone.clone()).date().to_string();
        let _held = self.check_budget(asker, request, model, &day).await.map_err(ModelFailure::Failed)?;
        let limits = &self.config.models.limits;
        let within = Limits {
            stall: Duration::from_secs(limits.stall_seconds),
            ..Limits::within(Duration::from_secs(limits.seconds))
        };
        let reply = models.answer(request, within, cancel, events).await.map_err(|err| match &err {
            ModelError::ContextTooLong { .. } => ModelFailure::Overflow(in_words(&err)),
            _ => ModelFailure::Failed(in_words(&err)),
        })?;
        if let Some(cost) = models.cost(&reply.usage, &reply.model) {
            let nanos = i64::try_from(cost.nanos()).unwrap_or(i64::MAX);
            let spent = self.database.record_spending(&day, &asker.agent, &asker.account, nanos).await;
            spent.map_err(|err| ModelFailure::Failed(err.to_string()))?;
        }
        Ok(reply)
    }

    /// What the call may cost is held until it has ended; nothing is where there is no budget.
    async fn check_budget(
        &self,
        asker: &Asker,
        request: &Request,
        model: &Known,
        day: &str,
    ) -> Result<Option<Held>, String> {
        let Budgets { run, agent, day: daily, unpriced } = self.budgets;
        let common = run.or(agent).or(daily).map(|_| (self.budgets, asker.run.as_str()));
        // What a child may spend, and each of those above it.
        let own = asker.budgets.iter().map(|budget| {
            let limit = Budgets { run: Some(budget.limit), agent: None, day: None, unpriced };
            (limit, budget.account.as_str())
        });
        let limits: Vec<(Budgets, &str)> = common.into_iter().chain(own).collect();
        if limits.is_empty() {
            return Ok(None);
        }
        let _one = self.looking.lock().await;
        for (budgets, account) in limits {
            let spent =
                self.database.spending(day, &asker.agent, account).await.map_err(|err| err.to_string())?;
            let money = |nanos: i64| Money::from_nanos(u64::try_from(nanos).unwrap_or(0));
            let held = self.holds.sum(account, &asker.agent);
            let spent = Spent {
                run: money(spent.run) + held.run,
                agent: money(spent.agent) + held.agent,
                day: money(spent.day) + held.day,
            };
            budgets.check(request, model, &spent).map_err(|err| err.to_string())?;
        }
        Ok(most_it_costs(request, model).map(|most| self.holds.hold(asker, most)))
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
