//! `tool::agent_spawn` begins a child that is made after a configured agent.

use std::sync::Arc;

use gantry_tool::{Effect, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Native;

type Ctx = gantry_tool::Ctx<Native>;

/// Begin a child agent made after a configured agent, give it a message and wait for its answer. It has at most your own
/// tools and rights. Agents are begun at most 5 deep, and at most 20 work for one conversation at a time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Name of the configured agent that it is made after.
    template: String,
    /// Your own id, if you want it checked: your session's key or your agent's name.
    parent_id: Option<String>,
    /// What it is to do.
    message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpawned {
    /// The child's id: `tool::agent_send` reaches it there.
    pub agent_id: String,
    /// What it answered.
    pub response: String,
    /// How deep it is: 1 for a child of a conversation that is nobody's child.
    pub depth: u32,
}

pub(super) const NAME: &str = "tool::agent_spawn";

pub(crate) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Guarded, native, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .resumable()
        .bounds_depth()
        .works_without_machine()
        .without_owner_data()
}

async fn run(ctx: Ctx, input: Input) -> Result<AgentSpawned, ToolError> {
    let desk = ctx.state.agent_desk()?;
    desk.spawn_template(ctx.call.clone(), input.template, input.parent_id, input.message).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn depth_and_quota_are_no_input_and_without_a_gateway_it_says_so() {
        let bench = Bench::new();
        for wrong in [
            json!({"message": "x"}),
            json!({"template": "x"}),
            json!({"template": "x", "message": "y", "depth": 0}),
            json!({"template": "x", "message": "y", "quota": 100}),
        ] {
            let error = bench.call("tool::agent_spawn", wrong.clone()).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input", "{wrong}");
        }
        let input = json!({"template": "main", "parentId": "main", "message": "y"});
        let error = bench.call("tool::agent_spawn", input).await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("this needs a running gateway"), "{error}");
    }
}
