//! `bash` runs a command line and returns its standard output. A command that fails is an error.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::{Capture, Command, Cwd, Ended, Finished, Stream, find_program};
use gantry_tool::{Text, Tool, ToolError, Toolset, Touch};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::asked;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::run_to_end::{network_note, run_to_end_in_worker, runs_commands};
use crate::{Ctx, Machine};

const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// The limit for each stream.
const MAX_OUTPUT_BYTES: usize = 10 * 1024 * 1024;

/// Run a shell command in the workspace and return its standard output. If it fails, the result is
/// an error with standard output, standard error and, on the last line, the exit code, the signal
/// or the timeout. The shell is `bash -c` (`sh -c` without bash), not a login shell. Its standard
/// input is empty and its environment holds no credentials. Background processes are killed when
/// the command ends. The first 10 MiB of each stream are returned.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The command line.
    #[schemars(length(min = 1))]
    command: String,
    /// Milliseconds until the command and its processes are killed (default 120000). 0 means no
    /// timeout.
    #[serde(default = "default_timeout_ms")]
    timeout_ms: u64,
}

fn default_timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    command: String,
}

#[derive(Debug, Deserialize)]
struct NoField {}

pub(super) const NAME: &str = "bash";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let (own, describing) = (machine.clone(), machine.clone());
    let tool = Tool::new(NAME, Toolset::Assistant, machine, run);
    runs_commands(tool, machine)
        .touches(move |call, _: NoField| vec![Touch::write(own.touched_free(call, "."))])
        .asks_as(move |asked, input: Asked| {
            std::future::ready(asked::command(&describing, &asked, input.command, None))
        })
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let workspace =
        blocking(&ctx, |ctx, _| ctx.state.free(&ctx.call)?.open_dir(&ctx.call.workspace).map_err(file_error));
    let workspace = workspace.await?;
    let Input { command, timeout_ms } = input;
    let confinement = ctx.state.confine(&ctx.call, NAME).await?;
    confinement.name_command(&command);
    let mut command = Command::new(shell(), Cwd::Dir(workspace.fd)).args(["-c", &command]);
    command.env = confinement.variables(ctx.state.allowed_variables(&ctx.call));
    confinement.apply(&mut command);
    command.timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
    command.capture = Capture::Separate { stdout: MAX_OUTPUT_BYTES, stderr: MAX_OUTPUT_BYTES };
    let finished = run_to_end_in_worker(&ctx, command).await?;
    if finished.ended.exit.success() && !finished.ended.timed_out {
        return Ok(Text(success_text(finished)));
    }
    let offline = network_note(&ctx).is_some();
    Err(ToolError::failed(failure_text(finished, timeout_ms, offline)))
}

fn shell() -> OsString {
    let directories = [PathBuf::from("/bin")];
    find_program("bash", &directories).map_or_else(|| "/bin/sh".into(), PathBuf::into_os_string)
}

fn success_text(finished: Finished) -> String {
    let Finished { stdout, stderr, .. } = finished;
    match (stdout.total_bytes, stderr.total_bytes) {
        (0, 0) => "(no output)".to_owned(),
        (0, count) => format!("(no output; {count} bytes on standard error; add 2>&1 to see them)"),
        _ => stream_text("standard output", stdout),
    }
}

fn failure_text(finished: Finished, timeout_ms: u64, offline: bool) -> String {
    let Finished { stdout, stderr, ended, .. } = finished;
    let mut text = String::new();
    let streams = [stream_text("standard output", stdout), stream_text("standard error", stderr)];
    for part in streams.iter().filter(|part| !part.is_empty()) {
        text.push_str(part);
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    if offline {
        text.push_str("(the command ran without network access)\n");
    }
    if ended.survivors > 0 {
        text.push_str(&format!("({} processes could not be killed)\n", ended.survivors));
    }
    text.push_str(&exit_text(&ended, timeout_ms));
    text
}

fn exit_text(ended: &Ended, timeout_ms: u64) -> String {
    match (ended.timed_out, ended.exit.signal, ended.exit.code) {
        (true, _, _) => format!("timed out after {timeout_ms} ms"),
        (false, Some(signal), _) => format!("killed by {signal}"),
        (false, None, Some(code)) => format!("exit code {code}"),
        (false, None, None) => "exit code unknown: the keeper process was lost".to_owned(),
    }
}

/// Returns a stream's text, with a note at the end if it was truncated.
fn stream_text(name: &str, stream: Stream) -> String {
    let Stream { mut text, total_bytes, truncated, .. } = stream;
    if truncated {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!(
            "({name} was truncated to the first {MAX_OUTPUT_BYTES} of {total_bytes} bytes)"
        ));
    }
    text
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests;
