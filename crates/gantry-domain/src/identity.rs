//! `Identity` is the caller after its token was checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_store::{ClientToken, PageSession};
use gantry_tool::{Refusal, RefusalCode};

/// How the operator is named as the owner of sessions and messages.
pub const LOCAL_OPERATOR: &str = "operator";

/// How long a change of the clock may go unnoticed.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// A caller with a valid token.
#[derive(Debug, Clone)]
pub enum Identity {
    Operator,
    /// The operator, in a browser that is logged in to the web page.
    Page(Arc<PageSession>),
    Client(Arc<ClientToken>),
}

impl Identity {
    pub fn is_operator(&self) -> bool {
        matches!(self, Identity::Operator | Identity::Page(_))
    }

    /// The name under which work that this caller starts is stored.
    pub fn owner(&self) -> String {
        match self {
            Identity::Operator | Identity::Page(_) => LOCAL_OPERATOR.to_owned(),
            Identity::Client(token) => format!("client:{}", token.owner()),
        }
    }

    pub fn is_expired(&self) -> bool {
        matches!(self, Identity::Client(token) if token.expires.is_some_and(|expires| expires <= now_ms()))
    }

    /// Returns when the token expires. Nothing may outlive the token that it was begun with.
    pub async fn expired(&self) {
        let expires = match self {
            Identity::Client(token) => token.expires,
            Identity::Operator | Identity::Page(_) => None,
        };
        match expires {
            Some(expires) => wait_until(expires).await,
            None => std::future::pending().await,
        }
    }

    /// Distinguishes a token from an earlier one with the same name.
    pub fn id(&self) -> &str {
        match self {
            Identity::Operator | Identity::Page(_) => "operator",
            Identity::Client(token) => &token.id,
        }
    }

    /// Checks the workspace that this caller chose. Only the operator may choose one.
    pub fn chosen_workspace(&self, path: &str) -> Result<PathBuf, Refusal> {
        if !self.is_operator() {
            return Err(Refusal::new(RefusalCode::Denied, "only the operator may choose a workspace"));
        }
        if !path.starts_with('/') {
            return Err(Refusal::new(RefusalCode::InvalidInput, "the workspace must be an absolute path"));
        }
        Ok(PathBuf::from(path))
    }

    /// Checks that this caller may act as the agent.
    pub fn check_agent(&self, agent: &str) -> Result<(), Refusal> {
        match self {
            Identity::Client(token) if !self.may_act_as(agent) => {
                let message = format!("the token \"{}\" may not act as the agent \"{agent}\"", token.name);
                Err(Refusal::new(RefusalCode::Denied, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether this caller may act as the agent.
    pub fn may_act_as(&self, agent: &str) -> bool {
        match self {
            Identity::Operator | Identity::Page(_) => true,
            Identity::Client(token) => token.agents.iter().any(|allowed| allowed == agent || allowed == "*"),
        }
    }
}

/// Waits for a time in milliseconds since 1970. The clock may be set meanwhile, so this reads it
/// again every minute.
pub async fn wait_until(time: i64) {
    while let Ok(left @ 1..) = u64::try_from(time.saturating_sub(now_ms())) {
        tokio::time::sleep(Duration::from_millis(left).min(CLOCK_CHECK)).await;
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
