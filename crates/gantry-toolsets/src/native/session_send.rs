//! `gsv__SessionSend` says something in another conversation.

use std::sync::Arc;
use std::time::Duration;

use gantry_tool::{Effect, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Ctx, Done, Native, SessionSent, done};

/// Send a message into another session and wait for the answer to it. The agent there sees who sent it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// The session, such as "main" or "agent:helper:main".
    session_key: String,
    /// What to say.
    message: String,
    /// Seconds to wait for the answer, 0 to 120 (default 30); 0 does not wait.
    #[serde(default = "default_wait")]
    #[schemars(range(max = 120))]
    wait_seconds: u64,
}

fn default_wait() -> u64 {
    30
}

pub(super) const NAME: &str = "gsv__SessionSend";

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Native, native, run)
        .effects(&[Effect::SendsMessages])
        .labels(&[Label::Private])
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<SessionSent>, ToolError> {
    let desk = ctx.state.session_desk()?;
    let wait = Duration::from_secs(input.wait_seconds);
    Ok(done(desk.send(ctx.call.clone(), input.session_key, input.message, wait).await?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn bounds_are_kept_and_without_a_gateway_it_says_so() {
        let bench = Bench::new();
        let input = json!({"sessionKey": "main", "message": "hi", "waitSeconds": 121});
        let error = bench.call("gsv__SessionSend", input).await.unwrap_err();
        assert_eq!(error["error"]["code"], "invalid_input");
        let error =
            bench.call("gsv__SessionSend", json!({"sessionKey": "main", "message": "hi"})).await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("this needs a running gateway"), "{error}");
    }
}
