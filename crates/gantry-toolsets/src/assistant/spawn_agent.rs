//! `spawn_agent` has others do parts of the work, side by side.

use std::sync::Arc;

use gantry_tool::{Effect, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Native, SpawnEnd};

type Ctx = gantry_tool::Ctx<Native>;

const MAX_AGENTS: usize = 20;

/// Have child agents do parts of the work, side by side, and get their answers. Each knows only its task and context, has at
/// most your own tools and rights, cannot begin children, and is stopped after ten minutes. If one fails, the answers of
/// the others are still told.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The children, 1 to 20.
    #[schemars(length(min = 1, max = 20))]
    agents: Vec<SpawnSpec>,
}

/// One child.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnSpec {
    /// Its name, for people; at most 64 characters.
    pub name: String,
    /// What it is to do, with everything it needs to know.
    pub task: String,
    /// researcher (finds out, changes nothing), creator (makes things, runs no commands), operator (checks, changes
    /// nothing), collector (gathers only), or one that is configured. Sets model, effort, prompt and tools.
    pub role: Option<String>,
    /// More to know, told before the task.
    pub context: Option<String>,
    /// It sees nothing of what you remember (default false).
    #[serde(default)]
    pub isolated_memory: bool,
    /// In place of the role's prompt, or yours.
    pub system_prompt: Option<String>,
    /// fast, balanced or deep (also haiku, sonnet, opus), or provider/model; in place of the role's.
    pub model: Option<String>,
    /// Whether it thinks before it answers: "off", "adaptive", or a number of tokens.
    pub thinking: Option<SpawnThinking>,
    /// How hard its model tries.
    pub effort: Option<SpawnEffort>,
    /// The only tools it has, of yours, in place of the role's: names, globs (local__*) and toolsets (node).
    pub tools: Option<Vec<String>>,
    /// How often its model may be asked.
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// The longest answer of its model, in tokens.
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// What it may cost, in US dollars. It counts against your own budget in any case.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_budget_usd: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SpawnThinking {
    Word(SpawnThinkingWord),
    Tokens(u32),
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpawnThinkingWord {
    Off,
    Adaptive,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpawnEffort {
    Low,
    Medium,
    High,
}

pub(super) const NAME: &str = "spawn_agent";

pub(crate) fn tool(native: &Arc<Native>) -> Tool {
    // What children do, they do through calls of their own, which are judged one by one.
    Tool::new(NAME, Toolset::Assistant, native, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .resumable()
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    if input.agents.is_empty() || input.agents.len() > MAX_AGENTS {
        return Err(ToolError::input(format!("there are 1 to {MAX_AGENTS} agents in one call")));
    }
    let ends = ctx.state.agent_desk()?.spawn(ctx.call.clone(), input.agents).await?;
    told(&ends)
}

fn told(ends: &[SpawnEnd]) -> Result<Text, ToolError> {
    if ends.iter().all(|end| end.outcome.is_err()) {
        let causes = ends.iter().filter_map(|end| Some((&end.name, end.outcome.as_ref().err()?)));
        let causes: Vec<String> = causes.map(|(name, cause)| format!("- {name}: {cause}")).collect();
        return Err(ToolError::failed(format!("no agent succeeded\n{}", causes.join("\n"))));
    }
    let parts = ends.iter().map(|end| match &end.outcome {
        Ok(text) => format!("## {}\n{text}", end.name),
        Err(cause) => format!("## {}\nfailed: {cause}", end.name),
    });
    Ok(Text(parts.collect::<Vec<_>>().join("\n\n")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Bench;

    fn end(name: &str, outcome: Result<&str, &str>) -> SpawnEnd {
        SpawnEnd { name: name.into(), outcome: outcome.map(str::to_owned).map_err(str::to_owned) }
    }

    #[test]
    fn one_failure_does_not_sink_the_rest_and_all_failures_are_named() {
        let some = told(&[end("a", Ok("forty-two")), end("b", Err("no model"))]).unwrap();
        assert_eq!(some.0, "## a\nforty-two\n\n## b\nfailed: no model");
        let none = told(&[end("a", Err("too slow")), end("b", Err("no model"))]).unwrap_err();
        assert_eq!(none.to_string(), "no agent succeeded\n- a: too slow\n- b: no model");
    }

    #[tokio::test]
    async fn input_is_checked_and_without_a_gateway_it_says_so() {
        let bench = Bench::new();
        let one = |more: serde_json::Value| {
            let mut spec = json!({"name": "a", "task": "b"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"agents": [spec]})
        };
        for wrong in [
            json!({}),
            json!({"agents": []}),
            json!({"agents": vec![json!({"name": "a", "task": "b"}); 21]}),
            json!({"agents": [{"name": "a"}]}),
            one(json!({"depth": 0})),
            one(json!({"max_turns": 0})),
            one(json!({"max_budget_usd": 0})),
            one(json!({"thinking": "hard"})),
            one(json!({"effort": "most"})),
        ] {
            let error = bench.call("spawn_agent", wrong.clone()).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input", "{wrong}");
        }
        let all = one(json!({
            "role": "researcher", "context": "c", "isolated_memory": true, "system_prompt": "p", "model": "sonnet",
            "thinking": 2000, "effort": "low", "tools": ["read_file"], "max_turns": 3, "max_tokens": 100, "max_budget_usd": 0.5,
        }));
        let error = bench.call("spawn_agent", all).await.unwrap_err();
        assert!(error.as_str().unwrap().contains("this needs a running gateway"), "{error}");
    }
}
