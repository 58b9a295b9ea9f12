//! Commands that run to their end within a call, and result fields that `exec`, `tool::shell_exec`
//! and `bash` share.

use std::sync::Arc;

use gantry_process::{Command, Exit, Finished, Network, ProcessError};
use gantry_tool::{Capability, Label, Tool, ToolError};

use crate::machine::process_error;
use crate::whole_secrets::{beyond_cut, cut_stream};
use crate::workers::command_in_worker;
use crate::{Ctx, Machine};

/// Waits for the command to end. Its output is not cut within a known secret. A command killed because its call was cancelled is an error.
pub(crate) async fn run_to_end(ctx: &Ctx, command: Command) -> Result<Finished, ProcessError> {
    let command = Command { beyond_cut: beyond_cut(ctx.state.masker()), ..command };
    let finished = ctx.state.processes().run(command, ctx.call.cancel.clone()).await?;
    after_end(ctx, finished)
}

/// Like [`run_to_end`], in a worker process if there are workers.
pub(crate) async fn run_to_end_in_worker(ctx: &Ctx, command: Command) -> Result<Finished, ToolError> {
    let command = Command { beyond_cut: beyond_cut(ctx.state.masker()), ..command };
    match command_in_worker(ctx, command).await {
        Ok(finished) => after_end(ctx, finished?).map_err(process_error),
        Err(command) => run_to_end(ctx, command).await.map_err(process_error),
    }
}

fn after_end(ctx: &Ctx, finished: Finished) -> Result<Finished, ProcessError> {
    let masker = ctx.state.masker();
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

/// Declares a tool that runs commands on this machine: what they reach, and how their changes are found.
pub(crate) fn runs_commands(tool: Tool, machine: &Arc<Machine>) -> Tool {
    let (judging, watching) = (machine.clone(), machine.clone());
    tool.open_world()
        .capabilities(&[Capability::ShellExec])
        .labels(&[Label::Untrusted, Label::Private])
        .offline_when(move |call| judging.judges_connections(call))
        .watches_changes_when(move |call| watching.watches_changes(call))
}

/// Returns the `network` field of a result: `denied` if policy denied network access.
pub(crate) fn network_note(ctx: &Ctx) -> Option<&'static str> {
    (ctx.state.network(&ctx.call) == Network::Denied).then_some("denied")
}
