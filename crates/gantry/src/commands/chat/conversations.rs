//! Chooses the conversation: a new one, the newest of this directory, or one from a list.

use std::io::IsTerminal;

use anyhow::Result;
use gantry_flow::relative_text;
use gantry_protocol::{SessionInfo, SessionList, SessionParams, SessionStatus, SessionsListParams, method};

use super::ChatArgs;
use super::connection::ask;
use crate::client::Address;
use crate::exit::UsageError;
use crate::output::{Output, printable, question};

/// How many of the newest conversations are looked at.
const LOOKED_AT: u32 = 50;
const LISTED: usize = 10;

/// Returns the key of the conversation that the arguments mean.
pub(super) async fn choose(
    address: &Address,
    output: &Output,
    args: &ChatArgs,
    key: String,
    workspace: Option<&str>,
) -> Result<String> {
    let agent = args.agent.as_deref().unwrap_or("main");
    if args.new {
        let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        return Ok(format!("agent:{agent}:chat-{now}"));
    }
    if !args.continues && !args.resume {
        return Ok(key);
    }
    let params = SessionsListParams { limit: Some(LOOKED_AT), ..SessionsListParams::default() };
    let listed: SessionList = ask(address, method::SESSIONS_LIST, &params).await?;
    let own = format!("agent:{agent}:");
    // Children and background runs have no person to talk to.
    let is_chat = |session: &SessionInfo| session.parent.is_none() && session.session_key.starts_with(&own);
    let chats: Vec<SessionInfo> = listed.sessions.into_iter().filter(is_chat).collect();
    if args.resume {
        return pick(output, &chats);
    }
    for chat in &chats {
        let params = SessionParams { session_key: chat.session_key.clone() };
        let status: SessionStatus = ask(address, method::SESSIONS_STATUS, &params).await?;
        if workspace.is_none_or(|workspace| workspace == status.workspace) {
            return Ok(chat.session_key.clone());
        }
    }
    let place = workspace.unwrap_or("this directory");
    Err(UsageError(format!("no conversation of agent {agent} has worked in {place} yet"))
        .with_hint("start one with `gantry chat --new`; `gantry chat --resume` lists others")
        .into())
}

/// Asks which conversation to continue.
fn pick(output: &Output, chats: &[SessionInfo]) -> Result<String> {
    if chats.is_empty() {
        return Err(UsageError("there is no conversation yet; `gantry chat` starts one".into()).into());
    }
    if !std::io::stdin().is_terminal() {
        let hint = "`gantry sessions` lists conversations; name one with --session";
        return Err(UsageError("--resume needs a terminal to choose at".into()).with_hint(hint).into());
    }
    let now = jiff::Timestamp::now().as_millisecond();
    for (number, chat) in chats.iter().take(LISTED).enumerate() {
        let label = chat.label.as_deref().unwrap_or("(no messages)");
        let when = relative_text(chat.last_activity, now);
        question(&printable(&format!("{:>3}  {label}  {} · {when}\n", number + 1, chat.session_key)));
    }
    loop {
        question("Which one? [1] ");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
            return Err(UsageError("no conversation was chosen".into()).into());
        }
        let chosen = match line.trim() {
            "" => Some(1),
            text => text.parse::<usize>().ok(),
        };
        match chosen.and_then(|number| chats.iter().take(LISTED).nth(number.checked_sub(1)?)) {
            Some(chat) => return Ok(chat.session_key.clone()),
            None => output.warning(&format!("type a number from 1 to {}", chats.len().min(LISTED))),
        }
    }
}
