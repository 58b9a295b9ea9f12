//! The two audit lines of work without a call of its own: a transfer that continues after a restart, an upload.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::Gate;
use crate::audit::{AuditError, AuditRecord, Durability, Phase};
use crate::call::Call;
use crate::error::{Refusal, RefusalCode};
use crate::metrics::Status;

/// The status of the first line.
const RESUMED: &str = "resumed";

/// Resumed work whose first line is written. Its second line is written when it ends or is dropped.
#[must_use = "dropping it records a failure"]
pub struct ResumedWork {
    gate: Arc<Gate>,
    /// The last line, without status, error and duration.
    ending: Option<AuditRecord>,
    since: Instant,
}

impl Gate {
    /// Records that the work of an earlier call continues. The line is on disk when this returns.
    pub async fn resumes(
        self: &Arc<Self>,
        call: &Call,
        tool: &str,
        input: &Value,
    ) -> Result<ResumedWork, AuditError> {
        self.begin_work(call, tool, input, Some(RESUMED)).await
    }

    /// Records that work begins which a surface does in place of the tool, such as an upload. The line is on disk when this
    /// returns.
    pub async fn begins(
        self: &Arc<Self>,
        call: &Call,
        tool: &str,
        input: &Value,
    ) -> Result<ResumedWork, AuditError> {
        self.begin_work(call, tool, input, None).await
    }

    async fn begin_work(
        self: &Arc<Self>,
        call: &Call,
        tool: &str,
        input: &Value,
        status: Option<&'static str>,
    ) -> Result<ResumedWork, AuditError> {
        let ending = self.record(call, tool, Phase::End, None);
        let mut beginning = self.record(call, tool, Phase::Begin, Some(input));
        beginning.status = status.map(Into::into);
        let audit = self.parts.audit.clone();
        tokio::task::spawn_blocking(move || audit.append(beginning, Durability::Now))
            .await
            .unwrap_or_else(|err| Err(AuditError(err.to_string())))?;
        Ok(ResumedWork { gate: self.clone(), ending: Some(ending), since: Instant::now() })
    }
}

impl ResumedWork {
    /// Records the result.
    pub fn ended(mut self, result: Result<(), &Refusal>) {
        let status = match result {
            Ok(()) => Status::Success,
            Err(refusal) if refusal.code == RefusalCode::Denied => Status::Denied,
            Err(_) => Status::Failure,
        };
        self.append(status, result.err().map(|refusal| refusal.message.clone()));
    }

    fn append(&mut self, status: Status, error: Option<String>) {
        let Some(ending) = self.ending.take() else { return };
        let record = self.gate.ended(ending, status, error, self.since.elapsed());
        // There is no caller to report a failure to.
        let _ = self.gate.parts.audit.append(record, Durability::Soon);
    }
}

impl Drop for ResumedWork {
    fn drop(&mut self) {
        self.append(Status::Failure, Some("the work was stopped before it ended".into()));
    }
}
