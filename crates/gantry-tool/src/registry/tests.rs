use super::*;
use crate::testing::echo_tool;
use crate::{Capability, Effect, Property, RefusalCode, RemoteTool, Reply, Toolset};

fn registry() -> Registry {
    let registry = Registry::default();
    for (name, toolset) in [
        ("local__Bash", Toolset::Node),
        ("local__Read", Toolset::Node),
        ("tool::file_read", Toolset::Guarded),
        ("read", Toolset::Basic),
    ] {
        registry.register(echo_tool(name, toolset)).unwrap();
    }
    registry
}

fn names(scope: &ToolScope) -> Vec<String> {
    registry().view(scope).entries().iter().map(|tool| tool.name().to_owned()).collect()
}

fn scope(allow: Option<&[&str]>, deny: &[&str]) -> ToolScope {
    let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    ToolScope::new(allow.map(owned).as_deref(), &owned(deny)).unwrap()
}

#[test]
fn registers_once_and_replaces() {
    let registry = registry();
    assert!(registry.register(echo_tool("read", Toolset::Basic)).is_err());
    assert!(registry.replace(echo_tool("read", Toolset::Basic)).is_some());
    assert!(registry.replace(echo_tool("write", Toolset::Basic)).is_none());
    assert!(registry.registered("write") && !registry.registered("exec"));
}

#[test]
fn watchers_are_notified_of_changes() {
    let registry = registry();
    let mut changes = registry.changes();
    assert!(!changes.has_changed().unwrap());
    registry.set_node("laptop", NodeState::default(), vec![echo_tool("laptop__Bash", Toolset::Node)]);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    registry.remove_node("laptop");
    assert!(changes.has_changed().unwrap());
}

#[test]
fn server_tools_cannot_shadow_other_tools() {
    let registry = registry();
    let tool = |name: &str| echo_tool(name, Toolset::Mcp);
    assert!(registry.set_server("fs", vec![tool("fs__a"), tool("fs__b")]).is_empty());
    assert!(registry.has_server("fs") && registry.registered("fs__a"));
    assert!(!registry.registered("a"), "only nodes' tools have bare names");
    let refused = registry.set_server("fs", vec![tool("fs__a::x"), tool("fs__a__x"), tool("fs__c")]);
    assert!(matches!(&refused[..], [RegistryError::Colons(_)]), "{refused:?}");
    assert!(registry.registered("fs__c") && !registry.registered("fs__b"), "in place of those it had");
    let refused = registry.set_server("tool", vec![tool("tool__file_read")]);
    assert!(matches!(&refused[..], [RegistryError::Shadows { .. }]), "{refused:?}");
    registry.set_node("box", NodeState::default(), vec![echo_tool("box__Read", Toolset::Node)]);
    let refused = registry.set_server("box", vec![tool("box__x")]);
    assert!(matches!(&refused[..], [RegistryError::IsNode(_)]), "{refused:?}");
    registry.remove_server("fs");
    assert!(!registry.has_server("fs") && !registry.registered("fs__c") && registry.registered("box__Read"));
}

#[test]
fn server_tools_cannot_share_a_published_name() {
    let registry = registry();
    let tool = |name: &str| echo_tool(name, Toolset::Mcp);
    let published = published_name("fs__a.b");
    for pair in [["fs__a.b", &published], [&published, "fs__a.b"]] {
        let refused = registry.set_server("fs", pair.map(tool).into());
        assert!(matches!(&refused[..], [RegistryError::Shadows { .. }]), "{refused:?}");
        assert!(registry.registered(pair[0]) && !registry.registered(pair[1]), "{pair:?}");
    }
}

#[test]
fn finds_by_both_spellings_and_bare_node_names() {
    let registry = registry();
    for name in ["tool::file_read", "tool__file_read", "Bash", "local__Bash", "read"] {
        assert!(registry.registered(name), "{name}");
    }
    registry.register(echo_tool("laptop__Bash", Toolset::Node)).unwrap();
    assert_eq!(registry.find("Bash").unwrap().name(), "local__Bash", "local comes first");
    for node in ["a", "b"] {
        registry.register(echo_tool("Other", Toolset::Node).on_node(node)).unwrap();
    }
    assert!(!registry.registered("Other"), "two nodes could answer");
}

#[test]
fn node_that_never_connected_is_reported_as_such() {
    let registry = registry();
    registry.set_node("laptop", NodeState::default(), Vec::new());
    registry.set_node("rd", NodeState::default(), vec![echo_tool("rd__Read", Toolset::Node)]);
    let view = registry.view(&ToolScope::default());
    let never = view.unknown("laptop__Bash");
    assert_eq!(never.code, RefusalCode::Unavailable);
    assert!(never.message.contains("\"laptop\" is offline; it never connected"), "{never:?}");
    let lacking = view.unknown("rd__Bash");
    assert_eq!(lacking.code, RefusalCode::UnknownTool);
    assert!(!lacking.hint.as_deref().unwrap().contains("local"), "{lacking:?}");
    assert_eq!(view.unknown("rd__Raed").hint.as_deref(), Some("did you mean rd__Read?"));
    assert!(view.unknown("Raed").hint.unwrap().starts_with("did you mean Read,"), "as it is called most");
    assert!(view.unknown("Bahs").hint.unwrap().contains("laptop"), "it may be there");
    let hidden = registry.view(&scope(Some(&["read"]), &[]));
    assert_eq!(hidden.unknown("rd__Read").code, RefusalCode::UnknownTool, "it was here, and is hidden");
    let sees = |allow: Option<&[&str]>, deny: &[&str]| {
        registry.never_here(&scope(allow, deny), "Bash").iter().any(|(node, _)| node == "laptop")
    };
    assert!(sees(None, &[]) && sees(Some(&["Bash"]), &[]) && sees(Some(&["laptop__*"]), &[]));
    assert!(!sees(Some(&["local__*"]), &[]) && !sees(None, &["Bash"]) && !sees(Some(&["basic"]), &[]));
    registry.set_node("laptop", NodeState { online: true, tags: Vec::new() }, Vec::new());
    assert!(!sees(None, &[]));
}

#[test]
fn scopes_take_names_globs_and_toolsets() {
    assert_eq!(names(&scope(Some(&["read", "Bash"]), &[])), ["local__Bash", "read"]);
    assert_eq!(names(&scope(Some(&["local__*"]), &["Bash"])), ["local__Read"]);
    assert_eq!(names(&scope(Some(&["guarded", "basic"]), &[])), ["tool::file_read", "read"]);
    assert_eq!(names(&scope(None, &["node", "tool__*"])), ["read"]);
    assert_eq!(names(&scope(Some(&[]), &[])), Vec::<String>::new());
    let published = published_name("fs__a.b");
    assert!(!scope(None, &[&published]).allows(&echo_tool("fs__a.b", Toolset::Mcp)), "as clients see it");
    assert!(scope(None, &[&published]).allows(&echo_tool("fs__a.c", Toolset::Mcp)));
}

#[test]
fn nested_scopes_allow_only_what_all_allow() {
    let narrow = scope(Some(&["local__*"]), &[]).within(scope(None, &["Bash"]));
    assert_eq!(names(&narrow), ["local__Read"]);
    assert_eq!(names(&narrow.clone().within(scope(Some(&["read"]), &[]))), Vec::<String>::new());
    assert_eq!(names(&narrow.read_only()), Vec::<String>::new(), "nothing here is read-only");
}

#[test]
fn scope_denies_by_effect() {
    for spelling in ["effect:runs_commands", "effect:runs-commands"] {
        let scope = scope(None, &[spelling]);
        assert_eq!(names(&scope), Vec::<String>::new(), "nobody knows what these do");
        assert!(scope.allows(&echo_tool("read", Toolset::Basic).read_only()));
    }
}

#[test]
fn a_scope_selects_by_property() {
    let scope = scope(Some(&["is:offered_to_agents"]), &[]);
    assert_eq!(names(&scope), Vec::<String>::new());
    assert!(scope.allows(&echo_tool("read", Toolset::Basic).offered_to_agents()));
}

/// A node says what its tools are called, not what they do.
#[test]
fn node_tools_with_a_standard_name_get_the_attributes_of_this_programs_own() {
    let registry = Registry::default();
    registry.set_standard_node_tools(vec![
        echo_tool("Read", Toolset::Node).read_only().offered_to_clients(),
        echo_tool("Write", Toolset::Node).effects(&[Effect::WritesFiles]),
        echo_tool("Process", Toolset::Node).capabilities(&[Capability::ShellExec]).polls(),
    ]);
    let remote = |name: &str, read_only| {
        let remote = RemoteTool {
            name: format!("box__{name}"),
            toolset: Toolset::Node,
            description: "x".into(),
            input_schema: serde_json::json!({"type": "object"}),
            output_schema: None,
            read_only,
            destructive: !read_only,
            idempotent: false,
            open_world: false,
            capabilities: vec![Capability::FilesystemRead],
        };
        Tool::remote(remote, |_, input| async move { Ok(Reply::Json(input)) })
    };
    let effects = |name: &str, read_only| {
        registry.set_node("box", NodeState::default(), vec![remote(name, read_only)]);
        registry.find(&format!("box__{name}")).unwrap().effect_list()
    };
    assert_eq!(effects("Read", true), []);
    assert_eq!(effects("Read", false), Effect::ALL, "it changes things, this program's does not");
    assert_eq!(effects("Write", false), [Effect::WritesFiles]);
    assert_eq!(effects("Write", true), [Effect::WritesFiles], "a node's word does not count");
    assert_eq!(effects("Process", false), Effect::ALL, "a command does anything");
    assert!(registry.find("box__Process").unwrap().is_polling());
    assert_eq!(effects("Deploy", true), Effect::ALL);
    assert_eq!(effects("Read", true), []);
    assert!(registry.find("box__Read").unwrap().has_property(Property::OfferedToClients));
    let offered = scope(Some(&["is:offered_to_clients"]), &[]);
    registry.set_node("new", NodeState::default(), Vec::new());
    let open = |bare: &str| !registry.never_here(&offered, bare).is_empty();
    assert!(open("Read") && !open("Write") && !open("Deploy"));
}

#[test]
fn unknown_selector_is_rejected() {
    for unknown in ["effect:flies", "is:blue"] {
        assert!(ToolScope::new(None, &[unknown.to_owned()]).is_err(), "{unknown}");
    }
    assert!(ToolScope::new(None, &["local__{Bash".to_owned()]).is_err());
}

#[test]
fn a_scope_hides_tools_from_resolve_too() {
    let registry = registry();
    let scope = scope(Some(&["read"]), &[]);
    assert!(registry.resolve(&scope, "read").is_some());
    for hidden in ["Bash", "local__Bash", "tool__file_read"] {
        assert!(registry.resolve(&scope, hidden).is_none(), "{hidden}");
    }
}
