//! Shows that the agent works: "typing" while a run works, and one message when it takes long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_agent::SessionEvent;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

use crate::address::PeerKind;
use crate::chat_channel::NOTICE;
use crate::chats::{Chats, ReplyTo, chat_message, now_ms};

/// Providers show "typing" for about five seconds.
const EVERY: Duration = Duration::from_secs(4);
/// After this time a chat of two gets one message.
const LONG: Duration = Duration::from_secs(20);
/// A run that works longer shows nothing more.
const LIMIT: Duration = Duration::from_secs(1800);
/// The most runs that are shown at the same time.
const MAX_SHOWN: usize = 256;

/// Follows the runs of all sessions. Never returns.
pub(crate) async fn follow(chats: Arc<Chats>) {
    let mut events = chats.parts.sessions.listen_to_all();
    let mut shown: HashMap<String, AbortOnDropHandle<()>> = HashMap::new();
    loop {
        let data = match events.recv().await {
            Ok(data) => data,
            Err(RecvError::Lagged(_)) => {
                shown.clear();
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        match &data.event {
            SessionEvent::RunBegun { run } if shown.len() < MAX_SHOWN => {
                if let Some(reply_to) = chats.conversation_of(&data.session_key) {
                    let task =
                        tokio::spawn(show(chats.clone(), reply_to, data.session_key.clone(), run.clone()));
                    shown.insert(data.session_key.clone(), AbortOnDropHandle::new(task));
                }
            }
            // A run that waits for a person does not type.
            SessionEvent::Final { .. }
            | SessionEvent::Stopped { .. }
            | SessionEvent::Error { .. }
            | SessionEvent::Approval { .. }
            | SessionEvent::Asked { .. }
            | SessionEvent::Suspended => {
                shown.remove(&data.session_key);
            }
            _ => {}
        }
    }
}

async fn show(chats: Arc<Chats>, reply_to: ReplyTo, session: String, run: String) {
    let Some(account) = chats.account_of(&reply_to.address) else { return };
    // The message that started the run may not be from this chat.
    let Ok(key) = chats.parts.sessions.key(&session, None) else { return };
    let answers_here = chats.parts.sessions.status(&key).await.is_ok_and(|status| {
        status.addressees.iter().any(|message| {
            ReplyTo::from_value(&message.reply_to).is_some_and(|other| other.address == reply_to.address)
        })
    });
    if !answers_here {
        return;
    }
    let typing = async {
        loop {
            account.adapter.typing(&reply_to.address).await;
            tokio::time::sleep(EVERY).await;
        }
    };
    let status = async {
        tokio::time::sleep(LONG).await;
        if reply_to.address.kind == PeerKind::Dm {
            let text = "I am still working on it.".to_owned();
            let mut note = chat_message(&reply_to.address, &key.agent, format!("working:{run}"), text, None);
            note.body.from = NOTICE.to_owned();
            let _ = chats.parts.database.add_outbox(&[note], now_ms()).await;
            chats.parts.outbox.wake();
        }
        std::future::pending::<()>().await
    };
    let _ = tokio::time::timeout(LIMIT, async { tokio::join!(typing, status) }).await;
}
