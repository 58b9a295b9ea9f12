//! `spawn_agent` runs child agents concurrently on parts of the work.

use std::sync::Arc;

use gantry_tool::{Effect, Progress, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::task::JoinSet;

use super::{AgentTools, Ctx, check_caller, note_labels};
use crate::role::Spec;
use crate::sessions::SessionError;

const MAX_AGENTS: usize = 20;

/// Run child agents concurrently on parts of the work and return their answers. Each child knows only its task and context,
/// has at most your own tools and rights, cannot start children, and is stopped after ten minutes. If one fails, the answers
/// of the others are still returned.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The children, 1 to 20.
    #[schemars(length(min = 1, max = 20))]
    agents: Vec<Spec>,
}

pub(super) const NAME: &str = "spawn_agent";

pub(super) fn tool(state: &Arc<AgentTools>) -> Tool {
    // The calls of children go through the gate one by one, so this tool itself is additive.
    Tool::new(NAME, Toolset::Assistant, state, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .resumable()
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
}

/// How one child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChildOutcome {
    name: String,
    /// Its answer, or the reason why there is none.
    outcome: Result<String, String>,
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    if input.agents.is_empty() || input.agents.len() > MAX_AGENTS {
        return Err(ToolError::input(format!("one call must have 1 to {MAX_AGENTS} agents")));
    }
    answer(&run_children(&ctx, input.agents).await?)
}

/// Starts the children, waits for all of them, and returns their outcomes in the same order.
async fn run_children(ctx: &Ctx, specs: Vec<Spec>) -> Result<Vec<ChildOutcome>, ToolError> {
    let (sessions, call) = (ctx.state.sessions()?, &ctx.call);
    check_caller(call)?;
    let mut ends: Vec<ChildOutcome> = Vec::with_capacity(specs.len());
    let mut running = JoinSet::new();
    let total = u64::try_from(specs.len()).ok();
    for (index, spec) in specs.into_iter().enumerate() {
        let outcome = match sessions.start_child(call, index, &spec).await {
            Ok(child) => {
                running.spawn(async move { (index, child.end().await) });
                Err("it was stopped".to_owned())
            }
            Err(SessionError::Stopping) => return Err(ToolError::Cancelled),
            Err(err) => Err(err.to_string()),
        };
        ends.push(ChildOutcome { name: spec.name, outcome });
    }
    let mut done = 0;
    loop {
        // Returning early drops the children that still run, which stops them.
        let ended = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
            ended = running.join_next() => ended,
        };
        let Some(ended) = ended else { return Ok(ends) };
        let Ok((index, end)) = ended else { continue };
        note_labels(call, &end);
        let Some(known) = ends.get_mut(index) else { continue };
        known.outcome = end.outcome;
        done += 1;
        if let Some(progress) = &call.progress {
            progress.report(Progress { done, total, message: format!("{} has ended", known.name) });
        }
    }
}

fn answer(ends: &[ChildOutcome]) -> Result<Text, ToolError> {
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
    use super::*;

    fn end(name: &str, outcome: Result<&str, &str>) -> ChildOutcome {
        ChildOutcome { name: name.into(), outcome: outcome.map(str::to_owned).map_err(str::to_owned) }
    }

    #[test]
    fn answers_are_returned_unless_every_agent_failed() {
        let some = answer(&[end("a", Ok("forty-two")), end("b", Err("no model"))]).unwrap();
        assert_eq!(some.0, "## a\nforty-two\n\n## b\nfailed: no model");
        let none = answer(&[end("a", Err("too slow")), end("b", Err("no model"))]).unwrap_err();
        assert_eq!(none.to_string(), "no agent succeeded\n- a: too slow\n- b: no model");
    }
}
