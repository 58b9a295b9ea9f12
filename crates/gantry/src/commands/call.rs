//! `gantry call`: run one tool.

use std::io::Read;
use std::time::Instant;

use anyhow::{Context, Result};
use gantry_files::{Files, FilesOptions};
use gantry_tool::{Answer, Outcome};

use crate::cli::CallArgs;
use crate::exit::{Exit, UsageError};
use crate::local::Local;
use crate::output::Output;
use crate::places::Places;

/// An input file or stream beyond this is a mistake.
const MAX_INPUT_BYTES: u64 = 256 << 20;

pub(crate) fn run(places: Places, output: &Output, args: CallArgs) -> Result<Exit> {
    if let Some(exit) = output.no_gateway(args.local) {
        return Ok(exit);
    }
    let input = read_input(&places, &args.input)?;
    let local = Local::open(places)?;
    let mut call = local.call(args.agent.as_deref(), args.workspace)?;
    // A deadline beyond what a clock can tell is none.
    call.deadline = args.deadline.and_then(|time| Instant::now().checked_add(time));
    output.note(&format!("in-process, workspace {}, as {}", call.workspace.display(), call.principal));

    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let outcome = runtime.block_on(async {
        let cancel = call.cancel.clone();
        let calling = local.gate.execute(call, &args.name, &input);
        tokio::pin!(calling);
        tokio::select! {
            outcome = &mut calling => outcome,
            // The tool ends its processes, then answers that it was cancelled.
            _ = interrupted() => {
                cancel.cancel();
                calling.await
            }
        }
    });
    if let Err(err) = local.gate.flush() {
        output.warning(&err.to_string());
    }
    Ok(print(output, &outcome))
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// JSON as typed, from a file, or from standard input.
fn read_input(places: &Places, input: &str) -> Result<String> {
    if input == "-" {
        let mut text = String::new();
        std::io::stdin()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    let Some(path) = input.strip_prefix('@') else { return Ok(input.to_owned()) };
    // The operator's own file: nothing is closed to them here.
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    let bytes = files.free(&places.current_dir)?.open(path).and_then(|file| file.read_all(MAX_INPUT_BYTES));
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

fn print(output: &Output, outcome: &Outcome) -> Exit {
    for warning in &outcome.warnings {
        output.warning(warning);
    }
    match &outcome.answer {
        Answer::Success(reply) => {
            output.reply(reply);
            Exit::Success
        }
        Answer::ToolError(reply) => {
            output.reply(reply);
            Exit::Failure
        }
        Answer::Refused(refusal) => {
            output.refusal(refusal);
            refusal.code.into()
        }
    }
}
