//! `tool_search` finds tools that an agent may call but is not offered. A short list of offered tools saves tokens. Found
//! tools are offered for the rest of the session.

use std::sync::Arc;

use gantry_tool::{Answer, Ctx, Gate, Registry, Reply, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::shorten;

pub(crate) const NAME: &str = "tool_search";
const MAX_FOUND: usize = 10;
const DESCRIPTION_CHARS: usize = 200;

/// Find more tools by their purpose. You have more tools than the ones you are offered. You can call the found tools from the
/// next turn on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// A few words: a name, or the purpose of the tool.
    query: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The best matches first, at most 10.
    tools: Vec<Found>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    name: String,
    description: String,
}

/// Returns a gate over this one tool, with the same policy as for all other calls.
pub(crate) fn gate(of: &Gate) -> Gate {
    let registry = Registry::default();
    registry.replace(Tool::new(NAME, Toolset::Gantry, &Arc::new(of.registry().clone()), run).read_only());
    of.with_tools(registry)
}

/// Returns the tools in the answer of a search.
pub(crate) fn found(answer: &Answer) -> Vec<String> {
    let Answer::Success(Reply::Json(value)) = answer else { return Vec::new() };
    let tools = value["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

async fn run(ctx: Ctx<Registry>, input: Input) -> Result<Output, ToolError> {
    let words: Vec<String> = input.query.to_lowercase().split_whitespace().map(str::to_owned).collect();
    if words.is_empty() {
        return Err(ToolError::input("the query is empty; describe the tool in a few words"));
    }
    let view = ctx.state.view(&ctx.call.scope);
    let shared = view.shared();
    let of_node = |tool: &Tool| tool.toolset() == Toolset::Node;
    let all = shared.iter().map(|shared| (shared.name.clone(), shared.tool.clone()));
    let others = view.entries().into_iter().filter(|tool| !of_node(tool));
    let all = all.chain(others.map(|tool| (tool.name().to_owned(), tool)));
    let mut ranked: Vec<(usize, Found)> = all
        .map(|(name, tool)| {
            let points = points(&words, &name.to_lowercase(), &tool.description().to_lowercase());
            (points, Found { name, description: shorten(tool.description(), DESCRIPTION_CHARS, "") })
        })
        .filter(|(points, _)| *points > 0)
        .collect();
    ranked.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| left.name.cmp(&right.name)));
    Ok(Output { tools: ranked.into_iter().take(MAX_FOUND).map(|(_, found)| found).collect() })
}

/// Scores a tool. A word in the name counts more than one in the description.
fn points(words: &[String], name: &str, description: &str) -> usize {
    let of = |word: &String| 3 * usize::from(name.contains(word)) + usize::from(description.contains(word));
    words.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::{call_as, echo_tool};
    use gantry_tool::{Call, Principal, Surface, ToolScope};
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn search_finds_only_tools_that_the_caller_may_use() {
        let (main, _) = gantry_tool::testing::gate([
            echo_tool("tool::apply_patch", Toolset::Guarded),
            echo_tool("fs__patch", Toolset::Mcp),
            echo_tool("local__Bash", Toolset::Node),
        ]);
        let search = gate(&main);
        let names = async |query: &str, deny: &[&str]| {
            let mut call = Call::new(Principal::Operator, Surface::Agent, "/".into());
            let deny: Vec<String> = deny.iter().map(|&name| name.to_owned()).collect();
            // The search itself is not one of the agent's tools.
            call.scope = ToolScope::new(None, &deny).unwrap();
            let answer: Value = call_as(&search, call, NAME, json!({ "query": query })).await.unwrap();
            found(&Answer::Success(Reply::Json(answer))).join(" ")
        };
        assert_eq!(names("apply PATCH", &[]).await, "tool::apply_patch fs__patch");
        assert_eq!(names("patch", &["mcp"]).await, "tool::apply_patch");
        assert_eq!(names("bash", &[]).await, "Bash");
        assert_eq!(names("nonsense", &[]).await, "");
    }
}
