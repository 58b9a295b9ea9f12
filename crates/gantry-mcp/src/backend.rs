//! The interface below the MCP server: a client's view of the tools, and a way to call them through a gate.

use std::future::Future;

use gantry_tool::{Approver, Outcome, ProgressSink, Refusal, View};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum length of a client's name. Clients choose it, and it is shown and recorded.
const NAME_CHARS: usize = 64;

pub trait Backend: Clone + Send + Sync + 'static {
    /// Returns the tools that this client may use now.
    fn offered_tools(&self, who: &Who) -> impl Future<Output = Result<OfferedTools, Refusal>> + Send;

    /// Calls a tool for a client, through a gate.
    fn call(&self, who: &Who, request: CallRequest) -> impl Future<Output = Outcome> + Send;

    /// Runs deferred work of calls. It is called while no client waits.
    fn settle(&self) {}

    /// Changes whenever the offered tools may have changed.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// `Who` identifies the client of a request.
#[derive(Debug, Clone)]
pub struct Who {
    /// The name that the client gives itself. It is not verified.
    pub client: String,
    /// The head of the HTTP request, if any, with the authenticated identity.
    pub parts: Option<http::request::Parts>,
}

impl Who {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Who {
        let name = context.client_info().map(|info| info.name).unwrap_or_default();
        Who { client: plain(&name), parts: context.extensions.get::<http::request::Parts>().cloned() }
    }
}

/// Keeps letters, digits and `.-_` of a name. Never returns an empty text.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    let name: String = name.chars().take(NAME_CHARS).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// `OfferedTools` is what a client may use, and how it is named.
#[derive(Debug, Clone)]
pub struct OfferedTools {
    pub tools: View,
    pub names: Names,
}

/// How node tools are named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Names {
    /// Each tool once, with a `node` argument if there are several nodes.
    #[default]
    Bare,
    /// Each node's tools separately, as `{node}__{Tool}`.
    Namespaced,
}

/// `CallRequest` is a client's request to call a tool.
#[derive(Debug)]
pub struct CallRequest {
    pub tool: String,
    pub input: Value,
    pub purpose: Purpose,
    pub cancel: CancellationToken,
    pub progress: Option<ProgressSink>,
    pub approver: Option<Approver>,
}

/// The purpose of a call. A client may read workspace files as resources without being offered the tool for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Tool,
    Resource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_names_are_bounded_and_plain() {
        assert_eq!(plain("claude-code"), "claude-code");
        assert_eq!(plain("a/b:c\n\u{1b}[31m"), "a-b-c---31m");
        assert_eq!(plain(""), "unknown");
        assert_eq!(plain(&"x".repeat(500)).len(), NAME_CHARS);
    }
}
