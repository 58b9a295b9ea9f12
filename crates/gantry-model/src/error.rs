//! `ModelError` says why there is no answer. Each error says what to do, and none contains a key.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error("the key of {provider} cannot be used: {reason}")]
    Key { provider: String, reason: String },
    /// Status 401 or 403.
    #[error("{provider} does not accept the key (status {status}): {message}")]
    Unauthorized { provider: String, status: u16, message: String },
    #[error("{provider} requires payment: {message}")]
    Unpaid { provider: String, message: String },
    /// The request does not fit; a shorter conversation would.
    #[error("the conversation is too long for {model}: {message}")]
    ContextTooLong {
        model: String,
        message: String,
        /// The model's window in tokens, if the refusal names it.
        window: Option<u64>,
    },
    /// The answer was empty, more than once.
    #[error("{model} returned an empty answer")]
    Empty { model: String },
    #[error("{provider} does not have the model {id:?}: {message}")]
    NoSuchModel { provider: String, id: String, message: String },
    /// Any other request that was refused, because of its form or its content.
    #[error("{model} refused the request (status {status}): {message}")]
    Refused { model: String, status: u16, message: String },
    #[error("cannot reach {model}: {reason}")]
    Unreachable { model: String, reason: String },
    /// Every attempt failed for a temporary reason.
    #[error("{model} did not answer, tried {attempts} times over {time:.1?}; the last time: {reason}")]
    Unavailable { model: String, attempts: u32, time: Duration, reason: String },
    #[error("{model} did not finish its answer in time")]
    Deadline { model: String },
    #[error("cancelled")]
    Cancelled,
}

impl ModelError {
    /// Returns the error with `change` applied to the provider's text.
    pub(crate) fn map_text(mut self, change: impl Fn(String) -> String) -> ModelError {
        match &mut self {
            ModelError::Key { reason: text, .. }
            | ModelError::Unauthorized { message: text, .. }
            | ModelError::Unpaid { message: text, .. }
            | ModelError::ContextTooLong { message: text, .. }
            | ModelError::NoSuchModel { message: text, .. }
            | ModelError::Refused { message: text, .. }
            | ModelError::Unreachable { reason: text, .. }
            | ModelError::Unavailable { reason: text, .. } => *text = change(std::mem::take(text)),
            ModelError::Unknown(_)
            | ModelError::Empty { .. }
            | ModelError::Deadline { .. }
            | ModelError::Cancelled => {}
        }
        self
    }

    /// Suggests what the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ModelError::Unknown(_) | ModelError::NoSuchModel { .. } => {
                Some("`gantry models` lists what is configured")
            }
            ModelError::Key { .. } | ModelError::Unauthorized { .. } => {
                Some("put a valid key where the provider's key is configured; `gantry models test` tries it")
            }
            ModelError::Unpaid { .. } => Some("see the provider's billing page, or configure another model"),
            ModelError::ContextTooLong { .. } => {
                Some("compact the session, or use a model with a larger window")
            }
            ModelError::Empty { .. } => Some(
                "send the message again, or choose another model; a local server may need a larger context",
            ),
            ModelError::Unreachable { .. } => Some("check the provider's address in the configuration"),
            ModelError::Unavailable { .. } => Some("try again later, or configure a fallback model"),
            ModelError::Deadline { .. } => Some("allow more time, or use a faster model"),
            ModelError::Refused { .. } | ModelError::Cancelled => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown model {name:?}{}", did_you_mean(nearest))]
pub struct UnknownModel {
    pub name: String,
    /// The closest names, best first.
    pub nearest: Vec<String>,
}

fn did_you_mean(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}
