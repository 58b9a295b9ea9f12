//! [`ChannelsDomain`] plugs chat channels into the gateway.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Router};
use futures_util::future::BoxFuture;
use gantry_domain::{
    Checked, ConfigSections, Domain, Finding, FindingLevel, Methods, PublicRoute, RequestContext, Running,
};
use gantry_store::DatabaseError;
use gantry_tool::{Tool, Violation};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::adapter::{WebhookAnswer, WebhookRequest};
use crate::chats::{AccountState, ChannelsParts, Chats, account_id};
use crate::config::ChannelsConfig;
use crate::intake::AccountIntake;
use crate::outgoing::ChatAnswers;
use crate::{accounts, message_tool, questions, surfaces, typing};

/// The largest request of a provider.
const MAX_WEBHOOK_BYTES: usize = 4 * 1024 * 1024;
/// Requests that one address may send in a minute.
const WEBHOOKS_PER_MINUTE: u32 = 1_200;

/// The running channels: what surfaces and the domain share.
pub(crate) struct RunningChannels {
    pub(crate) chats: Arc<Chats>,
    pub(crate) config: Mutex<ChannelsConfig>,
    started: Mutex<Option<(TaskTracker, CancellationToken)>>,
}

impl RunningChannels {
    fn apply(&self, config: ChannelsConfig) {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).clone();
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config.clone();
        if let Some((tasks, stopping)) = started {
            accounts::apply(&self.chats, &config, &tasks, &stopping);
        }
    }

    /// Connects an account again.
    pub(crate) fn restart(&self, id: &str) {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((tasks, stopping)) = started {
            accounts::restart(&self.chats, id, &config, &tasks, &stopping);
        }
    }
}

pub struct ChannelsDomain {
    running: Arc<RunningChannels>,
}

impl ChannelsDomain {
    pub async fn open(parts: ChannelsParts) -> Result<ChannelsDomain, DatabaseError> {
        let config = Mutex::new(parts.config.clone());
        let chats = Arc::new(Chats::open(parts).await?);
        let running = RunningChannels { chats, config, started: Mutex::default() };
        Ok(ChannelsDomain { running: Arc::new(running) })
    }
}

/// The tools of this domain, for lists without a gateway.
pub fn tools() -> Vec<Tool> {
    message_tool::tools(None)
}

/// The names of [`tools`].
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    [message_tool::NAME].into_iter()
}

impl Domain for ChannelsDomain {
    fn name(&self) -> &'static str {
        "channels"
    }

    fn routes(&self) -> Router<RequestContext> {
        surfaces::routes(&self.running)
    }

    fn public_routes(&self) -> Vec<PublicRoute> {
        let handler = axum::routing::any(webhook).layer(Extension(self.running.clone()));
        vec![PublicRoute {
            path: "/v1/channels/{channel}/{account}/webhook",
            handler,
            max_body_bytes: MAX_WEBHOOK_BYTES,
            per_minute: WEBHOOKS_PER_MINUTE,
        }]
    }

    fn methods(&self) -> Methods {
        surfaces::methods(&self.running)
    }

    fn check_config(&self, new: &ConfigSections) -> Result<Checked, Vec<Violation>> {
        Ok(new.get::<ChannelsConfig>().map_or_else(Checked::unchanged, |config| Checked::new(config.clone())))
    }

    fn apply_config(&self, checked: Checked) -> BoxFuture<'_, ()> {
        if let Some(config) = checked.take::<ChannelsConfig>() {
            self.running.apply(config);
        }
        Box::pin(std::future::ready(()))
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let chats = &self.running.chats;
            running.tools.add(message_tool::tools(Some(chats.clone())))?;
            chats.parts.sessions.set_outgoing(Arc::new(ChatAnswers(chats.clone())));
            chats.parts.outbox.set_owner_chats(chats.clone());
            let started = Some((running.tasks.clone(), running.stopping.clone()));
            *self.running.started.lock().unwrap_or_else(PoisonError::into_inner) = started;
            running.spawn_worker(questions::follow(chats.clone()));
            running.spawn_worker(typing::follow(chats.clone()));
            let config = self.running.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
            accounts::apply(chats, &config, &running.tasks, &running.stopping);
            Ok(())
        })
    }

    fn doctor(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move {
            let accounts = self.running.chats.accounts();
            let finding = |account: &Arc<crate::chats::Account>| {
                let (id, status) = (account.id(), account.status());
                // An account that connects for the first time has no problem yet.
                if status.state == AccountState::Connecting && status.error.is_none() {
                    return None;
                }
                Some(match status.state {
                    AccountState::Connected => Finding {
                        level: FindingLevel::Ok,
                        message: format!("the channel {id} is connected"),
                        fix: None,
                    },
                    AccountState::Connecting => Finding {
                        level: FindingLevel::Warning,
                        message: format!(
                            "the channel {id} is not connected{}",
                            status.error.map_or(String::new(), |why| format!(": {why}"))
                        ),
                        fix: Some(format!("run `gantry channels test {id}`")),
                    },
                    _ => Finding {
                        level: FindingLevel::Error,
                        message: format!("the channel {id} stopped: {}", status.error.unwrap_or_default()),
                        fix: Some(format!(
                            "run `gantry channels test {id}`, then `gantry channels login {id}`"
                        )),
                    },
                })
            };
            accounts.iter().filter_map(finding).collect()
        })
    }
}

/// A request of a provider. The adapter checks its signature.
async fn webhook(
    Extension(running): Extension<Arc<RunningChannels>>,
    Path((channel, account)): Path<(String, String)>,
    method: Method,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let answer = match running.chats.account(&account_id(&channel, &account)) {
        Some(account) => {
            let request = WebhookRequest { method, headers, query: query.unwrap_or_default(), body };
            let intake = AccountIntake { chats: running.chats.clone(), account: account.clone() };
            account.adapter.webhook(request, &intake).await
        }
        None => WebhookAnswer::status(StatusCode::NOT_FOUND),
    };
    (answer.status, [(header::CONTENT_TYPE, answer.content_type)], answer.body)
}
