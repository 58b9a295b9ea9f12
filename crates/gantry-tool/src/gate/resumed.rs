//! The two lines of work that goes on by itself after a restart: nobody calls for it now, and it is on record all the same.

use std::time::Instant;

use serde_json::Value;

use super::Gate;
use crate::audit::{AuditError, AuditRecord, Durability, Phase};
use crate::audited::bounded_text;
use crate::call::Call;
use crate::error::{Refusal, RefusalCode};
use crate::metrics::Status;

/// What the first line says of how it came about.
const RESUMED: &str = "resumed";

/// Work that has its first line; the second is written when it ends.
#[must_use = "its end has to be recorded"]
#[derive(Debug)]
pub struct ResumedWork {
    /// Its last line, but for what came of it.
    ending: AuditRecord,
    since: Instant,
}

impl Gate {
    /// Puts on record that what a call began goes on. On disk when this returns.
    pub async fn resumes(&self, call: &Call, tool: &str, input: &Value) -> Result<ResumedWork, AuditError> {
        let ending = self.record(call, tool, Phase::End, None);
        let mut beginning = self.record(call, tool, Phase::Begin, Some(input));
        beginning.status = Some(RESUMED.to_owned());
        let audit = self.parts.audit.clone();
        tokio::task::spawn_blocking(move || audit.append(beginning, Durability::Now))
            .await
            .unwrap_or_else(|err| Err(AuditError(err.to_string())))?;
        Ok(ResumedWork { ending, since: Instant::now() })
    }

    /// Puts on record what came of it.
    pub fn resumed(&self, work: ResumedWork, came_of_it: Result<(), &Refusal>) -> Result<(), AuditError> {
        let ResumedWork { mut ending, since } = work;
        let status = match came_of_it {
            Ok(()) => Status::Success,
            Err(refusal) if refusal.code == RefusalCode::Denied => Status::Denied,
            Err(_) => Status::Failure,
        };
        ending.status = Some(status.name().to_owned());
        ending.error = came_of_it.err().map(|refusal| {
            let mut text = refusal.message.clone();
            self.parts.masker.mask_text(&mut text);
            bounded_text(&text)
        });
        ending.duration_ms = Some((since.elapsed().as_secs_f64() * 1e6).round() / 1e3);
        self.parts.audit.append(ending, Durability::Soon)
    }
}
