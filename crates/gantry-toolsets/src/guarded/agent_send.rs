//! `tool::agent_send` puts a message into another agent's inbox.

use std::sync::Arc;

use gantry_tool::{Effect, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Native;

type Ctx = gantry_tool::Ctx<Native>;

/// Send a message to another agent. It is kept until the agent takes it up, in the order sent, and the agent sees who sent
/// it. Does not wait for an answer; one comes as a message to you. At most 100 KB, and 10 messages a minute to the same
/// agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Your own id: your session's key or your agent's name.
    agent_id: String,
    /// Who is to get it: the id of an agent that was begun, a session's key, or the name of a configured agent.
    target_agent_id: String,
    /// What to say, at most 100 KB.
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// It is in the other one's inbox, on disk.
    sent: bool,
    /// Who gets it.
    target_agent_id: String,
}

pub(super) const NAME: &str = "tool::agent_send";

pub(crate) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Guarded, native, run)
        .effects(&[Effect::SendsMessages])
        .resumable()
        .works_without_machine()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let desk = ctx.state.agent_desk()?;
    let target_agent_id = input.target_agent_id.clone();
    desk.send(ctx.call.clone(), input.agent_id, input.target_agent_id, input.message).await?;
    Ok(Output { sent: true, target_agent_id })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn all_three_are_needed_and_without_a_gateway_it_says_so() {
        let bench = Bench::new();
        for wrong in [
            json!({"targetAgentId": "x", "message": "y"}),
            json!({"agentId": "x", "message": "y"}),
            json!({"agentId": "x", "targetAgentId": "y"}),
        ] {
            let error = bench.call("tool::agent_send", wrong.clone()).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input", "{wrong}");
        }
        let input = json!({"agentId": "main", "targetAgentId": "other", "message": "y"});
        let error = bench.call("tool__agent_send", input).await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("this needs a running gateway"), "{error}");
    }
}
