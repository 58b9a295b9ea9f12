//! Step 6 of a call: shortens a result for a model and keeps the whole behind a handle.

use super::{Answer, Gate};
use crate::call::{Call, Surface};
use crate::results::budget;
use crate::tool::{Reply, Tool, Toolset};

impl Gate {
    /// Step 6. Shortens a result for a model and keeps the whole behind a handle.
    pub(super) async fn bound(&self, call: &Call, tool: &Tool, answer: Answer) -> (Answer, Vec<String>) {
        if !call.surface.is_model_facing() {
            return (answer, Vec::new());
        }
        let settings = self.parts.settings.get();
        let configured = match call.surface {
            _ if tool.is_paged() => usize::MAX,
            Surface::Mcp => settings.max_mcp_result_chars,
            _ => settings.max_result_chars,
        };
        let limit = call.max_result_chars.map_or(configured, |own| own.min(configured));
        self.bound_to(call, tool.name(), tool.toolset(), answer, limit).await
    }

    /// Shortens an answer that is longer than `limit`, and keeps the whole behind a handle.
    pub(super) async fn bound_to(
        &self,
        call: &Call,
        tool: &str,
        toolset: Toolset,
        answer: Answer,
        limit: usize,
    ) -> (Answer, Vec<String>) {
        let (mut reply, rewrap): (Reply, fn(Reply) -> Answer) = match answer {
            Answer::Success(reply) => (reply, Answer::Success),
            Answer::ToolError(reply) => (reply, Answer::ToolError),
            Answer::Refused(_) => return (answer, Vec::new()),
        };
        if toolset == Toolset::Node {
            budget::remove_repeated_tail(&mut reply);
        }
        let total = budget::characters(&reply);
        if total <= limit {
            return (rewrap(reply), Vec::new());
        }
        let (results, owner, name) =
            (self.parts.results.clone(), call.principal.to_string(), tool.to_owned());
        let whole = reply.to_text();
        let kept = tokio::task::spawn_blocking(move || results.keep(&owner, &name, &whole)).await;
        let kept = kept.map_err(|err| err.to_string()).and_then(|kept| kept.map_err(|err| err.to_string()));
        match kept {
            Ok(kept) => (rewrap(fit(reply, limit, Some(&kept.handle), total)), Vec::new()),
            Err(err) => {
                let warning =
                    format!("the result was shortened, and the full result could not be kept: {err}");
                (rewrap(fit(reply, limit, None, total)), vec![warning])
            }
        }
    }
}

/// Shortens a reply. A JSON value that stays too long, because of its keys for example, becomes text.
fn fit(reply: Reply, limit: usize, handle: Option<&str>, total: usize) -> Reply {
    let reply = budget::shorten(reply, limit, handle, total);
    if budget::characters(&reply) <= limit {
        return reply;
    }
    budget::shorten(Reply::Text(reply.to_text()), limit, handle, total)
}
