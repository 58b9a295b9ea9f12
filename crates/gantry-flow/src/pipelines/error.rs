//! [`PipelineError`]: why a pipeline was not stored or did not run.

use gantry_agent::SessionError;
use gantry_store::DatabaseError;
use gantry_tool::{Refusal, RefusalCode, ToolError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum PipelineError {
    /// Everything that is wrong with the input. Nothing was stored.
    #[error("{}", list(.0))]
    Invalid(Vec<String>),
    #[error("{0}")]
    Denied(String),
    #[error("the gateway is stopping")]
    Stopping,
    #[error(transparent)]
    Store(#[from] DatabaseError),
}

impl PipelineError {
    pub(crate) fn invalid(error: impl Into<String>) -> PipelineError {
        PipelineError::Invalid(vec![error.into()])
    }

    pub(crate) fn refusal(&self) -> Refusal {
        let code = match self {
            PipelineError::Invalid(_) | PipelineError::Store(DatabaseError::Refused(_)) => {
                RefusalCode::InvalidInput
            }
            PipelineError::Denied(_) => RefusalCode::Denied,
            PipelineError::Stopping | PipelineError::Store(_) => RefusalCode::Unavailable,
        };
        Refusal::new(code, self.to_string())
    }
}

fn list(errors: &[String]) -> String {
    match errors {
        [only] => only.clone(),
        several => format!("there are {} errors\n- {}", several.len(), several.join("\n- ")),
    }
}

impl From<SessionError> for PipelineError {
    fn from(err: SessionError) -> PipelineError {
        match err {
            SessionError::Stopping => PipelineError::Stopping,
            SessionError::Store(err) => PipelineError::Store(err),
            SessionError::Denied(reason) => PipelineError::Denied(reason),
            other => PipelineError::invalid(other.to_string()),
        }
    }
}

impl From<PipelineError> for ToolError {
    fn from(err: PipelineError) -> ToolError {
        match err {
            PipelineError::Invalid(_) | PipelineError::Store(DatabaseError::Refused(_)) => {
                ToolError::input(err.to_string())
            }
            PipelineError::Denied(reason) => ToolError::denied(reason),
            PipelineError::Stopping => ToolError::Cancelled,
            PipelineError::Store(_) => ToolError::failed(err.to_string()),
        }
    }
}
