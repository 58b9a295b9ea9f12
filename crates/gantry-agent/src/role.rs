//! Roles of children: a model, a prompt and a part of the tools under one name. A child's own settings go before its role's,
//! and those before what holds for everybody.

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

/// One child.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
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
    #[serde(default, deserialize_with = "thinking")]
    #[schemars(with = "Option<ThinkingInput>")]
    pub thinking: Option<Thinking>,
    /// How hard its model tries.
    #[schemars(with = "Option<EffortInput>")]
    pub effort: Option<Effort>,
    /// The only tools it has, of yours, in place of the role's: names, globs (local__*) and toolsets (node).
    pub tools: Option<Vec<String>>,
    /// How often its model may be asked.
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// The longest answer of its model, in tokens.
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// What it may cost, in US dollars. It counts against your own budget in any case.
    #[serde(default, rename = "max_budget_usd", deserialize_with = "dollars")]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pub max_budget: Option<Money>,
}

/// How a model writes `thinking`.
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

/// What a spec comes to with its role.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<Thinking>,
    pub(crate) effort: Option<Effort>,
    pub(crate) prompt: Option<String>,
    pub(crate) tools: Vec<ToolLimits>,
    pub(crate) shown: Option<Vec<String>>,
}

/// What a list of names would call `bash`: every way to run a command, and to have somebody else run one.
const ACTS: [Effect; 3] = [Effect::RunsCommands, Effect::SendsMessages, Effect::StartsAgents];
/// What a list of names would call `write_file`: every way to change a file.
const WRITES: [Effect; 1] = [Effect::WritesFiles];

/// The roles that are there without being configured.
pub fn built_in() -> BTreeMap<String, Role> {
    let role = |model: &str, effort, prompt: &str, tools| Role {
        model: Some(model.to_owned()),
        thinking: None,
        effort: Some(effort),
        prompt: Some(prompt.to_owned()),
        tools,
    };
    let but = |deny: &[&[Effect]]| ToolLimits { allow: None, deny: selectors(&deny.concat()) };
    let only = |property: Property| ToolLimits { allow: Some(vec![property.selector()]), deny: Vec::new() };
    [
        ("researcher", role("balanced", Effort::High, RESEARCHER, but(&[&ACTS, &WRITES]))),
        ("creator", role("balanced", Effort::High, CREATOR, but(&[&ACTS]))),
        ("operator", role("fast", Effort::High, OPERATOR, but(&[&ACTS, &WRITES]))),
        ("collector", role("fast", Effort::Medium, COLLECTOR, only(Property::Collects))),
    ]
    .map(|(name, role)| (name.to_owned(), role))
    .into()
}

const RESEARCHER: &str = "You find things out. Look in several places, tell apart what you read and what you conclude, and \
    name your sources. You change nothing.";
const CREATOR: &str = "You make what was asked for: texts, code, files. Look at what is there first and fit in with it. Say \
    what you made and where it is.";
const OPERATOR: &str = "You look after running things: check their state, compare it with what it should be, and say \
    plainly what is wrong and what to do. You change nothing yourself.";
const COLLECTOR: &str = "You gather what was asked for and hand it over in order, complete and without comment. What you \
    could not get you name.";

/// A spec over its role over the defaults.
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
    fn what_a_spec_says_goes_before_its_role_and_that_before_the_defaults() {
        let roles = built_in();
        let researcher = roles.get("researcher");
        let plain = resolve(&Spec::default(), None);
        let nobody = ToolLimits::without(Property::StartsChildren);
        assert_eq!((plain.model, plain.effort, plain.prompt), (None, None, None));
        assert_eq!(plain.tools, [nobody.clone(), ToolLimits::default()]);
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
        // The list takes the place of the role's, and still begins no children.
        let listed = ToolLimits { allow: Some(vec!["bash".into()]), deny: Vec::new() };
        assert_eq!((own.tools, own.shown), (vec![nobody, listed], Some(vec!["bash".to_owned()])));
        let isolated = resolve(&Spec { isolated_memory: true, ..Spec::default() }, None);
        assert_eq!(isolated.tools[1], ToolLimits::without(Property::HoldsOwnerData));
    }

    /// An MCP server's tool, which says of itself that it only reads.
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
    fn roles_leave_out_tools_of_unknown_effect() {
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
    fn children_keep_tools_of_servers_and_lose_new_tools_that_may_start_children() {
        let child = ToolLimits::without(Property::StartsChildren).scope();
        assert!(child.allows(&server_tool("files__write_file", false)));
        assert!(!child.allows(&echo_tool("made_tomorrow", Toolset::Gantry)));
        let isolated = ToolLimits::without(Property::HoldsOwnerData).scope();
        assert!(isolated.allows(&server_tool("files__write_file", false)));
        assert!(isolated.allows(&echo_tool("Read", Toolset::Node)));
        // A new tool on what the gateway keeps is hidden until it declares that it holds nothing of the owner's.
        let kept = || echo_tool("mail_search", Toolset::Gantry).works_without_machine();
        assert!(!isolated.allows(&kept()));
        assert!(isolated.allows(&kept().without_owner_data()));
    }

    #[test]
    fn the_four_roles_are_there() {
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
