//! What the server stands on: somebody's view of the tools, and a way to call them that ends at a gate.

use std::future::Future;

use gantry_tool::{Approver, Outcome, ProgressSink, Refusal, View};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Clients name themselves; what they say is shown and recorded, so it is kept short and plain.
const NAME_CHARS: usize = 64;

pub trait Backend: Clone + Send + Sync + 'static {
    /// What this client is shown now.
    fn shown(&self, who: &Who) -> impl Future<Output = Result<Shown, Refusal>> + Send;

    /// Calls a tool for a client, through a gate.
    fn call(&self, who: &Who, asked: Asked) -> impl Future<Output = Outcome> + Send;

    /// Does what calls have put off; for a moment in which nobody waits.
    fn settle(&self) {}

    /// Told when what is shown may have changed.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Who {
    /// As the client calls itself: nobody has checked it.
    pub client: String,
    /// Of the HTTP request, where there is one: who was let in by what token.
    pub parts: Option<http::request::Parts>,
}

impl Who {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Who {
        let name = context.client_info().map(|info| info.name).unwrap_or_default();
        Who { client: plain(&name), parts: context.extensions.get::<http::request::Parts>().cloned() }
    }
}

/// Letters, digits and `.-_` of a name; never empty.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    let name: String = name.chars().take(NAME_CHARS).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// What a client is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    pub tools: View,
    pub names: Names,
}

/// How tools of nodes are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Names {
    /// Once each, with a `node` argument while there are several nodes.
    #[default]
    Bare,
    /// One for each node, as `{node}__{Tool}`.
    Namespaced,
}

/// One call, on its way to a gate.
#[derive(Debug)]
pub struct Asked {
    pub tool: String,
    pub input: Value,
    pub purpose: Purpose,
    pub cancel: CancellationToken,
    pub progress: Option<ProgressSink>,
    pub approver: Option<Approver>,
}

/// What a call is for: a client that may read workspace files as resources need not see the tool that does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Tool,
    Resource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_are_short_and_plain() {
        assert_eq!(plain("claude-code"), "claude-code");
        assert_eq!(plain("a/b:c\n\u{1b}[31m"), "a-b-c---31m");
        assert_eq!(plain(""), "unknown");
        assert_eq!(plain(&"x".repeat(500)).len(), NAME_CHARS);
    }
}
