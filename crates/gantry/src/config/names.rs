//! What a name in the configuration can mean: a tool, a model, an agent. A name that can mean nothing is refused when it is read, with
//! the nearest that does; what may come and go (machines, MCP servers, models of local servers) is not judged here.

use gantry_agent::SessionKey;
use gantry_model::Tier;
use gantry_tool::{Toolset, canonical_name, nearest};

/// Names of providers that are found without being configured.
const FOUND: [&str; 4] = ["anthropic", "openai", "ollama", "llamacpp"];
const TIERS: [&str; 6] = ["fast", "balanced", "deep", "haiku", "sonnet", "opus"];

/// What is wrong with a selector of tools: a plain name that no tool has. Patterns, and names with a machine or a server in front, may
/// mean something later.
pub(super) fn no_tool(selector: &str) -> Option<String> {
    let name = canonical_name(selector);
    let toolsets = Toolset::ALL.map(|toolset| toolset.name());
    // Effects and properties are checked where the list is read.
    let is_attribute = ["effect:", "is:"].iter().any(|prefix| name.starts_with(prefix));
    let may_come = name.contains("__") || name.contains(['*', '?', '[', ']', '{', '}']);
    let mut tools: Vec<&str> = gantry_toolsets::names().chain(gantry_agent::tool_names()).collect();
    if is_attribute || may_come || tools.contains(&name.as_str()) || toolsets.contains(&selector) {
        return None;
    }
    tools.sort_unstable();
    Some(format!("{selector:?} is no tool{}", or_near(selector, tools.into_iter().chain(toolsets))))
}

/// What is wrong with the name of a model, as far as that can be known before anybody is asked: `configured` are providers, each with
/// the models it is said to have.
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
        // A server that was not said to have this or that may have models with a slash in their names.
        let may_have = configured.iter().any(|(_, models)| models.is_empty());
        let is_near = !nearest(provider, providers()).is_empty();
        let is_known = providers().any(|known| known == provider);
        return (!is_known && (is_near || !may_have))
            .then(|| format!("there is no provider {provider:?}{}", or_near(provider, providers())));
    }
    // A short word that is almost a tier is meant to be one; a longer one may be a model that a server has.
    let is_word = name.len() <= "balanced".len() + 1 && name.chars().all(|c| c.is_ascii_alphabetic());
    let near = nearest(name, TIERS);
    (is_word && !near.is_empty()).then(|| {
        format!("{name:?} is no tier{}; a model is written provider/model", or_near(name, TIERS.into_iter()))
    })
}

/// What is wrong with the name of an agent, since keys of sessions hold it.
pub(super) fn no_agent(name: &str) -> Option<String> {
    let folded = SessionKey::agent_name(name);
    (folded != name).then(|| {
        format!(
            "an agent cannot be called that: its sessions are agent:NAME:…, and a name has 1 to 64 small letters, digits, - and _, \
             such as {folded:?}"
        )
    })
}

/// What is wrong with the name of an agent that is to be one of these.
pub(super) fn not_configured<'a>(
    name: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    let all = known.clone();
    (!known.any(|known| known == name)).then(|| format!("there is no agent {name:?}{}", or_near(name, all)))
}

fn or_near<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()).first() {
        Some(near) => format!("; did you mean {near:?}?"),
        None => format!("; there are {}", known.collect::<Vec<_>>().join(", ")),
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
        let mut known: Vec<&str> = gantry_toolsets::names().chain(gantry_agent::tool_names()).collect();
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
            let told = no_tool(wrong).unwrap();
            assert!(told.contains(&format!("did you mean {near:?}?")), "{told}");
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
            let told = check(wrong).unwrap();
            assert!(told.contains(&format!("did you mean {near:?}?")), "{told}");
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
            let told = no_agent(wrong).unwrap();
            assert!(told.contains(&format!("{folded:?}")), "{told}");
        }
    }
}
