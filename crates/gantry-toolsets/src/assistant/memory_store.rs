//! `memory_store` stores a memory for later conversations.

use std::sync::Arc;

use gantry_store::{DatabaseError, Remembered};
use gantry_tool::{Call, Label, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::namespace::Namespace;
use crate::Native;
use crate::native::check_agent;

type Ctx = gantry_tool::Ctx<Native>;

/// Remember something for later conversations: one fact, method, state or lesson per call. Word it
/// so that it makes sense without this conversation. Exact duplicates are not stored again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Which namespace to store it in.
    namespace: Namespace,
    /// What to remember, at most 16000 characters.
    content: String,
}

pub(super) const NAME: &str = "memory_store";

pub(crate) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, native, run)
        .additive()
        .idempotent()
        .effects(&[])
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
        .collects()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let name = input.namespace.name();
    let labels: Vec<String> = ctx.call.labels.iter().map(|label| label_name(*label).to_owned()).collect();
    let now = jiff::Timestamp::now().as_millisecond();
    let memories = &ctx.state.memories;
    match memories.store(owner(&ctx.call)?, name, &input.content, &labels, now).await {
        Ok(Remembered::New) => Ok(Text(format!("Stored in {name}."))),
        // "Already known" reveals that an earlier run stored this, so it is private.
        // `memory_recall` shows the text itself.
        Ok(Remembered::Known) => {
            ctx.call.findings.add(Label::Private);
            Ok(Text(format!("Already known in {name}; memory_recall shows it.")))
        }
        Err(DatabaseError::Refused(why)) => Err(ToolError::input(why)),
        Err(err) => Err(ToolError::failed(err.to_string())),
    }
}

/// Returns the owner of the memories that a call uses.
pub(super) fn owner(call: &Call) -> Result<&str, ToolError> {
    check_agent(call)?;
    Ok(call.memory_owner.as_ref().unwrap_or(&call.agent))
}

/// The label's name in stored memories.
pub(super) fn label_name(label: Label) -> &'static str {
    match label {
        Label::Untrusted => "untrusted",
        Label::Private => "private",
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::Label;
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn memories_are_stored_once_per_agent() {
        let bench = Bench::new();
        let store = async |content: &str| {
            bench.call("memory_store", json!({"namespace": "knowledge", "content": content})).await
        };
        assert_eq!(store("The door code is 1234.").await, Ok(json!("Stored in knowledge.")));
        let again = store("the door code is 1234").await.unwrap();
        assert_eq!(again, json!("Already known in knowledge; memory_recall shows it."));
        let content = json!({"namespace": "knowledge", "content": "the door code is 1234"});
        let outcome = bench.gate.call(bench.operator_call(), "memory_store", content).await;
        assert_eq!(outcome.labels, [Label::Private], "the answer reveals a stored memory");
        let other = json!({"namespace": "knowledge", "content": "the door code is 4321"});
        let outcome = bench.gate.call(bench.operator_call(), "memory_store", other).await;
        assert_eq!(outcome.labels, [], "the answer reveals nothing");
        assert!(store("…").await.is_err());
        let recalled = bench.call("memory_recall", json!({"namespace": "knowledge"})).await;
        assert_eq!(recalled, Ok(json!("The door code is 1234.\nthe door code is 4321")));
        let nothing = bench.call("memory_recall", json!({"namespace": "project-state"})).await;
        assert_eq!(nothing, Ok(json!("Nothing is stored in project-state yet.")));
        assert!(bench.call("memory_recall", json!({"namespace": "secrets"})).await.is_err());
    }
}
