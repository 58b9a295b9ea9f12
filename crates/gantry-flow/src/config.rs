//! The `[flow]` section of `gantry.toml`.

use gantry_domain::ConfigSection;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Budgets of background work, in US dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FlowConfig {
    /// Runs schedules, tasks and watches. Definitions can be read and changed either way.
    pub enabled: bool,
    /// The highest cost of one run.
    pub run_budget_usd: f64,
    /// The highest cost of one schedule or task on one day.
    pub daily_budget_usd: f64,
}

impl Default for FlowConfig {
    fn default() -> Self {
        FlowConfig { enabled: true, run_budget_usd: 1.0, daily_budget_usd: 5.0 }
    }
}

impl ConfigSection for FlowConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let limits = [("runBudgetUsd", self.run_budget_usd), ("dailyBudgetUsd", self.daily_budget_usd)];
        let wrong = limits.into_iter().filter(|(_, limit)| !(limit.is_finite() && *limit > 0.0));
        wrong
            .map(|(key, _)| Violation {
                path: format!("{at}.{key}"),
                message: "must be a number of dollars above 0".to_owned(),
            })
            .collect()
    }
}
