//! `memory_recall` tells what was remembered.

use std::sync::Arc;

use gantry_tool::{Label, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::memory_store::{label_name, owner};
use super::namespace::Namespace;
use crate::Native;

type Ctx = gantry_tool::Ctx<Native>;

/// What is told at once.
const MAX_CHARS: usize = 40_000;

/// Recall what was remembered in a namespace. All of it while it fits; of a large namespace the newest, or with `query`
/// what fits its words best.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Where to look.
    namespace: Namespace,
    /// Words to look for.
    query: Option<String>,
}

pub(super) const NAME: &str = "memory_recall";

pub(crate) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, native, run)
        .read_only()
        .labels(&[Label::Private])
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
        .collects()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let name = input.namespace.name();
    let query = input.query.as_deref().filter(|query| !query.trim().is_empty());
    let recalled = ctx.state.memories.recall(owner(&ctx.call)?, name, query, MAX_CHARS).await;
    let recalled = recalled.map_err(|err| ToolError::failed(err.to_string()))?;
    // What was stored by a run that had read what others wrote is still what others may have written.
    let untrusted = label_name(Label::Untrusted);
    if recalled.memories.iter().any(|memory| memory.labels.iter().any(|label| label == untrusted)) {
        ctx.call.findings.add(Label::Untrusted);
    }
    let told: Vec<&str> = recalled.memories.iter().map(|memory| memory.content.as_str()).collect();
    let left = recalled.total - told.len().min(recalled.total);
    let mut text = told.join("\n");
    match (told.is_empty(), left) {
        (true, 0) => text = format!("Nothing is stored in {name} yet."),
        (true, _) => text = format!("None of the {left} memories in {name} has these words."),
        (false, 0) => {}
        (false, _) => text.push_str(&format!("\n({left} more in {name}; a query finds the ones you need)")),
    }
    Ok(Text(text))
}

#[cfg(test)]
mod tests {
    use gantry_tool::{Answer, Call, Principal, Reply, Surface};
    use serde_json::json;

    use super::*;
    use crate::testing::Bench;

    #[tokio::test]
    async fn what_was_stored_with_labels_comes_back_with_them() {
        let bench = Bench::new();
        let mut call = Call::new(Principal::Agent { id: "main".into() }, Surface::Agent, "/".into());
        call.autonomy = gantry_tool::Autonomy::Guided;
        let input = json!({"namespace": "learnings", "content": "a page said so"});
        let labelled = Call { labels: vec![Label::Untrusted], ..call.clone() };
        bench.gate.call(labelled, "memory_store", input).await;
        let told =
            bench.gate.call(call, "memory_recall", json!({"namespace": "learnings", "query": "page"})).await;
        assert_eq!(told.answer, Answer::Success(Reply::Text("a page said so".into())));
        assert_eq!(told.labels, [Label::Private, Label::Untrusted]);
    }

    #[tokio::test]
    async fn a_query_finds_by_words_and_says_what_else_there_is() {
        let bench = Bench::new();
        for content in ["tea at five", "boats sail at nine"] {
            bench.call("memory_store", json!({"namespace": "methods", "content": content})).await.unwrap();
        }
        let found = bench.call("memory_recall", json!({"namespace": "methods", "query": "boats"})).await;
        assert_eq!(
            found,
            Ok(json!("boats sail at nine\n(1 more in methods; a query finds the ones you need)"))
        );
        let none = bench.call("memory_recall", json!({"namespace": "methods", "query": "zebra"})).await;
        assert_eq!(none, Ok(json!("None of the 2 memories in methods has these words.")));
    }
}
