//! `gsv__Message` sends a message to a person or a chat.

use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::{AskedAction, OutboxState};
use gantry_tool::{Call, Crossing, Done, Effect, Principal, Tool, ToolError, Toolset, done};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::address::{Address, PeerKind};
use crate::chat_channel::{describe, find_target};
use crate::chats::{Account, Chats, account_id, chat_message, now_ms};

/// How long the call waits for the provider's id.
const WAIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// The longest message.
const MAX_TEXT: usize = 100_000;

pub(crate) const NAME: &str = "gsv__Message";

/// Send a message to a person or a chat. Without a receiver it goes to the conversation that this run belongs to, or to the
/// owner's last active one. Your answer reaches the current conversation by itself; do not send it twice.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// The text, in Markdown.
    text: String,
    /// The channel, such as "telegram" (default: that of the current conversation).
    channel: Option<String>,
    /// The person or chat, by the provider's id (default: the current conversation).
    to: Option<String>,
    /// "dm", "group", "channel" or "thread" (default: what `to` is).
    peer_kind: Option<String>,
    /// The account of the channel (default: that of the current conversation, or "default").
    account_id: Option<String>,
    /// The id of the message to answer.
    reply_to_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// Whether the provider has the message.
    sent: bool,
    channel: String,
    to: String,
    peer_kind: String,
    account_id: String,
    /// The provider's id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    /// The message in `gantry outbox`.
    delivery_id: String,
    /// `sent`, `queued` or `unknown`.
    state: String,
}

/// The state of the tool: the chats of a running gateway, if there is one.
pub(crate) struct MessageTool(pub(crate) Option<Arc<Chats>>);

type Ctx = gantry_tool::Ctx<MessageTool>;

/// The part of the input that decides who gets the message.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Receiver {
    #[serde(default)]
    text: String,
    channel: Option<String>,
    to: Option<String>,
    peer_kind: Option<String>,
    account_id: Option<String>,
}

/// Returns the tools of this domain. With `None` they can be listed but not run.
pub(crate) fn tools(chats: Option<Arc<Chats>>) -> Vec<Tool> {
    let state = Arc::new(MessageTool(chats.clone()));
    let tool = Tool::new(NAME, Toolset::Native, &state, run)
        .works_without_machine()
        .offered_to_agents()
        .effects(&[Effect::SendsMessages])
        .crosses(move |call: &Call, receiver: Receiver| crossings(chats.as_deref(), call, &receiver))
        .asks_as(|_, receiver: Receiver| {
            let place = receiver.channel.map_or_else(String::new, |channel| format!(" in {channel}"));
            let to = format!("{}{place}", receiver.to.unwrap_or_else(|| "this conversation".to_owned()));
            std::future::ready(Some(AskedAction::Message { to, text: receiver.text, not_shown: 0 }))
        });
    vec![tool]
}

/// A message that only the owner reads does not cross the border.
fn crossings(chats: Option<&Chats>, call: &Call, receiver: &Receiver) -> Vec<Crossing> {
    let Some(chats) = chats else { return Vec::new() };
    match target(chats, call, receiver) {
        Ok((_, address)) if chats.people.is_owners(&address) => Vec::new(),
        Ok((_, address)) => vec![Crossing::Message { to: describe(&address) }],
        // It is refused anyway.
        Err(_) => Vec::new(),
    }
}

/// Finds the account and the chat that a call means.
fn target(chats: &Chats, call: &Call, receiver: &Receiver) -> Result<(Arc<Account>, Address), ToolError> {
    let current = call.session.as_deref().and_then(|session| chats.conversation_of(session));
    let current = current.map(|reply_to| reply_to.address).or_else(|| chats.owner_conversation(&call.agent));
    let kind = match receiver.peer_kind.as_deref() {
        None => None,
        Some(name) => Some(PeerKind::from_name(name).ok_or_else(|| {
            ToolError::input(format!("peerKind must be dm, group, channel or thread, not {name:?}"))
        })?),
    };
    let channel =
        receiver.channel.clone().or_else(|| current.as_ref().map(|address| address.channel.clone()));
    let Some(channel) = channel else {
        return Err(ToolError::input("channel is required, because this run belongs to no conversation")
            .with_hint(
                "`gantry channels` lists the channels; the owner links one with `gantry channels link`",
            ));
    };
    let of_current = current.as_ref().filter(|address| address.channel == channel);
    let name = receiver.account_id.clone().or_else(|| of_current.map(|address| address.account.clone()));
    let name = name.unwrap_or_else(|| "default".to_owned());
    let account = chats.account(&account_id(&channel, &name)).or_else(|| {
        // The only account of the channel is meant by the channel's name.
        let mut of_channel = chats.accounts().into_iter().filter(|account| account.channel == channel);
        let only = of_channel.next().filter(|_| of_channel.next().is_none());
        only.filter(|_| receiver.account_id.is_none())
    });
    let Some(account) = account else {
        let known: Vec<String> = chats.accounts().iter().map(|account| account.id()).collect();
        return Err(ToolError::input(format!("{channel} ({name}) is not connected"))
            .with_hint(format!("connected accounts: {}", known.join(", "))));
    };
    let address = match (&receiver.to, of_current) {
        (Some(to), _) => find_target(chats, &account, to, kind).map_err(ToolError::denied)?,
        (None, Some(current)) if current.account == account.name => current.clone(),
        (None, _) => {
            return Err(ToolError::input("to is required, because this run has no conversation there"));
        }
    };
    Ok((account, address))
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let chats = ctx.state.0.as_ref().ok_or_else(ToolError::needs_gateway)?;
    let call = &ctx.call;
    if matches!(call.principal, Principal::Client { .. } | Principal::Mcp { .. }) {
        return Err(ToolError::denied("only agents and their owner can send messages to people"));
    }
    if input.text.trim().is_empty() || input.text.len() > MAX_TEXT {
        return Err(ToolError::input(format!("text is required and has at most {MAX_TEXT} bytes")));
    }
    let receiver = Receiver {
        text: String::new(),
        channel: input.channel,
        to: input.to,
        peer_kind: input.peer_kind,
        account_id: input.account_id,
    };
    let (account, address) = target(chats, call, &receiver)?;
    if !account.may_receive(&chats.people, &address) {
        return Err(ToolError::denied(format!("{} may not get messages", describe(&address))));
    }
    // A call that is repeated after a restart has the same name, so it sends nothing twice.
    let name =
        call.session.as_ref().zip(call.step.as_ref()).map(|(session, step)| format!("{session}:{step}"));
    let dedupe = format!("message:{}", name.unwrap_or_else(|| call.id.clone()));
    let message = chat_message(&address, &call.agent, dedupe.clone(), input.text, input.reply_to_id);
    let mut messages = chats.parts.outbox.prepare(message);
    for one in &mut messages {
        one.body.from = call.session.clone().unwrap_or_else(|| call.principal.to_string());
    }
    let failed = |err: gantry_store::DatabaseError| ToolError::failed(err.to_string());
    chats.parts.database.add_outbox(&messages, now_ms()).await.map_err(failed)?;
    chats.parts.outbox.wake();
    let until = Instant::now() + WAIT;
    let message = loop {
        let message = chats.parts.database.outbox_message(&dedupe).await.map_err(failed)?;
        let message = message.ok_or_else(|| ToolError::failed("the message was removed"))?;
        let has_failed =
            matches!(message.state, OutboxState::Failed | OutboxState::Expired | OutboxState::Dropped);
        if has_failed {
            let why = message.error.unwrap_or_else(|| message.state.name().to_owned());
            return Err(ToolError::failed(format!("the message was not sent: {why}")));
        }
        if message.state.is_final() || Instant::now() >= until {
            break message;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
        }
    };
    let state = match message.state {
        OutboxState::Sent => "sent",
        OutboxState::Unknown => "unknown",
        _ => "queued",
    };
    Ok(done(Output {
        sent: message.state == OutboxState::Sent,
        channel: address.channel.clone(),
        to: address.peer(),
        peer_kind: address.kind.name().to_owned(),
        account_id: address.account,
        message_id: message.provider_id,
        delivery_id: message.id,
        state: state.to_owned(),
    }))
}
