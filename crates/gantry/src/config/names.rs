//! Checks names of tools, models and agents in the configuration. An unknown name is rejected with the nearest known one.
//! Names of nodes, MCP servers and models of local servers are not checked, because these come and go.

use gantry_agent::SessionKey;
use gantry_model::Tier;
use gantry_tool::{Toolset, canonical_name, nearest};

/// Providers that are found without configuration.
const FOUND: [&str; 4] = ["anthropic", "openai", "ollama", "llamacpp"];
const TIERS: [&str; 6] = ["fast", "balanced", "deep", "haiku", "sonnet", "opus"];

/// Checks a selector of tools and returns its error: a plain name must be a known tool. Patterns, and names with a node or a
/// server in front, may match later.
pub(super) fn no_tool(selector: &str) -> Option<String> {
    let name = canonical_name(selector);
    let toolsets = Toolset::ALL.map(|toolset| toolset.name());
    // Effects and properties are checked when the list is read.
    let is_attribute = ["effect:", "is:"].iter().any(|prefix| name.starts_with(prefix));
    let may_come = name.contains("__") || name.contains(['*', '?', '[', ']', '{', '}']);
    let mut tools: Vec<&str> = gantry_toolsets::names()
        .chain(gantry_agent::tool_names())
        .chain(gantry_flow::tool_names())
        .chain(gantry_channels::tool_names())
        .collect();
    if is_attribute || may_come || tools.contains(&name.as_str()) || toolsets.contains(&selector) {
        return None;
    }
    tools.sort_unstable();
    Some(format!("unknown tool {selector:?}{}", or_near(selector, tools.into_iter().chain(toolsets))))
}

/// Checks the name of a model without asking any provider, and returns its error. `configured` lists providers with their
/// configured models.
pub(super) fn no_model<'a>(
    name: &str,
    configured: impl Iterator<Item = (&'a str, Vec<&'a str>)>,
) -> Option<String> {
    let configured: Vec<(&str, Vec<&str>)> = configured.collect();
    let providers = || configured.iter().map(|(provider, _)| *provider).chain(FOUND);
    if name.parse::<Tier>().is_ok() || configured.iter().any(|(_, models)| models.contains(&name)) {
        return None;
    }
    if let Some((provider, _)) = name.split_once('/') {
        // A provider without configured models may have models with a slash in their names.
        let may_have = configured.iter().any(|(_, models)| models.is_empty());
        let is_near = !nearest(provider, providers()).is_empty();
        let is_known = providers().any(|known| known == provider);
        return (!is_known && (is_near || !may_have))
            .then(|| format!("unknown provider {provider:?}{}", or_near(provider, providers())));
    }
    // A short word close to a tier is a misspelled tier. A longer one may be a provider's model.
    let is_word = name.len() <= "balanced".len() + 1 && name.chars().all(|c| c.is_ascii_alphabetic());
    let near = nearest(name, TIERS);
    (is_word && !near.is_empty()).then(|| {
        format!("unknown tier {name:?}{} Write a model as provider/model.", or_near(name, TIERS.into_iter()))
    })
}

/// Checks the name of an agent, which is part of session keys, and returns its error.
pub(super) fn no_agent(name: &str) -> Option<String> {
    let folded = SessionKey::agent_name(name);
    (folded != name).then(|| {
        format!("an agent's name must have 1 to 64 lower-case letters, digits, - and _, such as {folded:?}")
    })
}

/// Checks that an agent is one of the known ones, and returns the error.
pub(super) fn not_configured<'a>(
    name: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    let all = known.clone();
    (!known.any(|known| known == name)).then(|| format!("unknown agent {name:?}{}", or_near(name, all)))
}

fn or_near<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()).first() {
        Some(near) => format!("; did you mean {near:?}?"),
        None => format!("; use one of {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_tools_are_known() {
        let docs = include_str!("../../../../docs/tools.md");
        let headings = docs.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
        let mut documented: Vec<&str> = headings.collect();
        documented.sort_unstable();
        let mut known: Vec<&str> = gantry_toolsets::names()
            .chain(gantry_agent::tool_names())
            .chain(gantry_flow::tool_names())
            .chain(gantry_channels::tool_names())
            .collect();
        known.sort_unstable();
        assert_eq!(documented, known);
    }

    #[test]
    fn a_plain_name_is_a_tool_or_a_toolset() {
        for known in [
            "Read",
            "read",
            "tool::web_fetch",
            "tool__web_fetch",
            "node",
            "mcp",
            "far__Raed",
            "*",
            "web*",
            "effect:writes_files",
            "is:collects",
        ] {
            assert_eq!(no_tool(known), None, "{known}");
        }
        for (wrong, near) in [("Reed", "Read"), ("tool::web_fetsh", "tool::web_fetch"), ("nodes", "node")] {
            let error = no_tool(wrong).unwrap();
            assert!(error.contains(&format!("did you mean {near:?}?")), "{error}");
        }
    }

    #[test]
    fn a_model_is_a_tier_or_of_a_provider_that_there_may_be() {
        let check = |name: &str| no_model(name, [("lab", vec!["scripted-1", "meta/llama"])].into_iter());
        for known in [
            "deep",
            "opus",
            "lab/x",
            "scripted-1",
            "meta/llama",
            "anthropic/y",
            "ollama/z",
            "deepseek-r1",
            "qwen3:8b",
        ] {
            assert_eq!(check(known), None, "{known}");
        }
        for (wrong, near) in
            [("depe", "deep"), ("labb/m", "lab"), ("antropic/x", "anthropic"), ("balenced", "balanced")]
        {
            let error = check(wrong).unwrap();
            assert!(error.contains(&format!("did you mean {near:?}?")), "{error}");
        }
        let open = |name: &str| no_model(name, [("router", Vec::new())].into_iter());
        assert_eq!((open("meta-llama/llama-4"), open("ruoter/x").is_some()), (None, true));
    }

    #[test]
    fn an_agent_has_a_name_that_its_sessions_can_have() {
        assert_eq!((no_agent("main"), no_agent("a-1_b")), (None, None));
        for (wrong, folded) in
            [("Main", "main"), ("a:b/../c", "a-b----c"), ("-x", "x"), (&"x".repeat(70), &"x".repeat(64))]
        {
            let error = no_agent(wrong).unwrap();
            assert!(error.contains(&format!("{folded:?}")), "{error}");
        }
    }
}
