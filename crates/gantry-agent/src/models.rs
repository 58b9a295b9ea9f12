//! Models for sessions: [`Model`] is the contract, [`AgentModels`] the implementation over the
//! configured providers, with budgets and the discovery of servers on this machine.

use std::future::Future;
use std::pin::Pin;

use gantry_model::{Reply, Request, StreamEvent};
use tokio_util::sync::CancellationToken;

use crate::child::AccountBudget;

mod agent_models;
mod discovery;
mod report;
mod spending;

pub use agent_models::{AgentModels, AnswerLimits, ConfigVersion, ModelSetup, ModelSource};
pub use discovery::{DiscoveredModels, LocalServer, is_loopback, set_usual_tiers};

/// The message when no model is configured.
pub const NO_MODEL: &str = "no model is configured; there are three ways to get one:\n  \
    1. set ANTHROPIC_API_KEY or OPENAI_API_KEY, and restart the gateway if it runs without it\n  \
    2. start Ollama or llama.cpp's server on this machine; Gantry finds it\n  \
    3. configure a server: gantry config set models.providers.NAME.baseUrl http://HOST:PORT/v1";

pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ModelFailure>> + Send + 'a>>;

/// `Model` answers the requests of sessions.
pub trait Model: Send + Sync + 'static {
    /// Answers the request, and passes each event of the stream to `events` as it arrives.
    fn answer<'a>(
        &'a self,
        asker: &'a Asker,
        request: &'a Request,
        cancel: &'a CancellationToken,
        events: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> AnswerFuture<'a>;

    /// Returns the facts about a model, or the reason why it cannot be used. `None` is the default model.
    fn facts<'a>(&'a self, name: Option<&'a str>) -> FactsFuture<'a>;
}

pub type FactsFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelFacts, String>> + Send + 'a>>;

/// `Asker` names the account that pays for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    pub agent: String,
    /// The run. For a child it is the run of its root session.
    pub run: String,
    /// The account that is charged: the run's own, or one below it.
    pub account: String,
    /// The budgets of this account and of the accounts above it.
    pub budgets: Vec<AccountBudget>,
}

impl Asker {
    /// The account of a run. The sender chooses a run's id, so the account includes the session.
    pub(crate) fn account(session: &str, run: &str) -> String {
        format!("{session}/{run}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// The name that requests use.
    pub name: String,
    /// Tokens of a request and its answer together.
    pub window: usize,
    /// Tokens of an answer.
    pub max_output: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelFailure {
    /// The request is longer than the model's window.
    #[error("{message}")]
    Overflow {
        message: String,
        /// The model's window in tokens, if the error names it.
        window: Option<usize>,
    },
    /// The answer was empty. Some servers answer this way when the request is too long.
    #[error("{0}")]
    Empty(String),
    #[error("{0}")]
    Failed(String),
}
