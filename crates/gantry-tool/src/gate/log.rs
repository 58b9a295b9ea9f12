//! Log events of calls. A call that ends well is logged at `debug`, so it costs one comparison at the
//! default level. Inputs are never logged: the audit log has them.

use std::time::Duration;

use crate::call::Call;
use crate::error::RefusalCode;
use crate::metrics::Status;

/// Logs the end of a call that ran: a denial at `warn`, everything else at `debug`.
pub(super) fn ended(call: &Call, tool: &str, status: Status, error: Option<&str>, took: Duration) {
    if status == Status::Denied {
        return refused(call, tool, RefusalCode::Denied, None, error.unwrap_or_default());
    }
    tracing::debug!(
        call = call.id,
        tool,
        principal = %call.principal,
        agent = call.agent,
        surface = call.surface.name(),
        status = status.name(),
        error,
        durationMs = took.as_secs_f64() * 1e3,
        "call_ended"
    );
}

/// Logs a call that the gate did not run.
pub(super) fn refused(call: &Call, tool: &str, code: RefusalCode, rule: Option<&str>, error: &str) {
    tracing::warn!(
        call = call.id,
        tool,
        principal = %call.principal,
        agent = call.agent,
        surface = call.surface.name(),
        code = code.name(),
        rule,
        error,
        "call_refused"
    );
}

/// Logs the details of an internal error. The caller gets its id only.
pub(super) fn internal(call: &Call, tool: &str, id: &str, error: &str) {
    tracing::error!(id, call = call.id, tool, principal = %call.principal, error, "internal_error");
}
