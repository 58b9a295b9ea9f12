//! [`Role`] is a named preset for children: a model, a prompt and tool limits. A child's own settings override its role,
//! and its role overrides the defaults.

use std::collections::BTreeMap;

use gantry_model::{Effort, Money, Thinking};
use gantry_tool::{Effect, Property};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::child::ToolLimits;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Role {
    /// A tier, or `provider/model`.
    pub model: Option<String>,
    pub thinking: Option<Thinking>,
    pub effort: Option<Effort>,
    pub prompt: Option<String>,
    pub tools: ToolLimits,
}

/// One child: its task and its settings.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name, for people. At most 64 characters.
    pub name: String,
    /// Its task, with everything it needs to know.
    pub task: String,
    /// researcher (investigates, changes nothing), creator (makes things, runs no commands), operator (checks, changes
    /// nothing), collector (only gathers), or a configured role. Sets model, effort, prompt and tools.
    pub role: Option<String>,
    /// Background, placed before the task.
    pub context: Option<String>,
    /// It does not see your memory (default false).
    #[serde(default)]
    pub isolated_memory: bool,
    /// Replaces the role's prompt, or yours.
    pub system_prompt: Option<String>,
    /// fast, balanced or deep (also haiku, sonnet, opus), or provider/model. Replaces the role's model.
    pub model: Option<String>,
    /// Whether it thinks before it answers: "off", "adaptive", or a number of tokens.
    #[serde(default, deserialize_with = "thinking")]
    #[schemars(with = "Option<ThinkingInput>")]
    pub thinking: Option<Thinking>,
    /// The effort of its model.
    #[schemars(with = "Option<EffortInput>")]
    pub effort: Option<Effort>,
    /// The only tools of yours that it may use: names, globs (local__*) and toolsets (node). Replaces the role's tools.
    pub tools: Option<Vec<String>>,
    /// The highest number of requests to its model.
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// The longest answer of its model, in tokens.
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// Its budget in US dollars. Its costs also count against your own budget.
    #[serde(default, rename = "max_budget_usd", deserialize_with = "dollars")]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pub max_budget: Option<Money>,
}

/// "off", "adaptive", or a number of tokens.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
enum ThinkingInput {
    Word(ThinkingWord),
    Tokens(u32),
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ThinkingWord {
    Off,
    Adaptive,
}

/// The schema of [`Effort`].
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum EffortInput {
    Low,
    Medium,
    High,
}

fn thinking<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Thinking>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|thinking| match thinking {
        ThinkingInput::Word(ThinkingWord::Off) => Thinking::Off,
        ThinkingInput::Word(ThinkingWord::Adaptive) => Thinking::Adaptive,
        ThinkingInput::Tokens(tokens) => Thinking::Budget(tokens),
    }))
}

fn dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Money>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Money::from_dollars))
}

/// A spec combined with its role.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<Thinking>,
    pub(crate) effort: Option<Effort>,
    pub(crate) prompt: Option<String>,
    pub(crate) tools: Vec<ToolLimits>,
    pub(crate) shown: Option<Vec<String>>,
}

/// The effects that run commands, directly or through other agents.
const ACTS: [Effect; 3] = [Effect::RunsCommands, Effect::SendsMessages, Effect::StartsAgents];
/// The effects that change files.
const WRITES: [Effect; 1] = [Effect::WritesFiles];

/// Returns the built-in roles.
pub fn built_in() -> BTreeMap<String, Role> {
    let role = |model: &str, effort, prompt: &str, tools| Role {
        model: Some(model.to_owned()),
        thinking: None,
        effort: Some(effort),
        prompt: Some(prompt.to_owned()),
        tools,
    };
    let without = |deny: &[&[Effect]]| ToolLimits { allow: None, deny: selectors(&deny.concat()) };
    let only = |property: Property| ToolLimits { allow: Some(vec![property.selector()]), deny: Vec::new() };
    [
        ("researcher", role("balanced", Effort::High, RESEARCHER, without(&[&ACTS, &WRITES]))),
        ("creator", role("balanced", Effort::High, CREATOR, without(&[&ACTS]))),
        ("operator", role("fast", Effort::High, OPERATOR, without(&[&ACTS, &WRITES]))),
        ("collector", role("fast", Effort::Medium, COLLECTOR, only(Property::Collects))),
    ]
    .map(|(name, role)| (name.to_owned(), role))
    .into()
}

const RESEARCHER: &str = "You investigate. Use several sources, separate what you read from what you conclude, and name \
    your sources. Change nothing.";
const CREATOR: &str = "You create what was asked for: text, code, files. Look at the existing work first and match it. \
    Report what you made and where it is.";
const OPERATOR: &str = "You check running systems: compare their state with the expected state, and report clearly what is \
    wrong and how to fix it. Change nothing yourself.";
const COLLECTOR: &str = "You gather what was asked for and return it in order, complete and without comment. List what you \
    could not get.";

/// Combines a spec with its role and the defaults.
pub(crate) fn resolve(spec: &Spec, role: Option<&Role>) -> Resolved {
    let listed = spec.tools.clone().map(|allow| ToolLimits { allow: Some(allow), deny: Vec::new() });
    let own = listed.or_else(|| role.map(|role| role.tools.clone())).unwrap_or_default();
    let mut tools = vec![ToolLimits::without(Property::StartsChildren)];
    if spec.isolated_memory {
        tools.push(ToolLimits::without(Property::HoldsOwnerData));
    }
    let shown = own.allow.clone();
    tools.push(own);
    Resolved {
        model: spec.model.clone().or_else(|| role.and_then(|role| role.model.clone())),
        thinking: spec.thinking.or(role.and_then(|role| role.thinking)),
        effort: spec.effort.or(role.and_then(|role| role.effort)),
        prompt: spec.system_prompt.clone().or_else(|| role.and_then(|role| role.prompt.clone())),
        tools,
        shown,
    }
}

fn selectors(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(|effect| effect.selector()).collect()
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::echo_tool;
    use gantry_tool::{Capability, RemoteTool, Reply, Tool, Toolset};

    use super::*;

    #[test]
    fn spec_overrides_role_and_role_overrides_defaults() {
        let roles = built_in();
        let researcher = roles.get("researcher");
        let plain = resolve(&Spec::default(), None);
        let no_children = ToolLimits::without(Property::StartsChildren);
        assert_eq!((plain.model, plain.effort, plain.prompt), (None, None, None));
        assert_eq!(plain.tools, [no_children.clone(), ToolLimits::default()]);
        let by_role = resolve(&Spec::default(), researcher);
        assert_eq!((by_role.model.as_deref(), by_role.effort), (Some("balanced"), Some(Effort::High)));
        assert_eq!(by_role.tools[1].deny, selectors(&[&ACTS[..], &WRITES].concat()));
        let spec = Spec {
            model: Some("deep".into()),
            effort: Some(Effort::Low),
            thinking: Some(Thinking::Adaptive),
            system_prompt: Some("mine".into()),
            tools: Some(vec!["bash".into()]),
            ..Spec::default()
        };
        let own = resolve(&spec, researcher);
        assert_eq!(
            (own.model.as_deref(), own.effort, own.thinking, own.prompt.as_deref()),
            (Some("deep"), Some(Effort::Low), Some(Thinking::Adaptive), Some("mine"))
        );
        // The list replaces the role's tools, and still excludes tools that start children.
        let listed = ToolLimits { allow: Some(vec!["bash".into()]), deny: Vec::new() };
        assert_eq!((own.tools, own.shown), (vec![no_children, listed], Some(vec!["bash".to_owned()])));
        let isolated = resolve(&Spec { isolated_memory: true, ..Spec::default() }, None);
        assert_eq!(isolated.tools[1], ToolLimits::without(Property::HoldsOwnerData));
    }

    /// A tool of an MCP server. A trusted one is read-only.
    fn server_tool(name: &str, trusted: bool) -> Tool {
        let remote = RemoteTool {
            name: name.to_owned(),
            toolset: Toolset::Mcp,
            description: "x".into(),
            input_schema: serde_json::json!({"type": "object"}),
            output_schema: None,
            read_only: trusted,
            destructive: !trusted,
            idempotent: false,
            open_world: false,
            capabilities: Vec::new(),
        };
        Tool::remote(remote, |_, input| async move { Ok(Reply::Json(input)) })
    }

    #[test]
    fn roles_exclude_tools_with_unknown_effects() {
        let tool = |name: &str| echo_tool(name, Toolset::Assistant);
        let tools = [
            tool("read_file").read_only().collects(),
            tool("http_request").effects(&[Effect::ReachesNetwork]).collects(),
            tool("write_file").capabilities(&[Capability::FilesystemWrite]),
            tool("bash").capabilities(&[Capability::ShellExec]),
            tool("tool::agent_send").effects(&[Effect::SendsMessages]),
            tool("spawn_agent").effects(&[Effect::StartsAgents]),
            tool("made_tomorrow"),
            server_tool("files__write_file", false),
            server_tool("files__read_file", true),
        ];
        let allowed = |role: &str| -> String {
            let scope = built_in()[role].tools.scope();
            let names = tools.iter().filter(|tool| scope.allows(tool)).map(|tool| tool.name());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(allowed("researcher"), "read_file http_request files__read_file");
        assert_eq!(allowed("operator"), "read_file http_request files__read_file");
        assert_eq!(allowed("creator"), "read_file http_request write_file files__read_file");
        assert_eq!(allowed("collector"), "read_file http_request");
    }

    #[test]
    fn children_keep_mcp_tools_and_lose_tools_that_may_start_children() {
        let child = ToolLimits::without(Property::StartsChildren).scope();
        assert!(child.allows(&server_tool("files__write_file", false)));
        assert!(!child.allows(&echo_tool("made_tomorrow", Toolset::Gantry)));
        let isolated = ToolLimits::without(Property::HoldsOwnerData).scope();
        assert!(isolated.allows(&server_tool("files__write_file", false)));
        assert!(isolated.allows(&echo_tool("Read", Toolset::Node)));
        // A new tool on data of the gateway is hidden until it declares that it holds no owner data.
        let kept = || echo_tool("mail_search", Toolset::Gantry).works_without_machine();
        assert!(!isolated.allows(&kept()));
        assert!(isolated.allows(&kept().without_owner_data()));
    }

    #[test]
    fn built_in_roles_have_their_models_and_tools() {
        let roles = built_in();
        let facts: Vec<_> =
            roles.iter().map(|(name, role)| (name.as_str(), role.model.as_deref(), role.effort)).collect();
        assert_eq!(
            facts,
            [
                ("collector", Some("fast"), Some(Effort::Medium)),
                ("creator", Some("balanced"), Some(Effort::High)),
                ("operator", Some("fast"), Some(Effort::High)),
                ("researcher", Some("balanced"), Some(Effort::High)),
            ]
        );
        assert_eq!(roles["collector"].tools.allow, Some(vec!["is:collects".to_owned()]));
        assert_eq!(
            roles["creator"].tools.deny,
            ["effect:runs_commands", "effect:sends_messages", "effect:starts_agents"]
        );
    }
}
