//! Routes and protocol methods of channels: lists, linking, people, and what bridges call.

use std::sync::{Arc, PoisonError};

use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use gantry_domain::http::{json_response, refusal_response};
use gantry_domain::{Identity, MethodContext, Methods, RequestContext};
use gantry_protocol::{
    BridgeAccepted, BridgeInbound, BridgePress, BridgePressed, ChannelInfo, ChannelLink, ChannelList,
    ChannelPairParams, ChannelParams, ChannelPeople, ChannelPerson, ChannelRoleParams, ChannelTest, Empty,
    ErrorCode, WireError,
};
use gantry_store::{PersonRole, PersonRow};
use gantry_tool::{Refusal, RefusalCode};
use serde::Serialize;

use crate::adapter::{Addressed, Inbound, Intake, Press};
use crate::address::{PeerKind, Person};
use crate::chats::{Account, AccountState, account_id, now_ms};
use crate::domain::RunningChannels;
use crate::intake::AccountIntake;
use crate::webhook::{accepted_name, peer_address};

type Shared = Extension<Arc<RunningChannels>>;

pub(crate) fn routes(running: &Arc<RunningChannels>) -> Router<RequestContext> {
    Router::new()
        .route("/v1/channels", get(list_route))
        .route("/v1/channels/people", get(people_route))
        .layer(Extension(running.clone()))
}

async fn list_route(Extension(running): Shared, Extension(identity): Extension<Identity>) -> Response {
    let listed = match operator(&identity) {
        Ok(()) => running.list().await,
        Err(refusal) => Err(refusal),
    };
    answered(listed)
}

async fn people_route(Extension(running): Shared, Extension(identity): Extension<Identity>) -> Response {
    answered(operator(&identity).map(|()| running.people()))
}

fn answered<T: Serialize>(result: Result<T, Refusal>) -> Response {
    match result {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(refusal) => refusal_response(&refusal),
    }
}

fn operator(identity: &Identity) -> Result<(), Refusal> {
    match identity.is_operator() {
        true => Ok(()),
        false => {
            let refusal = Refusal::new(RefusalCode::Denied, "only the operator can manage channels");
            Err(refusal.with_hint("use the operator's token"))
        }
    }
}

pub(crate) fn methods(running: &Arc<RunningChannels>) -> Methods {
    Methods::default()
        .on_operator("channels.list", running, |running, _, Empty {}| async move {
            running.list().await.map_err(wire)
        })
        .on_operator("channels.people", running, |running, _, Empty {}| async move { Ok(running.people()) })
        .on_operator("channels.role", running, |running, _, params: ChannelRoleParams| async move {
            running.set_role(params).await.map_err(wire)
        })
        .on_operator("channels.pair", running, |running, _, params: ChannelPairParams| async move {
            running.pair(params).await.map_err(wire)
        })
        .on_operator("channels.link", running, |running, _, params: ChannelParams| async move {
            running.link(&params.id).await.map_err(wire)
        })
        .on_operator("channels.test", running, |running, _, params: ChannelParams| async move {
            running.test(&params.id).await.map_err(wire)
        })
        .on_operator("channels.restart", running, |running, _, params: ChannelParams| async move {
            let id = running.account(&params.id).map_err(wire)?.id();
            running.restart(&id);
            running.list().await.map_err(wire)
        })
        .on("channel.open", running, |running, context, params: ChannelParams| async move {
            running.open_bridge(&context, &params.id)?;
            Ok(Empty {})
        })
        .on("channel.inbound", running, |running, context, params: BridgeInbound| async move {
            running.bridge_message(&context, params).await
        })
        .on("channel.press", running, |running, context, params: BridgePress| async move {
            running.bridge_press(&context, params).await
        })
}

fn wire(refusal: Refusal) -> WireError {
    refusal.to_wire()
}

fn store(err: gantry_store::DatabaseError) -> Refusal {
    Refusal::new(RefusalCode::Unavailable, err.to_string())
}

impl RunningChannels {
    /// The account that a caller means: by its id, or by its channel if that has one account.
    pub(crate) fn account(&self, id: &str) -> Result<Arc<Account>, Refusal> {
        if let Some(account) =
            self.chats.account(id).or_else(|| self.chats.account(&account_id(id, "default")))
        {
            return Ok(account);
        }
        let accounts = self.chats.accounts();
        let of_channel: Vec<&Arc<Account>> =
            accounts.iter().filter(|account| account.channel == id).collect();
        if let [only] = of_channel.as_slice() {
            return Ok(Arc::clone(only));
        }
        let known: Vec<String> = accounts.iter().map(|account| account.id()).collect();
        let hint = match known.is_empty() {
            true => "no channel is configured; `gantry channels add` shows how".to_owned(),
            false => format!("configured: {}", known.join(", ")),
        };
        Err(Refusal::new(RefusalCode::InvalidInput, format!("unknown channel {id:?}")).with_hint(hint))
    }

    async fn list(&self) -> Result<ChannelList, Refusal> {
        let mut accounts = Vec::new();
        for account in self.chats.accounts() {
            let status = account.status();
            let backlog = self.chats.parts.database.outbox_backlog(&account.id()).await.map_err(store)?;
            let owners = self.chats.people.owner_chats(&account.channel, &account.name);
            accounts.push(ChannelInfo {
                id: account.id(),
                channel: account.channel.clone(),
                account: account.name.clone(),
                agent: account.access.agent.clone(),
                state: status.state.name().to_owned(),
                bot: status.bot,
                error: status.error,
                last_event: status.last_event,
                backlog,
                linked: !owners.is_empty(),
            });
        }
        Ok(ChannelList { accounts })
    }

    async fn link(&self, id: &str) -> Result<ChannelLink, Refusal> {
        let account = self.account(id)?;
        let (code, expires) =
            self.chats.people.new_link(&account.channel, &account.name, now_ms()).await.map_err(store)?;
        Ok(ChannelLink { id: account.id(), code, bot: account.status().bot, expires })
    }

    async fn test(&self, id: &str) -> Result<ChannelTest, Refusal> {
        let account = self.account(id)?;
        let id = account.id();
        let tested = account.adapter.test().await;
        // What stopped the account is fixed, so it connects again.
        let is_stopped = matches!(
            account.status().state,
            AccountState::NeedsLogin | AccountState::Conflict | AccountState::Refused
        );
        if tested.is_ok() && is_stopped {
            self.restart(&id);
        }
        Ok(match tested {
            Ok(info) => ChannelTest {
                id,
                ok: true,
                bot: info.name,
                warnings: info.warnings,
                ..ChannelTest::default()
            },
            Err(problem) => ChannelTest {
                id,
                ok: false,
                problem: Some(problem.message),
                fix: Some(problem.fix),
                ..ChannelTest::default()
            },
        })
    }

    fn people(&self) -> ChannelPeople {
        ChannelPeople { people: self.chats.people.all().into_iter().map(person).collect() }
    }

    async fn pair(&self, params: ChannelPairParams) -> Result<ChannelPerson, Refusal> {
        let unknown = || {
            let message = format!("no stranger waits with the code {:?}", params.code);
            Refusal::new(RefusalCode::InvalidInput, message)
                .with_hint("codes are valid for an hour; `gantry channels people` lists who waits")
        };
        let role = if params.approve { PersonRole::Member } else { PersonRole::Blocked };
        let decided = self.chats.people.decide(&params.code, role, now_ms()).await.map_err(store)?;
        let mut row = decided.ok_or_else(unknown)?;
        row.role = role;
        if !params.approve {
            // Blocked people get no message.
        } else if let Some(address) = row.chat.as_deref().and_then(|chat| serde_json::from_str(chat).ok()) {
            let account = self.chats.account_of(&address);
            let agent = account.map_or_else(String::new, |account| account.access.agent.clone());
            let key = format!("admitted:{}", params.code.to_uppercase());
            let text = "You are admitted. Write to me.";
            self.chats.tell(&address, &agent, key, text, None).await.map_err(store)?;
        }
        Ok(person(PersonRow { code: None, ..row }))
    }

    async fn set_role(&self, params: ChannelRoleParams) -> Result<ChannelPeople, Refusal> {
        let account = self.account(&params.account)?;
        let row = self.chats.people.all().into_iter().find(|row| {
            row.channel == account.channel && row.account == account.name && row.id == params.person
        });
        let Some(row) = row else {
            let message = format!("{:?} is not known in {}", params.person, account.id());
            return Err(Refusal::new(RefusalCode::InvalidInput, message)
                .with_hint("people become known when they write to the bot"));
        };
        let changed = match params.role.as_str() {
            "member" => self.chats.people.set_role(&row, PersonRole::Member, now_ms()).await,
            "blocked" => self.chats.people.set_role(&row, PersonRole::Blocked, now_ms()).await,
            "none" => self.chats.people.remove(&row).await,
            other => {
                let message = format!("the role must be member, blocked or none, not {other:?}");
                return Err(Refusal::new(RefusalCode::InvalidInput, message)
                    .with_hint("owners link themselves with `gantry channels link`"));
            }
        };
        changed.map_err(store)?;
        Ok(self.people())
    }

    /// The bridge account of a connection: its token has the name that the configuration says.
    fn bridge(&self, context: &MethodContext, id: Option<&str>) -> Result<Arc<Account>, WireError> {
        let Identity::Client(token) = &context.identity else {
            let message = "a bridge connects with a client token of its own";
            return Err(WireError::new(ErrorCode::Forbidden, message));
        };
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let own = config.bridge.iter().find(|(name, bridge)| {
            bridge.token_name == token.name && id.is_none_or(|id| id == name.as_str())
        });
        let account = own.and_then(|(name, _)| self.chats.account(&account_id("bridge", name)));
        account.ok_or_else(|| {
            let message = format!("the token {:?} belongs to no bridge in the configuration", token.name);
            WireError::new(ErrorCode::Forbidden, message)
        })
    }

    fn open_bridge(&self, context: &MethodContext, id: &str) -> Result<(), WireError> {
        let account = self.bridge(context, Some(id))?;
        account.adapter.connect_bridge(context.connection, context.link.clone());
        self.chats.parts.outbox.wake();
        Ok(())
    }

    async fn bridge_message(
        &self,
        context: &MethodContext,
        params: BridgeInbound,
    ) -> Result<BridgeAccepted, WireError> {
        let account = self.bridge(context, None)?;
        let bad = |why| WireError::new(ErrorCode::BadParams, why);
        let address = peer_address(&account.channel, &account.name, params.peer).map_err(bad)?;
        let addressed = match (address.kind, params.addressed) {
            (PeerKind::Dm, _) => Addressed::Direct,
            (_, true) => Addressed::Mention,
            (_, false) => Addressed::No,
        };
        let inbound = Inbound {
            message_id: params.message_id.unwrap_or_else(|| params.id.clone()),
            event_id: params.id,
            address,
            person: Person {
                id: params.from.id,
                alias: None,
                name: params.from.name,
                is_bot: params.from.bot,
            },
            text: params.text,
            quoted: params.quoted,
            is_forwarded: false,
            media: Vec::new(),
            addressed,
            at: params.at.unwrap_or_else(now_ms),
            is_edit: false,
            is_verified: true,
        };
        let intake = AccountIntake { chats: self.chats.clone(), account };
        let accepted = intake.message(inbound, None).await;
        let accepted = accepted.map_err(|err| WireError::new(ErrorCode::Unavailable, err.to_string()))?;
        Ok(BridgeAccepted { status: accepted_name(accepted).to_owned() })
    }

    async fn bridge_press(
        &self,
        context: &MethodContext,
        params: BridgePress,
    ) -> Result<BridgePressed, WireError> {
        let account = self.bridge(context, None)?;
        let bad = |why| WireError::new(ErrorCode::BadParams, why);
        let address = peer_address(&account.channel, &account.name, params.peer).map_err(bad)?;
        let press = Press {
            event_id: params.id,
            person: Person {
                id: params.from.id,
                alias: None,
                name: params.from.name,
                is_bot: params.from.bot,
            },
            address,
            message_id: params.message_id,
            handle: params.handle,
        };
        let intake = AccountIntake { chats: self.chats.clone(), account };
        let text = intake.press(press, None).await;
        let text = text.map_err(|err| WireError::new(ErrorCode::Unavailable, err.to_string()))?;
        Ok(BridgePressed { text })
    }
}

fn person(row: PersonRow) -> ChannelPerson {
    ChannelPerson {
        account: account_id(&row.channel, &row.account),
        id: row.id,
        name: row.name,
        role: row.role.name().to_owned(),
        code: row.code,
        since: row.created,
    }
}
