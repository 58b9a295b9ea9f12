//! Commands that run to their end within the call, and what `exec`, `tool::shell_exec` and `bash` tell alike of it.

use std::sync::Arc;

use gantry_process::{Command, Exit, Finished, Network, ProcessError};
use gantry_tool::Call;

use crate::{Ctx, Machine};

/// Waits for the end. A command that was ended because its call was is no answer.
pub(crate) async fn run_to_end(ctx: &Ctx, command: Command) -> Result<Finished, ProcessError> {
    let finished = ctx.state.processes().run(command, ctx.call.cancel.clone()).await?;
    if finished.ended.cancelled { Err(ProcessError::Cancelled) } else { Ok(finished) }
}

/// As a shell would tell it: 128 plus the signal's number when a signal was the end; -1 when the end is unknown.
pub(crate) fn exit_code(exit: &Exit) -> i32 {
    exit.code.or(exit.signal.map(|signal| 128 + signal.0)).unwrap_or(-1)
}

/// Whether the commands of a call start without sockets.
pub(crate) fn offline(machine: &Arc<Machine>) -> impl Fn(&Call) -> bool + Send + Sync + use<> {
    let machine = machine.clone();
    move |call| machine.network(call) == Network::Denied
}

/// What an answer says when policy gave the command no network.
pub(crate) fn network_note(ctx: &Ctx) -> Option<&'static str> {
    (ctx.state.network(&ctx.call) == Network::Denied).then_some("denied")
}
