//! `tool::shell_exec` runs an allow-listed program, without a shell, in a kernel sandbox around the
//! workspace.
//!
//! The list is a convenience. Only the sandbox decides what a command can reach.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_files::Scope;
use gantry_process::{
    Capture, Command, Cwd, Finished, PrivateTmp, ProcessError, Program, Sandbox, env, find_program_outside,
};
use gantry_tool::{Tool, ToolError, Toolset, nearest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;
use crate::blocking::blocking;
use crate::machine::{SYSTEM_READABLE, file_error, process_error};
use crate::optional_path::absent_when_empty;
use crate::run_to_end::{exit_code, network_note, run_to_end, runs_commands};
use crate::{Ctx, Machine, SandboxMode};

const ALLOWED: &[&str] = &[
    "git", "node", "npm", "npx", "bun", "deno", "python3", "python", "pip", "ls", "cat", "grep", "find",
    "echo", "mkdir", "touch", "cp", "mv", "head", "tail", "wc", "sort", "uniq", "diff", "curl", "wget",
    "tar", "zip", "unzip", "jq", "sed", "awk", "which", "env", "date", "cargo", "rustc", "go", "make",
    "cmake",
];

/// The directories that are searched for programs after the configured ones.
const SYSTEM_PATH: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/homebrew/bin"];

const STDOUT_BYTES: usize = 100 * 1024;
const STDERR_BYTES: usize = 50 * 1024;
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

/// Run an allow-listed program in the workspace, without a shell, in a sandbox. No pipes, globs,
/// variables or `&&`: each element of `argv` reaches the program unchanged. Allowed: git, node,
/// npm, npx, bun, deno, python3, python, pip, ls, cat, grep, find, echo, mkdir, touch, cp, mv,
/// head, tail, wc, sort, uniq, diff, curl, wget, tar, zip, unzip, jq, sed, awk, which, env, date,
/// cargo, rustc, go, make, cmake, and programs the operator added. The program can write only to
/// the workspace and a private temporary directory. It cannot read the home directory or use local
/// (Unix) sockets. Standard input is empty.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The program's bare name, then its arguments.
    argv: Vec<String>,
    /// Working directory, relative to the workspace root (default: the root).
    #[serde(default, deserialize_with = "absent_when_empty")]
    cwd: Option<String>,
    /// Milliseconds after which the program and its processes are killed (default 120000; 0 means
    /// no limit).
    #[serde(default = "default_timeout")]
    timeout: u64,
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_MS
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The first 102400 bytes of standard output.
    stdout: String,
    /// The first 51200 bytes of standard error.
    stderr: String,
    /// 0 is success; 128 plus the signal number if a signal killed the program; -1 if unknown.
    exit_code: i32,
    /// The program timed out.
    timed_out: bool,
    /// The signal that killed the program, such as `SIGTERM`, or null.
    signal: Option<String>,
    /// Standard output or standard error was truncated.
    truncated: bool,
    /// `denied` if policy denied the program network access.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
}

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    argv: Vec<String>,
    #[serde(default, deserialize_with = "absent_when_empty")]
    cwd: Option<String>,
}

fn command_line(argv: &[String]) -> String {
    argv.iter().map(|word| asked::quoted(word)).collect::<Vec<_>>().join(" ")
}

pub(super) const NAME: &str = "tool::shell_exec";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    let tool = Tool::new(NAME, Toolset::Guarded, machine, run);
    runs_commands(tool, machine).runs_in("cwd", machine.contained_paths()).asks_as(
        move |asked, input: Asked| {
            std::future::ready(asked::command(&own, &asked, command_line(&input.argv), input.cwd))
        },
    )
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let line = command_line(&input.argv);
    let (mut command, private_tmp) = blocking(&ctx, move |ctx, _| prepare(ctx, input)).await?;
    let confinement = ctx.state.confine_network(&ctx.call, NAME, command.sandbox.clone()).await?;
    confinement.name_command(&line);
    command.env = confinement.variables(command.env);
    confinement.apply(&mut command);
    let finished = run_to_end(&ctx, command).await;
    // Removing the program's temporary files may take a while.
    let removed = blocking(&ctx, move |_, _| {
        drop(private_tmp);
        Ok(())
    });
    removed.await?;
    let finished = finished.map_err(|err| match err {
        ProcessError::Invalid(reason) => ToolError::input(reason),
        other => process_error(other),
    })?;
    Ok(output(finished, network_note(&ctx)))
}

/// Prepares the command and its temporary directory, or returns the error that prevents it.
fn prepare(ctx: &Ctx, input: Input) -> Result<(Command, PrivateTmp), ToolError> {
    let machine = &*ctx.state;
    let mut argv = input.argv.into_iter();
    let name = argv.next().ok_or_else(|| {
        ToolError::input("argv must not be empty")
            .with_hint("the first element is the program, as in [\"ls\", \"-l\"]")
    })?;
    check_allowed(machine, &name)?;
    let scope = machine.contained(&ctx.call)?;
    let cwd = scope.open_dir(input.cwd.as_deref().unwrap_or(".")).map_err(file_error)?;
    let program = find(machine, &scope, &name)?;
    let private_tmp = PrivateTmp::new_in(machine.temp_dir())
        .map_err(|err| ToolError::failed(format!("cannot create a temporary directory: {err}")))?;

    let mut command = Command::new(&program.path, Cwd::Dir(cwd.fd)).args(argv);
    command.env = env::guarded(machine.variables());
    command.env.push((OsString::from("TMPDIR"), private_tmp.path().into()));
    command.timeout = (input.timeout > 0).then(|| Duration::from_millis(input.timeout));
    command.capture = Capture::Separate { stdout: STDOUT_BYTES, stderr: STDERR_BYTES };
    command.sandbox = match machine.settings().shell.sandbox {
        SandboxMode::Required => {
            let reach = Reach::new(machine, &scope, &program, &private_tmp);
            if name == "git" && !reach.reads_git_configuration(machine) {
                command.env.push((OsString::from("GIT_CONFIG_GLOBAL"), OsString::from("/dev/null")));
            }
            Sandbox::OnlyExcept {
                read: reach.read,
                read_only: machine.start_files(),
                write: reach.write,
                closed: machine.closed().to_vec(),
                network: machine.network(&ctx.call),
            }
        }
        SandboxMode::Off => machine.shell_sandbox(&ctx.call),
    };
    Ok((command, private_tmp))
}

fn check_allowed(machine: &Machine, name: &str) -> Result<(), ToolError> {
    let settings = machine.settings();
    let allowed: Vec<&str> =
        ALLOWED.iter().copied().chain(settings.shell.allow.iter().map(String::as_str)).collect();
    // A path would select any program, whatever its file name.
    if allowed.contains(&name) && !name.contains('/') {
        return Ok(());
    }
    let bare = name.rsplit('/').next().unwrap_or(name);
    let near = nearest(bare, allowed.iter().copied());
    let rest = allowed.iter().copied().filter(|name| !near.contains(name));
    let list = near.iter().copied().chain(rest).collect::<Vec<_>>().join(", ");
    let text = if name.contains('/') {
        format!("argv[0] must be a bare name, not a path: {name}")
    } else {
        format!("command not allowed: {name}")
    };
    Err(ToolError::input(text).with_hint(format!("allowed: {list}")))
}

/// Finds the program in directories that confined commands cannot write to.
fn find(machine: &Machine, scope: &Scope, name: &str) -> Result<Program, ToolError> {
    let system = SYSTEM_PATH.iter().map(PathBuf::from);
    let directories: Vec<PathBuf> = machine.settings().shell.path.iter().cloned().chain(system).collect();
    let mut writable = writable(machine, scope);
    writable.push(machine.temp_dir().to_owned());
    find_program_outside(name, &directories, &writable).ok_or_else(|| {
        let shown: Vec<_> = directories.iter().map(|directory| directory.to_string_lossy()).collect();
        ToolError::failed(format!("command not found: {name} is not in {}", shown.join(", "))).with_hint(
            "ask the operator to install it, or to add its directory to `shell.path` in gantry.toml",
        )
    })
}

fn writable(machine: &Machine, scope: &Scope) -> Vec<PathBuf> {
    std::iter::once(scope.root().to_owned()).chain(machine.settings().shell.caches.iter().cloned()).collect()
}

/// The paths that a confined command can reach: the system, its program, the workspace and
/// configured paths.
struct Reach {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
}

impl Reach {
    fn new(machine: &Machine, scope: &Scope, program: &Program, private_tmp: &PrivateTmp) -> Reach {
        let system = SYSTEM_READABLE.iter().map(PathBuf::from);
        let own = [&program.path, &program.real].into_iter().filter_map(|path| path.parent());
        let settings = machine.settings();
        let readable = settings.shell.readable.iter().cloned();
        let mut write = writable(machine, scope);
        write.push(private_tmp.path().to_owned());
        Reach { read: system.chain(own.map(PathBuf::from)).chain(readable).collect(), write }
    }

    /// Whether git can read its configuration in the home directory. Git fails if the file exists
    /// and cannot be read.
    fn reads_git_configuration(&self, machine: &Machine) -> bool {
        let Some(home) = machine.variable("HOME") else { return true };
        let file = Path::new(home).join(".gitconfig");
        self.read.iter().chain(&self.write).any(|path| file.starts_with(path))
    }
}

fn output(finished: Finished, network: Option<&'static str>) -> Output {
    let Finished { ended, stdout, stderr, .. } = finished;
    Output {
        exit_code: exit_code(&ended.exit),
        timed_out: ended.timed_out,
        signal: ended.exit.signal.map(|signal| signal.to_string()),
        truncated: stdout.truncated || stderr.truncated,
        stdout: stdout.text,
        stderr: stderr.text,
        network,
    }
}

#[cfg(test)]
mod tests;
