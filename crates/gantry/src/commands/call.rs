//! `gantry call` runs one tool.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use gantry_files::{Files, FilesOptions};
use gantry_protocol::{CallParams, ToolInfo, ToolsGetParams, method};
use gantry_tool::{Answer, Outcome, Refusal, RefusalCode, Reply};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::parse_duration;
use crate::client::{Address, Client, Target, runtime};
use crate::commands::interrupted;
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::local::{Local, MAIN_AGENT};
use crate::output::Output;

mod readable;
mod typed_input;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry call Bash command='git status --short'\n  \
    gantry call Read path=README.md limit=5\n  \
    gantry call batch_files paths:='[\"a.txt\",\"b.txt\"]'      key:=JSON for lists and objects\n  \
    gantry call Bash command='cargo test' --exit-code   exit as the command does\n  \
    gantry call read '{\"path\": \"/var/log/syslog\", \"offset\": -20}'\n  \
    gantry call tool::apply_patch @patch.json\n  \
    jq -n --rawfile content notes.md '{path: \"copy.md\", $content}' | gantry call Write -\n  \
    gantry call Glob '{\"pattern\": \"**/*.rs\"}' | jq -r '.matches[]'\n  \
    gantry call local__Bash '{\"command\": \"uptime\"}'        on one machine\n  \
    gantry call Bash '{\"command\": \"uptime\", \"node\": \"*\"}'  on every machine\n\n\
    Exit codes: 0 success · 1 tool error · 2 wrong usage, invalid input or unknown tool ·\n\
    3 denied, or approval needed · 4 not reachable · 124 deadline passed")]
pub(crate) struct CallArgs {
    /// Tool to run; `gantry tools` lists them
    pub(crate) name: String,
    /// Input as key=value words, as JSON, @FILE to read a file, or - to read standard input
    pub(crate) input: Vec<String>,
    /// Call as this agent, with its tools, policy and workspace
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Directory that relative paths start in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Give up after this time, such as 500ms, 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) deadline: Option<Duration>,
    /// Exit with the exit code of the command that the tool ran
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Run in this process, even if a gateway is running or configured
    #[arg(long)]
    pub(crate) local: bool,
}

/// Inputs beyond this size are rejected as a mistake.
const MAX_INPUT_BYTES: u64 = 256 << 20;

pub(crate) fn run(environment: Environment, output: &Output, args: CallArgs) -> Result<Exit> {
    match Target::find(&environment, output, args.local)? {
        Target::InProcess => in_process(environment, output, args),
        Target::Gateway(address) => {
            let input = match typed_input::is_pairs(&args.input) {
                false => read_input(&environment, args.input.first().map_or("{}", String::as_str))?,
                true => {
                    let params =
                        ToolsGetParams { name: args.name.clone(), agent: args.agent.clone(), mcp: None };
                    let tool: ToolInfo = Client::once(&address, output, method::TOOLS_GET, &params)?;
                    typed_input::build(&tool.input_schema, &args.input)?.to_string()
                }
            };
            through(&address, &environment, output, &args, input)
        }
    }
}

fn in_process(environment: Environment, output: &Output, args: CallArgs) -> Result<Exit> {
    let given = match typed_input::is_pairs(&args.input) {
        false => Some(read_input(&environment, args.input.first().map_or("{}", String::as_str))?),
        true => None,
    };
    let local = Local::open(environment)?;
    local.config.warnings().iter().for_each(|warning| output.warning(warning));
    let mut call = local.call(args.agent.as_deref(), args.workspace.clone())?;
    call.deadline = deadline(args.deadline);
    let input = match given {
        Some(input) => input,
        None => {
            let view = local.gate.registry().view(&call.scope);
            let tool = view.describe(&args.name).ok_or_else(|| Refused(view.unknown(&args.name)))?;
            typed_input::build(&tool.input_schema, &args.input)?.to_string()
        }
    };
    let input = input.as_str();
    output.note(&format!("in-process, workspace {}, as {}", call.workspace.display(), call.principal));
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let cancel = call.cancel.clone();
        let calling = local.gate.execute(call, &args.name, input);
        tokio::pin!(calling);
        let outcome = tokio::select! {
            outcome = &mut calling => outcome,
            // The tool ends its processes and then reports that it was cancelled.
            () = interrupted() => {
                cancel.cancel();
                calling.await
            }
        };
        local.servers.stop().await;
        outcome
    });
    if let Err(err) = local.gate.flush() {
        output.warning(&err.to_string());
    }
    let exit = exit(output, &args, &outcome);
    if exit == Exit::Usage && (args.name.contains("__") || input.contains("\"node\"")) {
        output.warning(
            "no gateway is running on this data directory; start one with `gantry up` to use other machines",
        );
    }
    Ok(exit)
}

fn through(
    address: &Address,
    environment: &Environment,
    output: &Output,
    args: &CallArgs,
    input: String,
) -> Result<Exit> {
    let Ok(input) = RawValue::from_string(input.clone()) else {
        let reason =
            serde_json::from_str::<Value>(&input).err().map(|err| err.to_string()).unwrap_or_default();
        output.refusal(&Refusal::new(
            RefusalCode::InvalidInput,
            format!("the input is not valid JSON: {reason}"),
        ));
        return Ok(Exit::Usage);
    };
    let params = CallParams {
        tool: args.name.clone(),
        input: Some(input),
        agent: args.agent.clone(),
        workspace: workspace(address, environment, args.workspace.as_deref(), args.agent.as_deref())?,
        mcp: None,
        asks: false,
    };
    let calling = Client::call_once(address, output, &params, deadline(args.deadline));
    let outcome = runtime()?.block_on(calling);
    Ok(exit(output, args, &outcome))
}

/// Prints the outcome and returns its exit code, with `--exit-code` that of the command.
fn exit(output: &Output, args: &CallArgs, outcome: &Outcome) -> Exit {
    let exit = print(output, outcome);
    match &outcome.answer {
        Answer::Success(Reply::Json(result)) if args.exit_code => {
            readable::exit_code(result).filter(|code| *code != 0).map_or(exit, Exit::Command)
        }
        _ => exit,
    }
}

/// Returns the workspace to send with a call. On this machine relative paths start in the current directory, with or
/// without a gateway, unless the agent has its own workspace.
pub(crate) fn workspace(
    address: &Address,
    environment: &Environment,
    given: Option<&Path>,
    agent: Option<&str>,
) -> Result<Option<String>> {
    let given = match (given, address.is_ours) {
        (Some(given), _) => given.to_owned(),
        (None, false) => return Ok(None),
        (None, true) => {
            let config = environment.layers.load()?;
            let agent = config.agents.get(agent.unwrap_or(MAIN_AGENT));
            if agent.is_some_and(|agent| agent.workspace.is_some()) {
                return Ok(None);
            }
            PathBuf::new()
        }
    };
    let absolute: PathBuf = environment.current_dir.join(given).components().collect();
    let text = absolute
        .to_str()
        .ok_or_else(|| UsageError("cannot use the workspace: its path is not UTF-8".into()))?;
    Ok(Some(text.to_owned()))
}

/// Converts a timeout to a deadline. A timeout that overflows the clock means no deadline.
fn deadline(time: Option<Duration>) -> Option<Instant> {
    time.and_then(|time| Instant::now().checked_add(time))
}

/// Reads the input: the argument itself, a file, or standard input.
pub(crate) fn read_input(environment: &Environment, input: &str) -> Result<String> {
    if input == "-" {
        let mut text = String::new();
        std::io::stdin()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    let Some(path) = input.strip_prefix('@') else { return Ok(input.to_owned()) };
    // This is the operator's own file, so no path is closed.
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    let bytes =
        files.free(&environment.current_dir)?.open(path).and_then(|file| file.read_all(MAX_INPUT_BYTES));
    let bytes = bytes.map_err(|err| UsageError(format!("cannot read the input: {err}")))?;
    text(path, bytes)
}

fn text(from: &str, bytes: Vec<u8>) -> Result<String> {
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(
            UsageError(format!("the input from {from} is longer than {MAX_INPUT_BYTES} bytes")).into()
        );
    }
    String::from_utf8(bytes).map_err(|_| UsageError(format!("the input from {from} is not UTF-8")).into())
}

pub(crate) fn print(output: &Output, outcome: &Outcome) -> Exit {
    for warning in &outcome.warnings {
        output.warning(warning);
    }
    match &outcome.answer {
        Answer::Success(Reply::Json(result)) if output.is_terminal() && !output.json => {
            let now = jiff::Timestamp::now().as_millisecond();
            let shown = readable::readable(result, output.width(), now);
            if !shown.text.is_empty() {
                output.reply(&Reply::Text(shown.text));
            }
            shown.notes.iter().for_each(|note| output.note_on_terminal(note));
            if let Some(failure) = shown.failure {
                output.failure(&failure);
            }
            Exit::Success
        }
        Answer::Success(reply) => {
            output.reply(reply);
            Exit::Success
        }
        Answer::ToolError(reply) => {
            output.tool_error(reply);
            Exit::Failure
        }
        Answer::Refused(refusal) => {
            output.refusal(refusal);
            refusal.code.into()
        }
    }
}
