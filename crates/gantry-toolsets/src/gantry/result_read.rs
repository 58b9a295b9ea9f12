//! `result_read` reads further parts of a result that was too long to show whole.

use std::sync::Arc;

use gantry_tool::{Label, ResultError, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::blocking::blocking;
use crate::{Ctx, Machine};

const DEFAULT_LIMIT: usize = 20_000;

/// Read part of a result that was too long to show.
///
/// Without `grep`, returns characters from `offset`. With `grep`, returns matching passages, each
/// with its character offset.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The `resultHandle` of the shortened result.
    handle: String,
    /// First character, from 0; with `grep`, matches to skip.
    #[serde(default)]
    offset: usize,
    /// Most characters to return, at most 40000. Default 20000.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 40_000))]
    limit: usize,
    /// Return only passages that match this Rust regular expression.
    grep: Option<String>,
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The handle as given.
    handle: String,
    /// The characters, or the matching passages.
    text: String,
    /// The length of the whole result in characters.
    total_characters: usize,
    /// The `offset` that continues; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    /// The number of passages that match `grep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<usize>,
}

pub(super) const NAME: &str = "result_read";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    // A stored result may come from any tool, so it gets both labels.
    let labels = &[Label::Untrusted, Label::Private];
    Tool::new(NAME, Toolset::Gantry, machine, run)
        .read_only()
        .paged()
        .labels(labels)
        .works_without_machine()
        .without_owner_data()
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let Input { handle, offset, limit, grep } = input;
        let reader = ctx.call.principal.to_string();
        let page = ctx.state.results().read(&reader, &handle, offset, limit, grep.as_deref());
        let page = page.map_err(|err| match err {
            ResultError::BadPattern(text) => ToolError::input(text),
            other => ToolError::failed(other.to_string()),
        })?;
        Ok(Output {
            handle,
            text: page.text,
            total_characters: page.total_characters,
            next_offset: page.next_offset,
            matches: page.matches,
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use gantry_tool::ResultStore;
    use serde_json::json;

    #[tokio::test]
    async fn owner_reads_pages_and_matching_passages() {
        let bench = Bench::new();
        let kept = bench.results.keep("operator", "T", "hello needle world").unwrap();
        let page = bench.call("result_read", json!({"handle": kept.handle, "offset": 6, "limit": 6})).await;
        assert_eq!(
            page,
            Ok(json!({"handle": kept.handle, "text": "needle", "totalCharacters": 18, "nextOffset": 12}))
        );
        let found = bench.call("result_read", json!({"handle": kept.handle, "grep": "w\\w+"})).await.unwrap();
        assert_eq!((&found["matches"], &found["text"]), (&json!(1), &json!("13: hello needle world\n")));
    }

    #[tokio::test]
    async fn results_of_others_and_invalid_patterns_are_errors() {
        let bench = Bench::new();
        let kept = bench.results.keep("agent:other", "T", "secret").unwrap();
        let mine = bench.results.keep("agent:a", "T", "mine").unwrap();
        let agent = || bench.agent_call("a");
        let error = bench.call_as(agent(), "result_read", json!({"handle": kept.handle})).await.unwrap_err();
        assert!(error["error"].as_str().unwrap().starts_with("no kept result"), "{error}");
        let error = bench
            .call_as(agent(), "result_read", json!({"handle": mine.handle, "grep": "("}))
            .await
            .unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("does not parse"), "{error}");
        let error = bench.call("result_read", json!({"handle": "x", "limit": 0})).await.unwrap_err();
        assert_eq!(error["error"]["code"], "invalid_input");
    }
}
