//! Tools that the model's provider runs. Gantry declares them to models that have them, and never
//! calls them.

use gantry_net::NetworkPolicy;
use serde_json::{Value, json};

/// A tool of the model's provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTool {
    pub name: &'static str,
    /// The versioned type in the provider's API.
    pub kind: &'static str,
    /// The API that has the tool.
    pub api: &'static str,
}

/// Web search by Anthropic.
pub const ANTHROPIC_WEB_SEARCH: ModelTool =
    ModelTool { name: "web_search", kind: "web_search_20250305", api: "anthropic" };

/// All provider tools.
pub const MODEL_TOOLS: [ModelTool; 1] = [ANTHROPIC_WEB_SEARCH];

impl ModelTool {
    /// Returns the entry for a request's list of tools. Returns `None` for an agent with a limited
    /// network, because Gantry cannot control what the provider reaches.
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
    fn web_search_is_declared_only_with_an_open_network() {
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
