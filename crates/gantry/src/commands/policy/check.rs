//! `gantry policy check` lists the errors of the policy, and warns of rules that can never match.

use anyhow::Result;
use gantry_tool::{Decision, Rule, canonical_name, nearest};
use serde_json::json;

use crate::config::{ConfigError, RuleConfig};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::local::Local;
use crate::output::Output;

pub(super) fn run(environment: Environment, output: &Output) -> Result<Exit> {
    let file = environment.layers.file.clone();
    if let Err(ConfigError::Invalid { violations }) = environment.layers.check_policy() {
        if !output.json {
            return Err(ConfigError::Invalid { violations }.into());
        }
        let shown = |violation: &gantry_tool::Violation| json!({"path": violation.path, "message": violation.message});
        let violations: Vec<_> = violations.iter().map(shown).collect();
        output.value(&json!({"file": file, "valid": false, "violations": violations, "warnings": []}));
        return Ok(Exit::Usage);
    }
    let local = Local::open(environment)?;
    let warnings = dead_rules(&local);
    let count = local.config.policy.rules.len();
    if output.json {
        output.value(
            &json!({"file": file, "valid": true, "rules": count, "violations": [], "warnings": warnings}),
        );
        return Ok(Exit::Success);
    }
    warnings.iter().for_each(|warning| output.warning(warning));
    let plural = if count == 1 { "" } else { "s" };
    output.line(&format!("{} {count} rule{plural} in {}", output.green("valid:"), file.display()));
    Ok(Exit::Success)
}

/// Describes the rules that can never match, because they protect nothing.
pub(crate) fn dead_rules(local: &Local) -> Vec<String> {
    let rules = &local.config.policy.rules;
    let mut warnings = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let who = format!("policy rule {}", rule.shown_name(index));
        let (pattern, agents) = rule.subjects();
        if matches_nothing(local, pattern) {
            let bare = pattern.rsplit("__").next().unwrap_or(pattern);
            let names = gantry_toolsets::names()
                .chain(gantry_agent::tool_names())
                .chain(gantry_flow::tool_names())
                .chain(gantry_channels::tool_names());
            let near = nearest(bare, names).first().map(|near| format!("; did you mean \"{near}\"?"));
            warnings.push(format!("{who}: \"{pattern}\" matches no tool{}", near.unwrap_or_default()));
        }
        for agent in agents.iter().filter(|agent| local.agent(agent).is_err()) {
            warnings.push(format!("{who}: unknown agent \"{agent}\""));
        }
        let covered = rules.iter().take(index).enumerate().find(|(_, earlier)| covers(earlier, rule));
        if let Some((at, earlier)) = covered {
            let name = earlier.shown_name(at);
            warnings.push(format!("{who} never decides: {name} is before it and matches all of its calls"));
        }
    }
    warnings
}

/// Whether no tool can have such a name. Names of nodes are not known here, and MCP servers bring tools of their own.
fn matches_nothing(local: &Local, pattern: &str) -> bool {
    let tools = local.gate.registry().entries();
    let is_known = |pattern: &str| {
        let rule = Rule::new("", pattern, Decision::Deny, "");
        rule.is_ok_and(|rule| tools.iter().any(|tool| rule.is_about(tool)))
    };
    let name = canonical_name(pattern);
    match name.split_once("__") {
        _ if is_known(pattern) => false,
        Some((place, bare)) => !local.config.mcp_servers.contains_key(place) && !is_known(bare),
        // A pattern without a place may match the tools of a server.
        None => !pattern.contains('*') || local.config.mcp_servers.is_empty(),
    }
}

/// Whether every call that `later` matches is already matched by `earlier`.
fn covers(earlier: &RuleConfig, later: &RuleConfig) -> bool {
    let ((pattern, agents), (later_pattern, later_agents)) = (earlier.subjects(), later.subjects());
    let all_in = |own: &[String], others: &[String]| {
        own.is_empty() || (!others.is_empty() && others.iter().all(|other| own.contains(other)))
    };
    earlier.is_unconditional()
        && earlier.covers_principals(later)
        && all_in(agents, later_agents)
        && covers_pattern(&canonical_name(pattern), &canonical_name(later_pattern))
}

/// Whether the first pattern matches every name that the second matches. `*` of the second is compared as a character that
/// no name has, so only `*` of the first matches it.
fn covers_pattern(first: &str, second: &str) -> bool {
    let pieces: Vec<&str> = first.split('*').collect();
    let ([start, middle @ .., end], true) = (&pieces[..], first.contains('*')) else {
        return first == second;
    };
    let Some(mut rest) = second.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)) else {
        return false;
    };
    middle.iter().all(|piece| match rest.find(piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::covers_pattern;

    #[test]
    fn pattern_covers_only_what_it_always_matches() {
        for (first, second) in [
            ("*", "Bash"),
            ("*", "a*b"),
            ("Bash", "Bash"),
            ("local__*", "local__Ba*"),
            ("a*c", "abc"),
            ("a*b*c", "a*xbx*c"),
        ] {
            assert!(covers_pattern(first, second), "{first} covers {second}");
        }
        for (first, second) in [
            ("Bash", "*"),
            ("Bash", "Read"),
            ("local__*", "*"),
            ("a*c", "a*"),
            ("ab*b", "ab"),
            ("a*b*c", "a*c"),
        ] {
            assert!(!covers_pattern(first, second), "{first} does not cover {second}");
        }
    }
}
