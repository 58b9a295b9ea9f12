//! Dishonest endpoints, for tests of what their peers do.

use gantry_protocol::{RawJson, raw};
use serde_json::Value;

use crate::service::TransferRequest;

/// Decides what a dishonest service does with a request.
pub type Tamper = Box<dyn Fn(&TransferRequest) -> Conduct + Send + Sync>;

/// What a dishonest service does with one request.
pub enum Conduct {
    Honest,
    /// It neither does what was requested nor answers.
    Silent,
    /// It does what was requested and changes the answer.
    Lie(Box<dyn FnOnce(&mut Value) + Send>),
}

impl Conduct {
    /// Never returns for a silent service.
    pub(crate) async fn before_answer(self) -> Conduct {
        match self {
            Conduct::Silent => std::future::pending().await,
            other => other,
        }
    }

    pub(crate) fn change(self, answer: RawJson) -> RawJson {
        let Conduct::Lie(change) = self else { return answer };
        let mut answer: Value = serde_json::from_str(answer.get()).unwrap_or_default();
        change(&mut answer);
        raw(&answer)
    }
}
