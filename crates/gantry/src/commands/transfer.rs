//! `gantry transfer`: sends a file or a directory, shows how far it is, and waits also while the gateway is restarted.

mod bar;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use gantry_protocol::{CallParams, raw};
use gantry_tool::{Answer, Outcome, Refusal, RefusalCode, Reply};
use indicatif::HumanBytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use bar::Glyphs;

use crate::client::{Address, Client, Target, runtime};
use crate::commands::call::print;
use crate::commands::interrupted;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry transfer laptop:/home/me/data.tar build-box:/tmp/data.tar\n  \
    gantry transfer laptop:photos gsv:photos         a directory, into storage\n  \
    gantry transfer gsv:report.pdf local:report.pdf\n\n\
    A file at the destination is replaced once everything has arrived. A directory is merged into one that is there: each file\n\
    is replaced when it has arrived whole, and what else is there stays.\n\
    A transfer that was cut goes on where it was. Ctrl-C calls it off: nothing half-sent stays, files that had arrived do.\n\
    While the gateway is away nothing can be called off: it goes on with the transfer when it is back.")]
pub(crate) struct TransferArgs {
    /// Where from: NODE:PATH, or gsv:PATH for storage; relative paths start in the node's workspace
    pub(crate) source: String,
    /// Where to, in the same form
    pub(crate) destination: String,
    /// Whose workspace gsv: means [default: main]
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

const TOOL: &str = "gsv__Transfer";

/// A gateway that stops closes its connections this soon after its last answers.
const CLOSING: Duration = Duration::from_secs(1);

/// How long a gateway that was lost is waited for, and how often it is looked for.
const AWAY_LIMIT: Duration = Duration::from_secs(10 * 60);
const LOOK_PAUSE: Duration = Duration::from_millis(500);

pub(crate) fn run(environment: &Environment, output: &Output, args: &TransferArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let endpoint = |text: &str| match text.strip_prefix("local:") {
        // On our own machine a path means what it means in the shell.
        Some(path) if address.is_ours && !path.is_empty() => {
            let path = environment.expand_home(std::path::Path::new(path));
            format!("local:{}", environment.current_dir.join(path).display())
        }
        _ => text.to_owned(),
    };
    let input = json!({"source": endpoint(&args.source), "destination": endpoint(&args.destination)});
    let params = CallParams {
        tool: TOOL.to_owned(),
        input: Some(raw(&input)),
        agent: args.agent.clone(),
        workspace: None,
        mcp: None,
        asks: false,
    };
    let glyphs = if environment.shows_unicode() { Glyphs::Unicode } else { Glyphs::Ascii };
    let outcome = runtime()?.block_on(transfer(&address, output, glyphs, &params));
    let Answer::Success(Reply::Json(answer)) = &outcome.answer else {
        return Ok(print(output, &outcome));
    };
    show(output, glyphs, &answer["result"])?;
    Ok(Exit::Success)
}

/// What is read of the tool's result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transferred {
    source: String,
    destination: String,
    bytes_transferred: u64,
    #[serde(default)]
    files: Option<u64>,
    #[serde(default)]
    skipped: Vec<String>,
    #[serde(default)]
    skipped_count: u64,
}

fn show(output: &Output, glyphs: Glyphs, result: &Value) -> Result<()> {
    let sent: Transferred =
        serde_json::from_value(result.clone()).context("the gateway's answer is not valid")?;
    let left_out = (sent.skipped_count > 0 && !output.json)
        .then(|| format!("{} left out; everything else has arrived", sent.skipped_count));
    if output.json || !output.is_terminal() {
        output.value(result);
        left_out.iter().for_each(|told| output.warning(told));
        return Ok(());
    }
    let bytes = HumanBytes(sent.bytes_transferred);
    let files = sent.files.map(|files| format!(" in {files} files")).unwrap_or_default();
    let arrow = match glyphs {
        Glyphs::Unicode => "→",
        Glyphs::Ascii => "->",
    };
    output.line(&format!("{} {arrow} {}: {bytes}{files}", sent.source, sent.destination));
    for skipped in &sent.skipped {
        output.warning(&format!("left out: {skipped}"));
    }
    left_out.iter().for_each(|told| output.warning(told));
    Ok(())
}

/// Asks until there is an answer. The same transfer asked for again is the same transfer.
async fn transfer(address: &Address, output: &Output, glyphs: Glyphs, params: &CallParams) -> Outcome {
    let cancel = CancellationToken::new();
    let calling_off = cancel.clone();
    let watching = tokio::spawn(async move {
        interrupted().await;
        calling_off.cancel();
    });
    let mut lost_at: Option<Instant> = None;
    let outcome = loop {
        let client = match Client::connect(address).await {
            Ok(client) => client,
            Err(refusal) => {
                let waiting = lost_at.is_some_and(|at| at.elapsed() < AWAY_LIMIT)
                    && refusal.code == RefusalCode::Unavailable
                    && !cancel.is_cancelled();
                if waiting {
                    tokio::select! {
                        () = tokio::time::sleep(LOOK_PAUSE) => {}
                        () = cancel.cancelled() => {}
                    }
                    continue;
                }
                let refusal = match lost_at {
                    Some(_) if refusal.code == RefusalCode::Unavailable => {
                        goes_on(&refusal, cancel.is_cancelled())
                    }
                    _ => refusal,
                };
                break Outcome::from_wire(TOOL, Err(refusal.to_wire()));
            }
        };
        let outcome = {
            let showing = bar::show_progress(output, glyphs, client.progress());
            let mut calling = std::pin::pin!(client.call(params, None, &cancel));
            tokio::select! {
                outcome = &mut calling => outcome,
                outcome = showing => match outcome {},
            }
        };
        let unavailable =
            matches!(&outcome.answer, Answer::Refused(refusal) if refusal.code == RefusalCode::Unavailable);
        if unavailable && client.is_lost(CLOSING).await {
            if cancel.is_cancelled() {
                break Outcome::from_wire(TOOL, Err(in_doubt().to_wire()));
            }
            output.warning("the gateway was lost; waiting for it, the transfer goes on");
            lost_at = Some(Instant::now());
            continue;
        }
        client.close().await;
        break outcome;
    };
    watching.abort();
    outcome
}

/// Of a gateway that was lost and is not back: the transfer is the gateway's, and not over because nobody waits for it.
fn goes_on(refusal: &Refusal, called_off: bool) -> Refusal {
    let why = &refusal.message;
    let (message, hint) = match called_off {
        true => (
            format!("the transfer was not called off, the gateway goes on with it when it is back: {why}"),
            "run the same command again then, and press Ctrl-C to call it off",
        ),
        false => (
            format!("the gateway did not come back, and goes on with the transfer when it does: {why}"),
            "run the same command again then to see what comes of it",
        ),
    };
    Refusal::new(RefusalCode::Unavailable, message).with_hint(hint)
}

/// Of a gateway that was lost before it said that it had called the transfer off.
fn in_doubt() -> Refusal {
    let message =
        "the gateway was lost before it had called the transfer off: it may go on with it when it is back";
    let hint = "run the same command again then, and press Ctrl-C to call it off";
    Refusal::new(RefusalCode::Unavailable, message).with_hint(hint)
}
