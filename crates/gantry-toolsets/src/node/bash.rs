//! `Bash` runs a shell command to its end, in the background, or in the background after a while.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::{Command, Cwd, Network, Processes, SessionId, Stdin, Waited, find_program};
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::sessions::{Session, Sessions};
use super::shell_run::ShellRun;
use crate::asked;
use crate::blocking::blocking;
use crate::machine::{Confinement, file_error, process_error};
use crate::optional_path::absent_when_empty;
use crate::run_to_end::runs_commands;
use crate::whole_secrets::beyond_cut;
use crate::{Ctx, Machine};

const DEFAULT_TIMEOUT_MS: u64 = 300_000;
const FALLBACK_SHELL: &str = "/bin/sh";

/// Run a command in the user's login shell. Waits for it to end and returns its exit code and
/// output; a command that fails is a result too. With `background`, or after `yieldMs`, it keeps
/// running as a session: use `Process` with its `sessionId`.
///
/// `command` must not be empty. `exitCode` or `signal` shows how a command ended. On timeout, the
/// command and its processes get SIGTERM and, 250 ms later, SIGKILL. `yieldMs` is clamped to its
/// range. `workdir` is absolute or relative to the workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Standard input is empty unless `background` or `yieldMs` is set.
    command: String,
    /// Working directory. Default: the workspace.
    #[serde(default, deserialize_with = "absent_when_empty")]
    workdir: Option<String>,
    /// Milliseconds until the command and its children are killed. 0: no limit. Default 300000; no
    /// limit with `background`.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    timeout: Option<u64>,
    /// Return a `sessionId` at once.
    #[serde(default)]
    background: bool,
    /// Milliseconds (10 to 120000) to wait before the command moves to the background.
    yield_ms: Option<f64>,
    /// Leave the sandbox, if the user agrees.
    #[expect(dead_code, reason = "the gate decides about it and sets `Call::escalated`")]
    escalate: Option<Escalate>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Escalate {
    #[expect(dead_code, reason = "the gate shows it to the user")]
    reason: String,
}

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    command: String,
    #[serde(default, deserialize_with = "absent_when_empty")]
    workdir: Option<String>,
    escalate: Option<AskedEscalation>,
}

/// Why the command has to leave the sandbox.
#[derive(Debug, Deserialize)]
struct AskedEscalation {
    reason: String,
}

async fn described(machine: Arc<Machine>, asked: AskedCall, input: Asked) -> Option<AskedAction> {
    let mut action = asked::command(&machine, &asked, input.command, input.workdir)?;
    if let AskedAction::Command { escalation, .. } = &mut action {
        *escalation = input.escalate.map(|escalate| escalate.reason);
    }
    Some(action)
}

pub(super) const NAME: &str = "Bash";

pub(crate) fn tool(machine: &Arc<Machine>, sessions: &Arc<Sessions>) -> Tool {
    let (sessions, own) = (sessions.clone(), machine.clone());
    let tool = Tool::new(NAME, Toolset::Node, machine, move |ctx, input| run(ctx, input, sessions.clone()));
    runs_commands(tool, machine)
        .runs_in("workdir", machine.free_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
        .offered_to_clients()
        .offered_to_agents()
        .may_escalate()
}

async fn run(ctx: Ctx, input: Input, sessions: Arc<Sessions>) -> Result<ShellRun, ToolError> {
    if input.command.trim().is_empty() {
        return Err(ToolError::input("command must not be empty"));
    }
    let one_shot = ctx.state.is_one_shot();
    if input.background && one_shot {
        return Err(ToolError::input("this one-shot call cannot run a command in the background")
            .with_hint("start `gantry up` and call again, or leave background out"));
    }
    let Prepared { mut command, session, confinement } = prepare(&ctx, &input).await?;
    match input.yield_ms {
        _ if input.background => {
            command.stdin = Stdin::Pipe;
            start(&ctx, command, session, &sessions, confinement).await
        }
        Some(yield_ms) if !one_shot => {
            command.stdin = Stdin::Pipe;
            let prepared = Prepared { command, session, confinement };
            wait_then_yield(&ctx, prepared, &sessions, yield_time(yield_ms)).await
        }
        _ => run_to_end(&ctx, command, session, &sessions, &confinement).await,
    }
}

struct Prepared {
    command: Command,
    session: Session,
    confinement: Confinement,
}

async fn prepare(ctx: &Ctx, input: &Input) -> Result<Prepared, ToolError> {
    let workdir = input.workdir.clone().unwrap_or_else(|| ".".to_owned());
    let (shell, directory) = blocking(ctx, move |ctx, _| {
        let directory = ctx.state.free(&ctx.call)?.open_dir(&workdir).map_err(file_error)?;
        Ok((login_shell(&ctx.state), directory))
    })
    .await?;
    let offline = ctx.state.network(&ctx.call) == Network::Denied;
    let masker = ctx.state.masker();
    let session = Session::new(&ctx.call, &input.command, directory.path, offline, masker);
    // The shell would read a command that starts with - or + as an option.
    let sign = if input.command.starts_with(['-', '+']) { " " } else { "" };
    let script = format!("{sign}{}", input.command);
    let confinement = ctx.state.confine(&ctx.call, NAME).await?;
    confinement.name_command(&input.command);
    let mut command = Command {
        env: confinement.variables(ctx.state.shell_variables(&ctx.call)),
        timeout: time_limit(input),
        beyond_cut: beyond_cut(masker),
        ..Command::new(shell, Cwd::Dir(directory.fd)).args(["-lc", &script])
    };
    confinement.apply(&mut command);
    Ok(Prepared { command, session, confinement })
}

/// Background commands have no default timeout: a server must not be killed after five minutes.
fn time_limit(input: &Input) -> Option<Duration> {
    match input.timeout {
        Some(0) => None,
        Some(given) => Some(Duration::from_millis(given)),
        None => (!input.background).then_some(Duration::from_millis(DEFAULT_TIMEOUT_MS)),
    }
}

fn yield_time(yield_ms: f64) -> Duration {
    Duration::from_millis(yield_ms.clamp(10.0, 120_000.0) as u64)
}

/// Returns the user's shell if it is an absolute path and executable.
fn login_shell(machine: &Machine) -> std::path::PathBuf {
    let shell = machine.variable("SHELL").map(Path::new).filter(|shell| shell.is_absolute());
    let found = shell.and_then(|shell| {
        let directory = shell.parent()?.to_owned();
        find_program(shell.file_name()?.to_str()?, &[directory])
    });
    found.unwrap_or_else(|| FALLBACK_SHELL.into())
}

async fn run_to_end(
    ctx: &Ctx,
    command: Command,
    session: Session,
    sessions: &Sessions,
    confinement: &Confinement,
) -> Result<ShellRun, ToolError> {
    let processes = ctx.state.processes();
    let finished = processes.run(command, ctx.call.cancel.clone()).await.map_err(process_error)?;
    if finished.ended.cancelled && ctx.call.cancel.is_cancelled() {
        return Err(ToolError::Cancelled);
    }
    let id = finished.id;
    let logged = finished.logged;
    confinement.explain_failure(&ctx.call, &finished);
    let answer = ShellRun::completed(finished, &session, ctx.state.masker());
    if logged {
        sessions.add(processes, id, session);
    }
    Ok(answer)
}

async fn start(
    ctx: &Ctx,
    command: Command,
    session: Session,
    sessions: &Sessions,
    confinement: Confinement,
) -> Result<ShellRun, ToolError> {
    let processes = ctx.state.processes();
    let id = processes.start(command).await.map_err(process_error)?;
    let mut starting = EndOnDrop { processes: processes.clone(), id: Some(id) };
    confinement.keep_while_running(processes, id);
    let session = session.in_background();
    processes.detach(id, &session.note()).await.map_err(process_error)?;
    starting.id = None;
    sessions.add(processes, id, session.clone());
    let snapshot = processes.poll(id, Duration::ZERO).await.map_err(process_error)?;
    Ok(ShellRun::running(snapshot, &session, ctx.state.masker()))
}

async fn wait_then_yield(
    ctx: &Ctx,
    prepared: Prepared,
    sessions: &Sessions,
    up_to: Duration,
) -> Result<ShellRun, ToolError> {
    let Prepared { command, session, confinement } = prepared;
    let processes = ctx.state.processes();
    let id = processes.start(command).await.map_err(process_error)?;
    let mut waiting = EndOnDrop { processes: processes.clone(), id: Some(id) };
    let waited = tokio::select! {
        waited = processes.wait(id, up_to) => waited.map_err(process_error)?,
        () = ctx.call.cancel.cancelled() => {
            waiting.id = None;
            let _ = processes.terminate(id).await;
            let _ = processes.forget(id);
            return Err(ToolError::Cancelled);
        }
    };
    match waited {
        Waited::Running(snapshot) => {
            let session = session.in_background();
            // If the session cannot be stored for a restart (a full disk, say), it keeps running:
            // killing a command that has run this long would be worse.
            let _ = processes.detach(id, &session.note()).await;
            waiting.id = None;
            confinement.keep_while_running(processes, id);
            let answer = ShellRun::running(snapshot, &session, ctx.state.masker());
            sessions.add(processes, id, session);
            Ok(answer)
        }
        Waited::Finished(finished) => {
            waiting.id = None;
            let truncated = finished.stdout.truncated;
            confinement.explain_failure(&ctx.call, &finished);
            let answer = ShellRun::completed(finished, &session, ctx.state.masker());
            if truncated {
                sessions.add(processes, id, session);
            } else {
                let _ = processes.forget(id);
            }
            Ok(answer)
        }
    }
}

/// Kills a command whose caller left before it received the session id.
struct EndOnDrop {
    processes: Processes,
    id: Option<SessionId>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id, tokio::runtime::Handle::try_current()) else { return };
        let processes = self.processes.clone();
        runtime.spawn(async move {
            let _ = processes.terminate(id).await;
            let _ = processes.forget(id);
        });
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests;
