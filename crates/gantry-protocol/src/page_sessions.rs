//! Sessions of the web page: `page.*`, and the exchange of a one-time code at `/login`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// In place of an id in `page.revoke`: every session.
pub const ALL_PAGE_SESSIONS: &str = "all";

/// `result` of `page.link`. The page is opened at `/#login=CODE`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageLink {
    /// Valid for one login.
    pub code: String,
    /// When the code expires, in milliseconds since 1970.
    pub expires: i64,
    /// The configured URL at which other machines reach the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
}

/// Codes stay out of logs.
impl fmt::Debug for PageLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageLink").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// The body of `POST /login`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageLogin {
    pub code: String,
}

/// The answer of `POST /login`. The cookie of the session is in the answer's header.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct PageLoginResult {
    /// Sent with every request: as the header `Gantry-Page-Key`, or as `pageKey` in `connect`.
    pub key: String,
    /// The id of the session.
    pub session: String,
}

/// `result` of `page.sessions`, the last used first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageSessionList {
    pub sessions: Vec<PageSessionInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageSessionInfo {
    pub id: String,
    /// The browser's name for itself.
    pub browser: String,
    /// The address that logged in.
    pub address: String,
    pub created: i64,
    pub last_used: i64,
    /// This session sent the request.
    pub current: bool,
}

/// `params` of `page.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageRevoke {
    /// The id of a session or its unique beginning, or `all`.
    pub id: String,
}

/// `result` of `page.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageRevoked {
    /// The revoked sessions.
    pub ids: Vec<String>,
}
