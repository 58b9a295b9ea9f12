//! Estimates of costs: the mean of earlier steps of the same tier, or a fixed table.

use gantry_protocol::{PipelineDefinition, PipelineStep};
use gantry_store::{Database, DatabaseError, TierCost};

/// The time that counts for estimates.
const HISTORY_MS: i64 = 30 * 24 * 3600 * 1000;
/// Fewer steps than this do not make a mean.
const MIN_STEPS: i64 = 3;
const DEFAULT_TIER: &str = "balanced";
/// Dollars for one step of each tier.
const TABLE: [(&str, f64); 3] = [("deep", 1.20), (DEFAULT_TIER, 0.08), ("fast", 0.005)];
/// Roles with a tier of their own.
const FAST_ROLES: [&str; 2] = ["operator", "collector"];

/// The tier of an agent's step. `None` for a tool call.
pub(crate) fn tier(step: &PipelineStep) -> Option<String> {
    step.task.as_ref()?;
    let tier = match (step.model.as_deref(), step.role.as_deref()) {
        (Some("haiku"), _) => "fast",
        (Some("sonnet"), _) => DEFAULT_TIER,
        (Some("opus"), _) => "deep",
        (Some(model), _) => model,
        (None, Some(role)) if FAST_ROLES.contains(&role) => "fast",
        (None, _) => DEFAULT_TIER,
    };
    Some(tier.to_owned())
}

/// Estimates the cost of a run in dollars.
pub(crate) async fn estimate(
    database: &Database,
    definition: &PipelineDefinition,
    now: i64,
) -> Result<f64, DatabaseError> {
    let history = database.pipeline_tier_costs(now.saturating_sub(HISTORY_MS)).await?;
    Ok(sum(definition, &history))
}

fn sum(definition: &PipelineDefinition, history: &[TierCost]) -> f64 {
    definition.steps.iter().filter_map(tier).map(|tier| cost(&tier, history)).sum()
}

fn cost(tier: &str, history: &[TierCost]) -> f64 {
    let known = history.iter().find(|known| known.tier == tier && known.steps >= MIN_STEPS);
    if let Some(known) = known {
        return known.nanos as f64 / known.steps as f64 / 1e9;
    }
    let of = |tier: &str| TABLE.iter().find(|(name, _)| *name == tier).map(|(_, dollars)| *dollars);
    of(tier).or(of(DEFAULT_TIER)).unwrap_or(0.0)
}

/// Dollars, for people.
pub(crate) fn dollars(amount: f64) -> String {
    // The sum of nothing is -0.
    gantry_model::Money::from_dollars(amount + 0.0).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn estimates_use_history_from_three_steps_on() {
        let definition: PipelineDefinition = serde_json::from_value(json!({"steps": [
            {"id": "a", "task": "x", "model": "opus"},
            {"id": "b", "task": "x", "role": "collector"},
            {"id": "c", "task": "x", "model": "lab/special"},
            {"id": "d", "tool": "Read", "input": {}},
        ]}))
        .unwrap();
        assert!((sum(&definition, &[]) - (1.20 + 0.005 + 0.08)).abs() < 1e-9);
        let of = |tier: &str, steps, nanos| TierCost { tier: tier.into(), steps, nanos };
        let history = [of("deep", 3, 300_000_000), of("fast", 2, 1_000_000_000)];
        assert!((sum(&definition, &history) - (0.1 + 0.005 + 0.08)).abs() < 1e-9);
    }
}
