//! Tests of the names and attributes of all tools.

use gantry_tool::{Effect, Property, Tool, ToolScope};

use crate::testing::Bench;

/// Returns a bench with every setting that a tool needs, and with the agents' tools.
fn bench() -> Bench {
    let bench = Bench::with(|parts| {
        parts.settings.web.search.searxng_url = Some("https://searx.example".into());
    });
    for tool in gantry_agent::tools(None).into_iter().chain(gantry_flow::tools(None)) {
        bench.gate.registry().register(tool).unwrap();
    }
    bench
}

fn bare(tool: &Tool) -> &str {
    tool.name().strip_prefix("local__").unwrap_or(tool.name())
}

/// Returns the bare names of the tools that match, sorted.
fn those(holds: impl Fn(&Tool) -> bool) -> String {
    let entries = bench().gate.registry().entries();
    let mut names: Vec<&str> = entries.iter().filter(|tool| holds(tool)).map(|tool| bare(tool)).collect();
    names.sort_unstable();
    names.join(" ")
}

fn having(property: Property) -> String {
    those(|tool| tool.has_property(property))
}

#[test]
fn names_match_the_created_tools() {
    let bench = bench();
    let entries = bench.gate.registry().entries();
    let mut made: Vec<&str> = entries.iter().map(|tool| bare(tool)).collect();
    let mut named: Vec<&str> =
        crate::names().chain(gantry_agent::tool_names()).chain(gantry_flow::tool_names()).collect();
    assert_eq!(named.len(), 48);
    made.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, made);
}

#[test]
fn default_selections_are_complete() {
    assert_eq!(
        having(Property::OfferedToClients),
        "Bash Edit Glob Grep Process Read Write result_read tool::web_fetch tool::web_search"
    );
    assert_eq!(
        having(Property::OfferedToAgents),
        "Bash Edit Glob Grep Process Read Write ask_user capture_process gsv__ConfigGet gsv__Cron gsv__DeleteFile \
         gsv__EditFile gsv__LogsGet gsv__ReadFile gsv__SessionSend gsv__SessionsList gsv__Transfer gsv__WriteFile \
         http_request memory_recall memory_store plan_task promote_process result_read run_pipeline spawn_agent \
         task_create task_list task_update tool::web_fetch tool::web_search"
    );
}

#[test]
fn collectors_have_the_tools_of_the_seed() {
    assert_eq!(
        having(Property::Collects),
        "ask_user http_request memory_recall memory_store read_file web_research"
    );
}

#[test]
fn child_starting_tools_declare_whether_depth_is_bounded() {
    assert_eq!(
        having(Property::StartsChildren),
        "gsv__Cron run_pipeline spawn_agent task_create task_update tool::agent_spawn"
    );
    assert_eq!(
        having(Property::StartsUnboundedChildren),
        "gsv__Cron run_pipeline spawn_agent task_create task_update"
    );
}

#[test]
fn isolated_children_have_no_storage_and_no_sessions() {
    assert_eq!(
        having(Property::HoldsOwnerData),
        "capture_process gsv__Cron gsv__DeleteFile gsv__EditFile gsv__ReadFile gsv__SessionSend gsv__SessionsList \
         gsv__Transfer gsv__WriteFile plan_task promote_process run_pipeline task_create task_list task_update \
         tool::agent_send"
    );
}

#[test]
fn gateway_without_a_machine_has_the_tools_that_need_none() {
    assert_eq!(
        those(|tool| !tool.needs_machine()),
        "ask_user capture_process gsv__ConfigGet gsv__Cron gsv__DeleteFile gsv__EditFile gsv__LogsGet gsv__ReadFile \
         gsv__SessionSend gsv__SessionsList gsv__Transfer gsv__WriteFile memory_recall memory_store plan_task \
         promote_process result_read run_pipeline spawn_agent task_create task_list task_update tool::agent_send \
         tool::agent_spawn"
    );
}

#[test]
fn polling_and_resumable_tools_are_marked() {
    assert_eq!(those(Tool::is_polling), "Process gsv__LogsGet");
    assert_eq!(
        those(Tool::is_resumable),
        "capture_process plan_task promote_process run_pipeline spawn_agent tool::agent_send tool::agent_spawn"
    );
}

#[test]
fn every_tool_declares_its_effects() {
    let with = |effect: Effect| those(|tool| tool.has_effect(effect));
    assert_eq!(with(Effect::RunsCommands), "Bash Process bash exec tool::shell_exec");
    assert_eq!(
        with(Effect::WritesFiles),
        "Bash Edit Process Write bash batch_files exec gsv__DeleteFile gsv__EditFile gsv__Transfer \
         gsv__WriteFile tool::apply_patch tool::file_write tool::shell_exec write write_file"
    );
    assert_eq!(
        with(Effect::ReachesNetwork),
        "Bash Process bash exec http_request tool::shell_exec tool::web_fetch tool::web_search web_research"
    );
    assert_eq!(with(Effect::SendsMessages), "gsv__SessionSend tool::agent_send");
    assert_eq!(
        with(Effect::StartsAgents),
        "gsv__Cron run_pipeline spawn_agent task_create task_update tool::agent_spawn"
    );
}

/// The roles deny by effect exactly the tools that their lists of names denied before.
#[test]
fn denied_effects_deny_the_tools_that_have_them() {
    let deny = |effects: &[Effect]| {
        let deny: Vec<String> = effects.iter().map(|effect| effect.selector()).collect();
        let scope = ToolScope::new(None, &deny).unwrap();
        those(|tool| scope.allows(tool))
    };
    let acts = [Effect::RunsCommands, Effect::SendsMessages, Effect::StartsAgents];
    assert_eq!(
        deny(&[&acts[..], &[Effect::WritesFiles]].concat()),
        "Glob Grep Read api_setup ask_user capture_process gsv__ConfigGet gsv__LogsGet gsv__ReadFile \
         gsv__SessionsList http_request memory_recall memory_store plan_task promote_process read read_file \
         result_read task_list tool::file_list tool::file_read tool::web_fetch tool::web_search web_research"
    );
    assert_eq!(
        deny(&acts),
        "Edit Glob Grep Read Write api_setup ask_user batch_files capture_process gsv__ConfigGet gsv__DeleteFile \
         gsv__EditFile gsv__LogsGet gsv__ReadFile gsv__SessionsList gsv__Transfer gsv__WriteFile \
         http_request memory_recall memory_store plan_task promote_process read read_file result_read task_list \
         tool::apply_patch \
         tool::file_list tool::file_read tool::file_write tool::web_fetch tool::web_search web_research \
         write write_file"
    );
}
