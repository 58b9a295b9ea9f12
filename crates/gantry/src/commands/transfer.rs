//! `gantry transfer` copies a file or directory, shows progress, and keeps waiting while the gateway restarts.

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
    gantry transfer laptop:photos gsv:photos         copy a directory into storage\n  \
    gantry transfer gsv:report.pdf local:report.pdf\n\n\
    A file at the destination is replaced only after the new one has arrived completely. A directory is merged into an\n\
    existing one: other files in it stay.\n\
    An interrupted transfer resumes where it stopped. Ctrl-C cancels it: complete files stay, partial ones are removed.\n\
    A transfer cannot be cancelled while the gateway is offline; it resumes when the gateway is back.")]
pub(crate) struct TransferArgs {
    /// Source: NODE:PATH, or gsv:PATH for storage; relative paths start in the node's workspace
    pub(crate) source: String,
    /// Destination, in the same form
    pub(crate) destination: String,
    /// Agent whose storage gsv: names [default: main]
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

const TOOL: &str = "gsv__Transfer";

/// A stopping gateway closes its connections within this time after its last answers.
const CLOSING: Duration = Duration::from_secs(1);

/// How long the command waits for a lost gateway, and the pause between two attempts to reconnect.
const RECONNECT_LIMIT: Duration = Duration::from_secs(10 * 60);
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

pub(crate) fn run(environment: &Environment, output: &Output, args: &TransferArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let endpoint = |text: &str| match text.strip_prefix("local:") {
        // On this machine a path means what it means in the shell.
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

/// `Transferred` holds the fields of the tool's result that the command prints.
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
        serde_json::from_value(result.clone()).context("the gateway's answer is invalid")?;
    let skipped_note = (sent.skipped_count > 0 && !output.json)
        .then(|| format!("{} entries were skipped; everything else was copied", sent.skipped_count));
    if output.json || !output.is_terminal() {
        output.value(result);
        skipped_note.iter().for_each(|note| output.warning(note));
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
        output.warning(&format!("skipped: {skipped}"));
    }
    skipped_note.iter().for_each(|note| output.warning(note));
    Ok(())
}

/// Repeats the request until the gateway answers. A repeated request joins the same transfer.
async fn transfer(address: &Address, output: &Output, glyphs: Glyphs, params: &CallParams) -> Outcome {
    let cancel = CancellationToken::new();
    let cancelling = cancel.clone();
    let watching = tokio::spawn(async move {
        interrupted().await;
        cancelling.cancel();
    });
    let mut lost_at: Option<Instant> = None;
    let outcome = loop {
        let client = match Client::connect(address).await {
            Ok(client) => client,
            Err(refusal) => {
                let waiting = lost_at.is_some_and(|at| at.elapsed() < RECONNECT_LIMIT)
                    && refusal.code == RefusalCode::Unavailable
                    && !cancel.is_cancelled();
                if waiting {
                    tokio::select! {
                        () = tokio::time::sleep(RECONNECT_PAUSE) => {}
                        () = cancel.cancelled() => {}
                    }
                    continue;
                }
                let refusal = match lost_at {
                    Some(_) if refusal.code == RefusalCode::Unavailable => {
                        still_running(&refusal, cancel.is_cancelled())
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
                break Outcome::from_wire(TOOL, Err(cancel_unconfirmed().to_wire()));
            }
            output.warning("the connection to the gateway was lost; reconnecting, the transfer will resume");
            lost_at = Some(Instant::now());
            continue;
        }
        client.close().await;
        break outcome;
    };
    watching.abort();
    outcome
}

/// The gateway is offline, and it resumes the transfer when it is back, whether or not this command waits.
fn still_running(refusal: &Refusal, cancelled: bool) -> Refusal {
    let why = &refusal.message;
    let (message, hint) = match cancelled {
        true => (
            format!("the transfer was not cancelled; the gateway will resume it when it is back: {why}"),
            "when the gateway is back, run the same command again and press Ctrl-C",
        ),
        false => (
            format!("the gateway is still offline; it will resume the transfer when it is back: {why}"),
            "when the gateway is back, run the same command again to follow the transfer",
        ),
    };
    Refusal::new(RefusalCode::Unavailable, message).with_hint(hint)
}

/// The connection was lost before the gateway confirmed the cancellation.
fn cancel_unconfirmed() -> Refusal {
    let message = "the connection was lost before the gateway confirmed the cancellation; the transfer may resume when it is back";
    let hint = "when the gateway is back, run the same command again and press Ctrl-C";
    Refusal::new(RefusalCode::Unavailable, message).with_hint(hint)
}
