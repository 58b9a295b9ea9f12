//! `gantry outbox` lists messages to chats, webhooks and sessions, and decides about those that may not have arrived.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_flow::relative_text;
use gantry_protocol::{OutboxList, OutboxListParams, OutboxMessage, OutboxParams, OutboxState, method};

use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry outbox                     list messages; those that need you come first\n  \
    gantry outbox list --state unknown\n  \
    gantry outbox resend 0199         send a message again\n  \
    gantry outbox arrived 0199        it arrived; do not send it again")]
pub(crate) struct OutboxArgs {
    #[command(subcommand)]
    action: Option<OutboxAction>,
}

#[derive(Debug, Subcommand)]
enum OutboxAction {
    /// List messages; those that need a person come first, then the newest
    List {
        /// Only messages in this state: held, queued, sending, sent, failed, unknown, expired, dropped
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// The number of messages
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        limit: u32,
    },
    /// Show a message
    Show {
        /// The message's id, or a unique beginning of it
        id: String,
    },
    /// Send a message that waits for your yes, failed, or may not have arrived
    Resend {
        /// The message's id, or a unique beginning of it
        id: String,
    },
    /// Record that a message has arrived
    Arrived {
        /// The message's id, or a unique beginning of it
        id: String,
    },
    /// Give a message up
    Drop {
        /// The message's id, or a unique beginning of it
        id: String,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: OutboxArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let one = |method: &str, id: String| -> Result<OutboxMessage> {
        Client::once(&address, output, method, &OutboxParams { id })
    };
    match args.action.unwrap_or(OutboxAction::List { state: None, limit: 20 }) {
        OutboxAction::List { state, limit } => {
            let state = state.map(|name| parse_state(&name)).transpose()?;
            let params = OutboxListParams { state, limit: Some(limit), offset: None };
            list(output, &Client::once(&address, output, method::OUTBOX_LIST, &params)?);
        }
        OutboxAction::Show { id } => show(output, &one(method::OUTBOX_SHOW, id)?),
        OutboxAction::Resend { id } => decided(output, &one(method::OUTBOX_RESEND, id)?, "is sent again"),
        OutboxAction::Arrived { id } => decided(output, &one(method::OUTBOX_ARRIVED, id)?, "counts as sent"),
        OutboxAction::Drop { id } => decided(output, &one(method::OUTBOX_DROP, id)?, "is dropped"),
    }
    Ok(Exit::Success)
}

fn parse_state(name: &str) -> Result<OutboxState> {
    let found = OutboxState::ALL.into_iter().find(|state| state.name() == name);
    let names = OutboxState::ALL.map(OutboxState::name).join(", ");
    Ok(found.ok_or_else(|| UsageError(format!("unknown state {name:?}; states: {names}")))?)
}

fn list(output: &Output, listed: &OutboxList) {
    if output.json {
        return output.value(listed);
    }
    if listed.messages.is_empty() {
        output.done("The outbox is empty.");
    }
    let now = jiff::Timestamp::now().as_millisecond();
    for message in &listed.messages {
        let text: String = message.body.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(60).collect();
        let facts = format!("to {} · {} · {text}", message.channel, relative_text(message.created, now));
        let line = [output.bold(&message.id), shown_state(output, message.state), message.body.title.clone()];
        output.line(&format!("{}  {}", line.join("  "), output.dim(&facts)));
    }
    let more = listed.total.saturating_sub(listed.messages.len() as u64);
    if more > 0 {
        output.note(&format!("{more} more; --limit shows them"));
    }
}

fn shown_state(output: &Output, state: OutboxState) -> String {
    match state {
        OutboxState::Sent => output.green(state.name()),
        OutboxState::Failed | OutboxState::Unknown | OutboxState::Expired => output.red(state.name()),
        OutboxState::Held | OutboxState::Queued | OutboxState::Sending | OutboxState::Dropped => {
            output.yellow(state.name())
        }
    }
}

fn show(output: &Output, message: &OutboxMessage) {
    if output.json {
        return output.value(message);
    }
    let now = jiff::Timestamp::now().as_millisecond();
    let state = shown_state(output, message.state);
    output.line(&format!("{}  {state}  {}", output.bold(&message.id), message.body.title));
    let line = |name: &str, text: &str| output.line(&format!("  {name:<10}{text}"));
    line("to", format!("{} {}", message.channel, message.target).trim_end());
    line("from", &message.body.from);
    line("created", &relative_text(message.created, now));
    line("attempts", &message.attempts.to_string());
    if let Some(next) = message.next_at {
        line("next", &relative_text(next, now));
    }
    if let Some(error) = &message.error {
        line("error", error);
    }
    output.page(&message.body.text);
}

fn decided(output: &Output, message: &OutboxMessage, what: &str) {
    match output.json {
        true => output.value(message),
        false => output.done(&format!("The message {} {what}.", message.id)),
    }
}
