//! `gsv__LogsGet` returns a node's newest log lines.

use std::sync::Arc;

use gantry_protocol::check_node_id;
use gantry_tool::{Ctx, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::node_services::GatewayTools;
use super::{Done, NodeLogs, done};

const DEFAULT_LINES: usize = 100;

/// Fetch the newest log lines of a connected node. With one node connected, `nodeId` may be left
/// out. Only the operator sees inputs and errors of others' calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Which node. Required if several are connected.
    node_id: Option<String>,
    /// How many lines, 1 to 5000 (default 100).
    #[serde(default = "default_lines")]
    #[schemars(range(min = 1, max = 5_000))]
    lines: usize,
}

fn default_lines() -> usize {
    DEFAULT_LINES
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The node of this log.
    node_id: String,
    /// The lines, oldest first.
    lines: Vec<String>,
    /// The number of lines.
    count: usize,
    /// The log has older lines.
    truncated: bool,
}

pub(super) const NAME: &str = "gsv__LogsGet";

pub(super) fn tool(state: &Arc<GatewayTools>) -> Tool {
    let labels = &[Label::Untrusted, Label::Private];
    Tool::new(NAME, Toolset::Native, state, run)
        .read_only()
        .labels(labels)
        .polls()
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
}

async fn run(ctx: Ctx<GatewayTools>, input: Input) -> Result<Done<Output>, ToolError> {
    if let Some(node) = &input.node_id {
        check_node_id(node).map_err(|err| ToolError::input(err.to_string()))?;
    }
    let NodeLogs { node_id, lines, truncated } =
        ctx.state.nodes()?.logs(ctx.call.clone(), input.node_id, input.lines).await?;
    let count = lines.len();
    Ok(done(Output { node_id, lines, count, truncated }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Bench, ScriptedNodes};

    #[tokio::test]
    async fn logs_come_from_the_named_node_or_the_only_one() {
        let bench = Bench::new();
        bench.connect(std::sync::Arc::new(ScriptedNodes));
        for (input, node, count) in [
            (json!({}), "only", 100),
            (json!({"nodeId": "box", "lines": 2}), "box", 2),
            (json!({"lines": 5000}), "only", 5000),
        ] {
            let answer = bench.call("gsv__LogsGet", input).await.unwrap();
            let result = &answer["result"];
            assert_eq!((&result["nodeId"], &result["count"]), (&json!(node), &json!(count)), "{answer}");
            assert_eq!(
                (result["lines"].as_array().unwrap().len(), &result["truncated"]),
                (count, &json!(true))
            );
        }
        for input in [json!({"lines": 0}), json!({"lines": 5001})] {
            let error = bench.call("gsv__LogsGet", input).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input");
        }
        let error = bench.call("gsv__LogsGet", json!({"nodeId": "a:b"})).await.unwrap_err();
        assert_eq!(error["ok"], false);
    }

    #[tokio::test]
    async fn missing_gateway_is_reported() {
        let bench = Bench::new();
        let error = bench.call("gsv__LogsGet", json!({})).await;
        let expected = "this needs a running gateway (start one with `gantry up`)";
        assert_eq!(error, Err(json!({"ok": false, "error": expected})));
    }
}
