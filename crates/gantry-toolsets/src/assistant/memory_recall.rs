//! `memory_recall` returns stored memories.

use std::sync::Arc;

use gantry_tool::{Label, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::memory_store::{label_name, owner};
use super::namespace::Namespace;
use crate::Native;

type Ctx = gantry_tool::Ctx<Native>;

/// The most characters of one result.
const MAX_CHARS: usize = 40_000;

/// Recall memories of a namespace. Returns all if they fit, else the newest, or with `query` the
/// best matches.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Which namespace to search.
    namespace: Namespace,
    /// Words to search for.
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
    // A memory that an untrusted run stored stays untrusted.
    let untrusted = label_name(Label::Untrusted);
    if recalled.memories.iter().any(|memory| memory.labels.iter().any(|label| label == untrusted)) {
        ctx.call.findings.add(Label::Untrusted);
    }
    let contents: Vec<&str> = recalled.memories.iter().map(|memory| memory.content.as_str()).collect();
    let left = recalled.total - contents.len().min(recalled.total);
    let mut text = contents.join("\n");
    match (contents.is_empty(), left) {
        (true, 0) => text = format!("Nothing is stored in {name} yet."),
        (true, _) => text = format!("None of the {left} memories in {name} matches the query."),
        (false, 0) => {}
        (false, _) => text.push_str(&format!("\n({left} more in {name}; use query to find them)")),
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
    async fn recalled_memory_keeps_its_labels() {
        let bench = Bench::new();
        let mut call = Call::new(Principal::Agent { id: "main".into() }, Surface::Agent, "/".into());
        call.autonomy = gantry_tool::Autonomy::Guided;
        let input = json!({"namespace": "learnings", "content": "a page said so"});
        let labelled = Call { labels: vec![Label::Untrusted], ..call.clone() };
        bench.gate.call(labelled, "memory_store", input).await;
        let recalled =
            bench.gate.call(call, "memory_recall", json!({"namespace": "learnings", "query": "page"})).await;
        assert_eq!(recalled.answer, Answer::Success(Reply::Text("a page said so".into())));
        assert_eq!(recalled.labels, [Label::Private, Label::Untrusted]);
    }

    #[tokio::test]
    async fn query_finds_by_words_and_counts_the_rest() {
        let bench = Bench::new();
        for content in ["tea at five", "boats sail at nine"] {
            bench.call("memory_store", json!({"namespace": "methods", "content": content})).await.unwrap();
        }
        let found = bench.call("memory_recall", json!({"namespace": "methods", "query": "boats"})).await;
        assert_eq!(found, Ok(json!("boats sail at nine\n(1 more in methods; use query to find them)")));
        let none = bench.call("memory_recall", json!({"namespace": "methods", "query": "zebra"})).await;
        assert_eq!(none, Ok(json!("None of the 2 memories in methods matches the query.")));
    }
}
