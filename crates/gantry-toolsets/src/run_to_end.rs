//! Commands that run to their end within a call, and result fields that `exec`, `tool::shell_exec`
//! and `bash` share.

use std::sync::Arc;

use gantry_process::{Command, Exit, Finished, Network, ProcessError};
use gantry_tool::Call;

use crate::whole_secrets::{beyond_cut, cut_stream};
use crate::{Ctx, Machine};

/// Waits for the command to end. Its output is not cut within a known secret. A command killed because its call was cancelled is an error.
pub(crate) async fn run_to_end(ctx: &Ctx, command: Command) -> Result<Finished, ProcessError> {
    let masker = &ctx.state.web().masker;
    let command = Command { beyond_cut: beyond_cut(masker), ..command };
    let finished = ctx.state.processes().run(command, ctx.call.cancel.clone()).await?;
    ctx.call.findings.warn(&finished.ended.quarantined);
    if finished.ended.cancelled {
        return Err(ProcessError::Cancelled);
    }
    let Finished { stdout, stderr, .. } = finished;
    let (stdout, stderr) = (cut_stream(masker, stdout), cut_stream(masker, stderr));
    Ok(Finished { stdout, stderr, ..finished })
}

/// Returns the exit code as a shell does: 128 plus the signal number after a signal; -1 if it is
/// unknown.
pub(crate) fn exit_code(exit: &Exit) -> i32 {
    exit.code.or(exit.signal.map(|signal| 128 + signal.0)).unwrap_or(-1)
}

/// Whether the commands of a call start without sockets.
pub(crate) fn offline(machine: &Arc<Machine>) -> impl Fn(&Call) -> bool + Send + Sync + use<> {
    let machine = machine.clone();
    move |call| machine.network_by_policy(call) == Network::Denied
}

/// Returns the `network` field of a result: `denied` if policy denied network access.
pub(crate) fn network_note(ctx: &Ctx) -> Option<&'static str> {
    (ctx.state.network(&ctx.call) == Network::Denied).then_some("denied")
}
