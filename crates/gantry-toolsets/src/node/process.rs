//! `Process` manages the sessions that `Bash` started in the background.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::{LogPage, Snapshot, Waited, Written};
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, Masker, Tool, ToolError, Toolset, Touch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths;
use super::sessions::{Session, Sessions};
use super::shell_run::{ShellRun, Status, log_warnings, milliseconds};
use crate::machine::process_error;
use crate::run_to_end::runs_commands;
use crate::whole_secrets::cut_end;
use crate::{Ctx, Machine};

/// Manage commands that `Bash` left in the background. Finished ones are kept for 30 minutes.
///
/// `list` returns your sessions, newest first. `poll` returns at once unless `waitMs` is set. `log`
/// counts lines from the start of the whole output. `kill` sends SIGKILL. Policy rules check what
/// `write` and `submit` send as `data` of `Process`, not as a command of `Bash`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// `poll`: status and output. `log`: lines of the whole output. `write`: send `data` to
    /// standard input. `submit`: send `data` and a newline. `close`: end standard input. `kill`:
    /// kill the command and its children.
    action: Action,
    /// Required except for `list`.
    session_id: Option<String>,
    /// For `write` and `submit`.
    #[serde(default)]
    data: String,
    /// First line of `log`, from 0.
    #[serde(default)]
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    offset: u64,
    /// Most lines of `log`. Default 200.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    limit: usize,
    /// Milliseconds that `poll` waits for new output or the end. Default 0.
    #[serde(default)]
    #[schemars(range(max = 120_000))]
    wait_ms: u64,
}

fn default_limit() -> usize {
    200
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    List,
    Poll,
    Log,
    Write,
    Submit,
    Kill,
    Close,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("type" = "object"))]
enum Output {
    List {
        /// Your sessions, newest first.
        sessions: Vec<ListedSession>,
    },
    Poll(Box<Polled>),
    Log(LogLines),
    Write(WrittenData),
    Kill(Killed),
    Close(Closed),
}

/// A session in the list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedSession {
    session_id: String,
    status: Status,
    /// The command; a long one is shortened to 500 characters and an ellipsis.
    command: String,
    pid: i32,
    workdir: String,
    /// Milliseconds since 1970.
    started_at: u64,
    #[serde(flatten)]
    ended: Option<SessionEnd>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionEnd {
    exit_code: Option<i32>,
    signal: Option<String>,
    timed_out: bool,
    /// Milliseconds since 1970.
    ended_at: u64,
    duration_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Polled {
    #[serde(flatten)]
    run: ShellRun,
    /// Whether the command is still running.
    running: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LogLines {
    session_id: String,
    /// The lines without line endings. A page has at most about 1 MB.
    lines: Vec<String>,
    /// The first line's number, counted from 0.
    offset: u64,
    /// Number of lines of the whole output so far.
    total_lines: u64,
    /// Number of characters of the whole output so far.
    total_chars: u64,
    /// The `offset` that continues; absent if the last line so far is included.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// The number (from 0) of a line that is longer than a page; only its beginning is returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_line: Option<u64>,
    /// Bytes of output missing from the full log, between the shown beginning and the kept end.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_bytes: Option<u64>,
    /// What the log of an ended command lacks, and why; absent if it is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WrittenData {
    session_id: String,
    /// Bytes sent, including the newline of `submit`.
    bytes_written: usize,
    /// False if the command did not read all of the data in time; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Killed {
    session_id: String,
    /// False if the command had already ended.
    killed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Closed {
    session_id: String,
    /// Always true.
    closed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Touched {
    session_id: Option<String>,
}

/// The part of the input that a question shows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    action: Action,
    session_id: Option<String>,
    #[serde(default)]
    data: String,
}

/// Describes what a running command is sent. The other actions show their input.
fn described(machine: &Machine, sessions: &Sessions, asked: &AskedCall, input: Asked) -> Option<AskedAction> {
    if !matches!(input.action, Action::Write | Action::Submit) {
        return None;
    }
    let id = input.session_id?;
    let command = sessions.command(machine.processes(), &asked.call, &id).filter(|_| !asked.is_remote);
    let to = match command {
        Some(command) => format!("the running command {id} on {} ($ {command})", asked.machine),
        None => format!("the running command {id} on {}", asked.machine),
    };
    Some(AskedAction::Message { to, text: input.data, not_shown: 0 })
}

pub(super) const NAME: &str = "Process";

pub(crate) fn tool(machine: &Arc<Machine>, sessions: &Arc<Sessions>) -> Tool {
    let (own, known, sessions) = (machine.clone(), sessions.clone(), sessions.clone());
    let (describing, described_sessions) = (machine.clone(), sessions.clone());
    let tool = Tool::new(NAME, Toolset::Node, machine, move |ctx, input| run(ctx, input, sessions.clone()));
    runs_commands(tool, machine)
        .touches(move |call: &Call, input: Touched| {
            let workdir = input.session_id.and_then(|id| known.workdir(own.processes(), call, &id));
            workdir.into_iter().map(Touch::write).collect()
        })
        .asks_as(move |asked, input| {
            std::future::ready(described(&describing, &described_sessions, &asked, input))
        })
        .polls()
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input, sessions: Arc<Sessions>) -> Result<Output, ToolError> {
    if input.action == Action::List {
        return list(&ctx, &sessions).await;
    }
    let Some(asked) = &input.session_id else {
        return Err(ToolError::input("sessionId is required for every action except \"list\""));
    };
    let processes = ctx.state.processes();
    let _attended = ctx.state.attend_session(&ctx.call, NAME);
    let (id, session) = match input.action {
        Action::Log => sessions.find(processes, &ctx.call, asked)?,
        _ => sessions.find_backgrounded(processes, &ctx.call, asked)?,
    };
    let session_id = id.to_string();
    match input.action {
        Action::List | Action::Poll => {
            let snapshot = tokio::select! {
                snapshot = processes.poll(id, Duration::from_millis(input.wait_ms)) => snapshot,
                () = ctx.call.cancel.cancelled() => return Err(ToolError::Cancelled),
            };
            polled(&ctx, snapshot.map_err(process_error)?, &session).await
        }
        Action::Log => {
            // Checked before the log is read, so that the log of an ended command is complete.
            let ended = processes.ended(id).map_err(process_error)?;
            let mut page = processes.log(id, input.offset, input.limit).await.map_err(process_error)?;
            Ok(Output::Log(LogLines {
                session_id,
                lines: whole_lines(ctx.state.masker(), &mut page),
                offset: page.offset,
                total_lines: page.total_lines,
                total_chars: page.total_chars,
                next_offset: page.next_offset,
                cut_line: page.cut_line,
                dropped_bytes: (page.dropped_bytes > 0).then_some(page.dropped_bytes),
                warnings: ended.as_ref().map(log_warnings).unwrap_or_default(),
            }))
        }
        Action::Write | Action::Submit => {
            let newline = if input.action == Action::Submit { "\n" } else { "" };
            let data = format!("{}{newline}", input.data);
            let Written { bytes, complete } =
                processes.write(id, data.as_bytes()).await.map_err(process_error)?;
            let complete = (!complete).then_some(false);
            Ok(Output::Write(WrittenData { session_id, bytes_written: bytes, complete }))
        }
        Action::Kill => {
            let killed = processes.kill(id).await.map_err(process_error)?;
            Ok(Output::Kill(Killed { session_id, killed }))
        }
        Action::Close => {
            processes.close_stdin(id).await.map_err(process_error)?;
            Ok(Output::Close(Closed { session_id, closed: true }))
        }
    }
}

/// Takes the lines of a page. The end of a full log may be within a secret, of which the rest is lost.
fn whole_lines(masker: &Masker, page: &mut LogPage) -> Vec<String> {
    let mut lines = std::mem::take(&mut page.lines);
    if let Some(last) = lines.pop() {
        let mut last = cut_end(masker, last, &page.beyond);
        if page.dropped_bytes > 0 && page.next_offset.is_none() {
            let end = last.len().saturating_sub(masker.longest_secret().saturating_sub(1));
            last.truncate(last.floor_char_boundary(end));
        }
        lines.push(last);
    }
    lines
}

async fn list(ctx: &Ctx, sessions: &Sessions) -> Result<Output, ToolError> {
    let processes = ctx.state.processes();
    let snapshots = processes.list().await.map_err(process_error)?;
    let own = snapshots.into_iter().filter_map(|snapshot| {
        let session = sessions.find_own_background(processes, &ctx.call, snapshot.id)?;
        Some(ListedSession {
            session_id: snapshot.id.to_string(),
            status: Status::of(snapshot.ended.as_ref()),
            command: session.command,
            pid: snapshot.pid,
            workdir: paths::text(&session.workdir),
            started_at: milliseconds(snapshot.started_at),
            ended: snapshot.ended.map(|ended| SessionEnd {
                exit_code: ended.exit.code,
                signal: ended.exit.signal.map(|signal| signal.to_string()),
                timed_out: ended.timed_out,
                ended_at: milliseconds(ended.ended_at),
                duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
            }),
        })
    });
    Ok(Output::List { sessions: own.collect() })
}

/// Reads the whole output of an ended session again; a snapshot has only its tail.
async fn polled(ctx: &Ctx, snapshot: Snapshot, session: &Session) -> Result<Output, ToolError> {
    let masker = ctx.state.masker();
    if snapshot.ended.is_none() {
        let run = ShellRun::running(snapshot, session, masker);
        return Ok(Output::Poll(Box::new(Polled { run, running: true })));
    }
    let waited = ctx.state.processes().wait(snapshot.id, Duration::ZERO).await.map_err(process_error)?;
    let (run, running) = match waited {
        Waited::Finished(finished) => (ShellRun::completed(finished, session, masker), false),
        Waited::Running(snapshot) => (ShellRun::running(snapshot, session, masker), true),
    };
    Ok(Output::Poll(Box::new(Polled { run, running })))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests;
