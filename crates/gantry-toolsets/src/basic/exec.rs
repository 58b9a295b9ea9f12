//! `exec` runs a shell command, after sourcing the shell's start file if there is one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_files::FileError;
use gantry_process::{Capture, Command, Cwd, Finished, ProcessError, env, find_program};
use gantry_tool::{Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;
use crate::blocking::blocking;
use crate::machine::{Confinement, file_error, process_error};
use crate::optional_path::absent_when_empty;
use crate::run_to_end::{exit_code, network_note, run_to_end, runs_commands};
use crate::{Ctx, Machine};

const DEFAULT_SHELL: &str = "bash";
const DEFAULT_TIMEOUT_SECS: u64 = 30;
/// The limit for each stream.
const OUTPUT_BYTES: usize = 10 * 1024 * 1024;

/// Passes the command to the shell past the start file, which may change anything else.
const COMMAND_VARIABLE: &str = "__gantry_command";

/// Sources the start file without its output, then runs the command. It also runs the command if
/// the start file exits the shell, but not if the shell is killed in the meantime. `eval` gets the
/// command as its first line, so that error messages of the shell have the caller's line numbers.
const SOURCE_AND_RUN: &str = r#"exec {__gantry_out}>&1 {__gantry_err}>&2
__gantry_run='exec {__gantry_out}>&- {__gantry_err}>&-; unset __gantry_out __gantry_err __gantry_run __gantry_command; '$__gantry_command
trap 'trap - EXIT; exit 143' TERM INT HUP
trap 'trap - EXIT TERM INT HUP; exec >&$__gantry_out 2>&$__gantry_err; eval "$__gantry_run"; exit $?' EXIT
. "RCFILE" >/dev/null 2>&1 </dev/null
trap - EXIT TERM INT HUP
eval "$__gantry_run""#;

/// Run a shell command and wait for it to end. Standard input is empty. `bash` and `zsh` first
/// source the user's `.bashrc` or `.zshrc`, without its output. A command that fails or times out
/// is not a tool error: see `success`, `exit_code` and `timed_out`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The command line, as `SHELL -c` takes it.
    command: String,
    /// Shell to use: a name found in PATH (bash, sh, zsh) or an absolute path (default "bash").
    #[serde(default = "default_shell")]
    shell: String,
    /// Seconds after which the command and its processes are killed, at least 1 (default 30).
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Working directory; a relative path starts at the workspace. Null, the default, is the
    /// workspace.
    #[serde(default, deserialize_with = "absent_when_empty")]
    cwd: Option<String>,
    /// Variables to add to the inherited environment, or to override in it.
    env: Option<BTreeMap<String, String>>,
    /// Whether `bash` and `zsh` source the user's start file first (default true).
    #[serde(default = "default_source_rc")]
    source_rc: bool,
}

fn default_shell() -> String {
    DEFAULT_SHELL.to_owned()
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_SECS
}

fn default_source_rc() -> bool {
    true
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The command exited with code 0.
    success: bool,
    /// The error, if the command timed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The command as given.
    command: String,
    /// Standard output, also before a timeout; the first 10 MiB.
    stdout: String,
    /// Standard error; the first 10 MiB.
    stderr: String,
    /// 128 plus the signal number if a signal killed the command; -1 after a timeout.
    exit_code: i32,
    /// The command timed out.
    timed_out: bool,
    /// The requested shell; absent after a timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    shell: Option<String>,
    /// The requested working directory; absent after a timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<Option<String>>,
    /// The signal that killed the command, such as `SIGKILL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// A stream was truncated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// `denied` if policy denied the command network access.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
}

pub(super) const NAME: &str = "exec";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    command: String,
    #[serde(default = "default_shell")]
    shell: String,
    #[serde(default, deserialize_with = "absent_when_empty")]
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
}

impl Asked {
    /// The command line, with variables and another shell as a person would write them.
    fn command_line(&self) -> String {
        let variables = self.env.iter().flatten();
        let mut line: String =
            variables.map(|(name, value)| format!("{name}={} ", asked::quoted(value))).collect();
        match self.shell.as_str() {
            DEFAULT_SHELL => line.push_str(&self.command),
            shell => line.push_str(&format!("{} -c {}", asked::quoted(shell), asked::quoted(&self.command))),
        }
        line
    }
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    let tool = Tool::new(NAME, Toolset::Basic, machine, run);
    runs_commands(tool, machine).runs_in("cwd", machine.free_paths()).asks_as(move |asked, input: Asked| {
        std::future::ready(asked::command(&own, &asked, input.command_line(), input.cwd))
    })
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let failed = |err: ToolError| {
        err.with_field("command", input.command.clone())
            .with_field("exit_code", -1)
            .with_field("timed_out", false)
    };
    let prepared = blocking(&ctx, {
        let cwd = input.cwd.clone();
        move |ctx, _| open_directory(ctx, cwd.as_deref())
    });
    let directory = prepared.await.map_err(failed)?;
    let confinement = ctx.state.confine(&ctx.call, NAME).await.map_err(failed)?;
    confinement.name_command(&input.command);
    let mut command = command(&ctx, &input, directory, &confinement).map_err(failed)?;
    confinement.apply(&mut command);
    let finished = run_to_end(&ctx, command).await.map_err(not_started).map_err(failed)?;
    Ok(Output { network: network_note(&ctx), ..output(input, finished) })
}

fn open_directory(ctx: &Ctx, cwd: Option<&str>) -> Result<Cwd, ToolError> {
    let opened = ctx.state.free(&ctx.call)?.open_dir(cwd.unwrap_or("."));
    let directory = opened.map_err(|err| match err {
        FileError::NotFound { path } => failed_to_execute("No such file or directory")
            .with_field("hint", format!("the working directory does not exist: {}", path.display())),
        FileError::PermissionDenied { path } => failed_to_execute("Permission denied")
            .with_field("hint", format!("no permission to enter the working directory: {}", path.display())),
        FileError::Closed { .. } | FileError::Sensitive { .. } | FileError::Cancelled => file_error(err),
        other => failed_to_execute(&other.to_string()),
    })?;
    Ok(Cwd::Dir(directory.fd))
}

fn command(
    ctx: &Ctx,
    input: &Input,
    directory: Cwd,
    confinement: &Confinement,
) -> Result<Command, ToolError> {
    let mut variables = confinement.variables(ctx.state.shell_variables(&ctx.call));
    for (name, value) in input.env.iter().flatten() {
        set(&mut variables, name, value);
    }
    let shell = find_shell(&input.shell, &variables).ok_or_else(|| {
        failed_to_execute("No such file or directory")
            .with_field("hint", format!("the shell is not in PATH: {}", input.shell))
    })?;
    let script = match start_file(&shell).filter(|_| input.source_rc) {
        Some(file) => {
            set(&mut variables, COMMAND_VARIABLE, &input.command);
            SOURCE_AND_RUN.replace("RCFILE", file)
        }
        None => input.command.clone(),
    };
    let mut command = Command::new(shell, directory).args(["-c", &script]);
    command.env = variables;
    command.timeout = Some(Duration::from_secs(input.timeout));
    command.capture = Capture::Separate { stdout: OUTPUT_BYTES, stderr: OUTPUT_BYTES };
    Ok(command)
}

fn set(variables: &mut env::Variables, name: &str, value: &str) {
    variables.retain(|(known, _)| known != name);
    variables.push((OsString::from(name), OsString::from(value)));
}

/// Finds a shell by its bare name in the PATH that the command will have.
fn find_shell(shell: &str, variables: &env::Variables) -> Option<PathBuf> {
    if Path::new(shell).is_absolute() {
        return Some(PathBuf::from(shell));
    }
    let path = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value)?;
    find_program(shell, &std::env::split_paths(path).collect::<Vec<_>>())
}

/// Returns the user's start file for the shells that can run [`SOURCE_AND_RUN`].
fn start_file(shell: &Path) -> Option<&'static str> {
    match shell.file_name()?.to_str()? {
        "bash" => Some("$HOME/.bashrc"),
        "zsh" => Some("${ZDOTDIR:-$HOME}/.zshrc"),
        _ => None,
    }
}

fn not_started(err: ProcessError) -> ToolError {
    match err {
        ProcessError::Program { source, .. } | ProcessError::Directory { source, .. } => {
            let text = source.to_string();
            failed_to_execute(text.split(" (os error").next().unwrap_or(&text))
        }
        ProcessError::Invalid(reason) => failed_to_execute(reason),
        other => process_error(other),
    }
}

fn failed_to_execute(reason: &str) -> ToolError {
    ToolError::failed(format!("Failed to execute command: {reason}"))
}

fn output(input: Input, finished: Finished) -> Output {
    let Finished { ended, stdout, stderr, .. } = finished;
    let output = Output {
        success: ended.exit.success(),
        error: None,
        command: input.command,
        truncated: stdout.truncated || stderr.truncated,
        stdout: stdout.text,
        stderr: stderr.text,
        exit_code: exit_code(&ended.exit),
        timed_out: false,
        shell: Some(input.shell),
        cwd: Some(input.cwd),
        signal: ended.exit.signal.map(|signal| signal.to_string()),
        network: None,
    };
    if !ended.timed_out {
        return output;
    }
    let seconds = input.timeout;
    Output {
        success: false,
        error: Some(format!("Command timed out after {seconds} seconds")),
        exit_code: -1,
        timed_out: true,
        shell: None,
        cwd: None,
        signal: None,
        ..output
    }
}

#[cfg(test)]
mod tests;
