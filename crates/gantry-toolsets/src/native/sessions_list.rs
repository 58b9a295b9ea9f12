//! `gsv__SessionsList` tells which conversations there are.

use std::sync::Arc;

use gantry_tool::{Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Ctx, Done, Native, SessionsListed, done};

/// List the sessions of the gateway's agents, the last active first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// At most this many, 1 to 100 (default 20).
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// How many to skip (default 0).
    #[serde(default)]
    offset: u32,
    /// How many of the newest messages of each to include, 0 to 20 (default 0).
    #[serde(default)]
    #[schemars(range(max = 20))]
    message_limit: usize,
}

fn default_limit() -> u32 {
    20
}

pub(super) const NAME: &str = "gsv__SessionsList";

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    let labels = &[Label::Untrusted, Label::Private];
    Tool::new(NAME, Toolset::Native, native, run)
        .read_only()
        .labels(labels)
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<SessionsListed>, ToolError> {
    let desk = ctx.state.session_desk()?;
    Ok(done(desk.list(ctx.call.clone(), input.limit, input.offset, input.message_limit).await?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn bounds_are_kept_and_without_a_gateway_it_says_so() {
        let bench = Bench::new();
        for input in [json!({"limit": 0}), json!({"limit": 101}), json!({"messageLimit": 21})] {
            let error = bench.call("gsv__SessionsList", input).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input");
        }
        let error = bench.call("gsv__SessionsList", json!({})).await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("this needs a running gateway"), "{error}");
    }
}
