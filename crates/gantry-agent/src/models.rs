//! What a session needs of a model.

use std::future::Future;
use std::pin::Pin;

use crate::child::AccountBudget;
use gantry_model::{Reply, Request, StreamEvent};
use tokio_util::sync::CancellationToken;

pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ModelFailure>> + Send + 'a>>;

/// Whoever answers requests.
pub trait Model: Send + Sync + 'static {
    /// Answers; says what comes as it comes.
    fn answer<'a>(
        &'a self,
        asker: &'a Asker,
        request: &'a Request,
        cancel: &'a CancellationToken,
        events: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> AnswerFuture<'a>;

    /// What is known of a model by its name, without which the default one is meant; or why it cannot be used.
    fn facts<'a>(&'a self, name: Option<&'a str>) -> FactsFuture<'a>;
}

pub type FactsFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelFacts, String>> + Send + 'a>>;

/// On whose account a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    pub agent: String,
    /// Of a child, the run that its family works for.
    pub run: String,
    /// Where it is written down: the run's own, or one beneath it.
    pub account: String,
    /// Of the accounts that this one is beneath, and of itself.
    pub budgets: Vec<AccountBudget>,
}

impl Asker {
    /// The account of a run. Its id is the sender's choice, so it counts within its session alone.
    pub(crate) fn account(session: &str, run: &str) -> String {
        format!("{session}/{run}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// As it goes into requests.
    pub name: String,
    /// Tokens of a request and its answer together.
    pub window: usize,
    /// Tokens of an answer.
    pub max_output: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelFailure {
    /// The request is longer than the model takes.
    #[error("{message}")]
    Overflow {
        message: String,
        /// The model's window in tokens, where the refusal names it.
        window: Option<usize>,
    },
    /// The answer held nothing. Some servers answer so when the request is longer than they take.
    #[error("{0}")]
    Empty(String),
    #[error("{0}")]
    Failed(String),
}
