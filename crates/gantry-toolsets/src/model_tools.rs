//! Tools that a model's maker runs: declared to models that have them, never called here.

use gantry_net::NetworkPolicy;
use serde_json::{Value, json};

/// A tool of the maker's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTool {
    pub name: &'static str,
    /// The versioned type by which the maker's API knows it.
    pub kind: &'static str,
    /// Whose API has it.
    pub api: &'static str,
}

/// Searching the web on Anthropic's side.
pub const ANTHROPIC_WEB_SEARCH: ModelTool =
    ModelTool { name: "web_search", kind: "web_search_20250305", api: "anthropic" };

/// Every such tool.
pub const MODEL_TOOLS: [ModelTool; 1] = [ANTHROPIC_WEB_SEARCH];

impl ModelTool {
    /// What goes into the list of tools of a request. None for an agent whose network is limited: what the maker reaches on
    /// its behalf is out of our hands.
    pub fn declaration(&self, policy: &NetworkPolicy, max_uses: Option<u32>) -> Option<Value> {
        if *policy != NetworkPolicy::AllowAll {
            return None;
        }
        let mut declared = json!({"type": self.kind, "name": self.name});
        if let Some(max_uses) = max_uses {
            declared["max_uses"] = max_uses.into();
        }
        Some(declared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_search_is_declared_to_agents_with_an_open_network_alone() {
        let [tool] = MODEL_TOOLS;
        assert_eq!(
            tool.declaration(&NetworkPolicy::AllowAll, None),
            Some(json!({"type": "web_search_20250305", "name": "web_search"}))
        );
        assert_eq!(tool.declaration(&NetworkPolicy::AllowAll, Some(3)).unwrap()["max_uses"], 3);
        for policy in [NetworkPolicy::DenyAll, NetworkPolicy::AllowList(Vec::new())] {
            assert_eq!(tool.declaration(&policy, None), None, "{policy:?}");
        }
    }
}
