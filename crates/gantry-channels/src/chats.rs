//! [`Chats`] is what the parts of this domain share: accounts, people, and the conversations that runs belong to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gantry_agent::Sessions;
use gantry_flow::{Outbox, OwnerChats, SecretFor};
use gantry_net::ClientOptions;
use gantry_protocol::{ChatDetails, OutboxBody};
use gantry_store::{Database, DatabaseError, NewOutboxMessage, Objects};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::adapter::Adapter;
use crate::address::{Address, PeerKind};
use crate::config::{Access, ChannelsConfig};
use crate::people::{People, address_json};

/// The parts of a gateway that channels use.
pub struct ChannelsParts {
    pub config: ChannelsConfig,
    pub database: Database,
    pub sessions: Sessions,
    pub outbox: Outbox,
    /// Storage of agents, for files from chats.
    pub objects: Objects,
    /// Settings of the guarded client.
    pub network: ClientOptions,
    /// Opens stored secrets.
    pub secret: SecretFor,
    /// The gateway's public address, where providers send events.
    pub public_url: Option<String>,
}

/// The most conversations that are remembered.
const MAX_CONVERSATIONS: usize = 10_000;

pub(crate) struct Chats {
    pub(crate) parts: ChannelsParts,
    pub(crate) people: People,
    /// By name, such as `telegram:default`.
    accounts: RwLock<BTreeMap<String, Arc<Account>>>,
    /// The owner's last active conversation by agent.
    last_active: RwLock<HashMap<String, Address>>,
    /// The conversation of each session's newest message from a chat.
    conversations: Mutex<HashMap<String, ReplyTo>>,
}

/// One configured account.
pub(crate) struct Account {
    pub(crate) channel: String,
    /// Its name in the configuration.
    pub(crate) name: String,
    pub(crate) access: Access,
    pub(crate) adapter: Arc<dyn Adapter>,
    pub(crate) status: Mutex<AccountStatus>,
    pub(crate) stop: CancellationToken,
    /// The settings that it was built from, to notice changes.
    pub(crate) settings: Value,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct AccountStatus {
    pub(crate) state: AccountState,
    /// The bot's own name at the provider.
    pub(crate) bot: String,
    pub(crate) error: Option<String>,
    pub(crate) last_event: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AccountState {
    #[default]
    Connecting,
    Connected,
    NeedsLogin,
    Conflict,
    Refused,
}

impl AccountState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            AccountState::Connecting => "connecting",
            AccountState::Connected => "connected",
            AccountState::NeedsLogin => "needs_login",
            AccountState::Conflict => "conflict",
            AccountState::Refused => "refused",
        }
    }
}

/// Where the answer to a message goes: `reply_to` of the message in its session, below the key `chat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplyTo {
    pub(crate) address: Address,
    /// The provider's id of the message.
    pub(crate) message_id: String,
}

impl ReplyTo {
    pub(crate) fn to_value(&self) -> Value {
        json!({ "chat": self })
    }

    pub(crate) fn from_value(value: &Value) -> Option<ReplyTo> {
        value.get("chat").and_then(|chat| serde_json::from_value(chat.clone()).ok())
    }
}

impl Account {
    /// The name in the outbox and in lists, such as `telegram:default`.
    pub(crate) fn id(&self) -> String {
        account_id(&self.channel, &self.name)
    }

    pub(crate) fn set_state(&self, state: AccountState, error: Option<String>) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        (status.state, status.error) = (state, error);
    }

    pub(crate) fn status(&self) -> AccountStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether messages may be sent to a chat: the owner, members, and groups that the configuration lists.
    pub(crate) fn may_receive(&self, people: &People, address: &Address) -> bool {
        match address.kind {
            PeerKind::Dm => people.may_receive(address),
            PeerKind::Group | PeerKind::Channel | PeerKind::Thread => {
                self.access.groups.contains_key(&address.chat)
            }
        }
    }
}

pub(crate) fn account_id(channel: &str, account: &str) -> String {
    format!("{channel}:{account}")
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Chats {
    pub(crate) async fn open(parts: ChannelsParts) -> Result<Chats, DatabaseError> {
        let mut last_active = HashMap::new();
        for agent in parts.sessions.agents().keys() {
            let address = parts.database.last_active_chat(agent).await?;
            if let Some(address) = address.and_then(|json| serde_json::from_str(&json).ok()) {
                last_active.insert(agent.clone(), address);
            }
        }
        let people = People::load(parts.database.clone()).await?;
        Ok(Chats {
            parts,
            people,
            accounts: RwLock::default(),
            last_active: RwLock::new(last_active),
            conversations: Mutex::default(),
        })
    }

    pub(crate) fn account(&self, id: &str) -> Option<Arc<Account>> {
        self.accounts.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(crate) fn account_of(&self, address: &Address) -> Option<Arc<Account>> {
        self.account(&account_id(&address.channel, &address.account))
    }

    pub(crate) fn accounts(&self) -> Vec<Arc<Account>> {
        self.accounts.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn put_account(&self, account: Arc<Account>) {
        self.accounts.write().unwrap_or_else(PoisonError::into_inner).insert(account.id(), account);
    }

    pub(crate) fn take_account(&self, id: &str) -> Option<Arc<Account>> {
        self.accounts.write().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// Notes that the owner talked to an agent in this conversation. The database has it already.
    pub(crate) fn note_last_active(&self, agent: &str, address: &Address) {
        let mut active = self.last_active.write().unwrap_or_else(PoisonError::into_inner);
        active.insert(agent.to_owned(), address.clone());
    }

    /// The owner's last active conversation with an agent, if it is still the owner's.
    pub(crate) fn owner_conversation(&self, agent: &str) -> Option<Address> {
        let active = self.last_active.read().unwrap_or_else(PoisonError::into_inner).get(agent).cloned();
        active.filter(|address| self.people.is_owners(address) && self.account_of(address).is_some())
    }

    /// The owner's chat in which questions can be answered: the last active one if it can, otherwise any other.
    pub(crate) fn approver_chat(&self, agent: &str) -> Option<Address> {
        let can_approve = |address: &Address| {
            self.account_of(address).is_some_and(|account| account.adapter.limits().may_approve)
        };
        let active = self.owner_conversation(agent);
        if let Some(active) = active.clone().filter(can_approve) {
            return Some(active);
        }
        let accounts = self.accounts().into_iter().filter(|account| account.access.agent == agent);
        let mut chats = accounts.flat_map(|account| self.people.owner_chats(&account.channel, &account.name));
        chats.find(|chat| can_approve(chat) && self.people.is_owners(chat)).or(active)
    }

    pub(crate) fn note_conversation(&self, session: &str, reply_to: ReplyTo) {
        let mut known = self.conversations.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest message of a session brings its conversation back.
        if known.len() >= MAX_CONVERSATIONS && !known.contains_key(session) {
            known.clear();
        }
        known.insert(session.to_owned(), reply_to);
    }

    /// The conversation that a session's newest message came from.
    pub(crate) fn conversation_of(&self, session: &str) -> Option<ReplyTo> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    /// Stores a message to a chat and sends it.
    pub(crate) async fn tell(
        &self,
        address: &Address,
        agent: &str,
        dedupe: String,
        text: &str,
        reply_to: Option<String>,
    ) -> Result<(), DatabaseError> {
        let message = chat_message(address, agent, dedupe, text.to_owned(), reply_to);
        let messages = self.parts.outbox.prepare(message);
        self.parts.database.add_outbox(&messages, now_ms()).await?;
        self.parts.outbox.wake();
        Ok(())
    }
}

impl OwnerChats for Chats {
    fn last_active(&self, agent: &str) -> Option<(String, String)> {
        let address = self.owner_conversation(agent)?;
        Some((account_id(&address.channel, &address.account), address_json(&address)))
    }
}

/// A message to a chat, before it is prepared.
pub(crate) fn chat_message(
    address: &Address,
    agent: &str,
    dedupe: String,
    text: String,
    reply_to: Option<String>,
) -> NewOutboxMessage {
    NewOutboxMessage {
        dedupe,
        channel: account_id(&address.channel, &address.account),
        target: address_json(address),
        body: OutboxBody {
            agent: agent.to_owned(),
            text,
            from: "channels".to_owned(),
            chat: Some(Box::new(ChatDetails { reply_to, ..ChatDetails::default() })),
            ..OutboxBody::default()
        },
        expires: None,
    }
}
