//! The two lines of work that goes on by itself after a restart: nobody calls for it now, and it is on record all the same.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::Gate;
use crate::audit::{AuditError, AuditRecord, Durability, Phase};
use crate::call::Call;
use crate::error::{Refusal, RefusalCode};
use crate::metrics::Status;

/// What the first line says of how it came about.
const RESUMED: &str = "resumed";

/// Work that has its first line. The second is written when it ends, or is dropped.
#[must_use = "what is dropped has failed"]
pub struct ResumedWork {
    gate: Arc<Gate>,
    /// Its last line, but for what came of it.
    ending: Option<AuditRecord>,
    since: Instant,
}

impl Gate {
    /// Puts on record that what a call began goes on. On disk when this returns.
    pub async fn resumes(
        self: &Arc<Self>,
        call: &Call,
        tool: &str,
        input: &Value,
    ) -> Result<ResumedWork, AuditError> {
        let ending = self.record(call, tool, Phase::End, None);
        let mut beginning = self.record(call, tool, Phase::Begin, Some(input));
        beginning.status = Some(RESUMED.into());
        let audit = self.parts.audit.clone();
        tokio::task::spawn_blocking(move || audit.append(beginning, Durability::Now))
            .await
            .unwrap_or_else(|err| Err(AuditError(err.to_string())))?;
        Ok(ResumedWork { gate: self.clone(), ending: Some(ending), since: Instant::now() })
    }
}

impl ResumedWork {
    /// Puts on record what came of it.
    pub fn ended(mut self, came_of_it: Result<(), &Refusal>) {
        let status = match came_of_it {
            Ok(()) => Status::Success,
            Err(refusal) if refusal.code == RefusalCode::Denied => Status::Denied,
            Err(_) => Status::Failure,
        };
        self.append(status, came_of_it.err().map(|refusal| refusal.message.clone()));
    }

    fn append(&mut self, status: Status, error: Option<String>) {
        let Some(ending) = self.ending.take() else { return };
        let record = self.gate.ended(ending, status, error, self.since.elapsed());
        // Nobody is there to be told.
        let _ = self.gate.parts.audit.append(record, Durability::Soon);
    }
}

impl Drop for ResumedWork {
    fn drop(&mut self) {
        self.append(Status::Failure, Some("it was left before its end".into()));
    }
}
