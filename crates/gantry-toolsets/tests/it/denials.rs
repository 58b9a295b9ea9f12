//! A denial stops every tool, for every kind of caller, on every surface. It has no effect, and it
//! is recorded.

use std::path::Path;
use std::sync::Arc;

use gantry_tool::testing::{MemoryAudit, MemoryResults};
use gantry_tool::{
    Answer, Autonomy, Call, Condition, Decision, Gate, GateParts, GateSettings, Operator, Phase, Policy,
    Principal, RefusalCode, Rule, SensitivePaths, Surface,
};
use gantry_toolsets::testing::Bench;
use serde_json::json;

use crate::probes::valid_input;

const SURFACES: [Surface; 5] =
    [Surface::Cli, Surface::Http, Surface::Websocket, Surface::Mcp, Surface::Agent];

fn callers(workspace: &Path) -> Vec<Call> {
    let call = |principal, autonomy| {
        let mut call = Call::new(principal, Surface::Cli, workspace.to_owned());
        call.autonomy = autonomy;
        call
    };
    let agent = || Principal::Agent { id: "a".into() };
    vec![
        call(Principal::Operator, Autonomy::Supervised),
        call(agent(), Autonomy::Supervised),
        call(agent(), Autonomy::Guided),
        call(agent(), Autonomy::Autonomous),
        call(Principal::Mcp { client: "m".into() }, Autonomy::Supervised),
        call(Principal::Client { token: "t".into() }, Autonomy::Supervised),
        call(Principal::Scheduler, Autonomy::Guided),
    ]
}

/// Returns the bench's tools behind a gate with one additional rule.
fn gate_with(bench: &Bench, rule: Rule) -> (Gate, Arc<MemoryAudit>) {
    let audit = Arc::new(MemoryAudit::default());
    let policy = Policy::new(vec![rule], SensitivePaths::default(), vec![bench.data()]);
    let parts = GateParts::new(audit.clone(), Arc::new(MemoryResults::default()));
    (
        Gate::new(GateParts {
            registry: bench.gate.registry().clone(),
            settings: GateSettings::of(policy),
            ..parts
        }),
        audit,
    )
}

#[tokio::test]
async fn deny_and_ask_rules_stop_every_tool_for_every_caller_on_every_surface() {
    let bench = Bench::new();
    bench.write("plain.txt", "a secret that must stay\n");
    let before = gantry_testkit::files_below(&bench.workspace());
    for tool in bench.gate.registry().entries() {
        for decision in [Decision::Deny, Decision::Ask] {
            for template in callers(&bench.workspace()) {
                let rule = Rule::new("stop-it", tool.name(), decision, "as tested").unwrap();
                let (gate, audit) = gate_with(&bench, rule.for_principals(vec![template.principal.kind()]));
                for surface in SURFACES {
                    let call = Call { surface, ..template.clone() };
                    let context =
                        format!("{} {} {:?} {surface:?}", tool.name(), call.principal, call.autonomy);
                    let asks = decision == Decision::Ask && call.autonomy != Autonomy::Autonomous;
                    let expected = if asks { RefusalCode::ApprovalNeeded } else { RefusalCode::Denied };
                    let outcome =
                        gate.call(call, tool.name(), valid_input(tool.name(), &bench.workspace())).await;
                    let Answer::Refused(refusal) = outcome.answer else {
                        panic!("{context}: {:?}", outcome.answer)
                    };
                    assert_eq!(refusal.code, expected, "{context}: {refusal}");
                    assert!(refusal.message.ends_with("as tested (rule stop-it)"), "{context}: {refusal}");
                }
                check_record(&gate, &audit, tool.name(), &template.principal);
            }
        }
        assert_eq!(gantry_testkit::files_below(&bench.workspace()), before, "{}", tool.name());
    }
}

/// Checks for one audit record per surface and the same number in the metric.
fn check_record(gate: &Gate, audit: &MemoryAudit, tool: &str, principal: &Principal) {
    let records = audit.records();
    assert_eq!(records.len(), SURFACES.len(), "{tool} {principal}");
    for (record, _) in records {
        let facts = (record.phase, record.tool.as_str(), record.principal, record.rule.as_deref());
        assert_eq!(facts, (Phase::Refused, tool, principal.name(), Some("stop-it")));
        assert!(record.input.is_some() && record.error.is_some(), "{tool} {principal}");
    }
    let line = format!("tool_execution_total{{tool=\"{tool}\",status=\"denied\"}} {}\n", SURFACES.len());
    assert!(gate.metrics().render().contains(&line), "{tool}: {}", gate.metrics().render());
}

#[tokio::test]
async fn rule_for_another_caller_stops_nothing() {
    for tool in Bench::new().gate.registry().entries() {
        let bench = Bench::new();
        bench.write("plain.txt", "a secret that may go\n");
        let before = gantry_testkit::files_below(&bench.workspace());
        let rule = Rule::new("stop-it", "*", Decision::Deny, "as tested").unwrap();
        let (gate, _) = gate_with(&bench, rule.for_principals(vec![gantry_tool::PrincipalKind::Agent]));
        let input = valid_input(tool.name(), &bench.workspace());
        let outcome = gate.call(bench.operator_call(), tool.name(), input).await;
        let refused = matches!(outcome.answer, Answer::Refused(_));
        assert!(!refused, "{}: {:?}", tool.name(), outcome.answer);
        // This shows that the denials above prevented real effects.
        let changes = matches!(
            tool.name(),
            "local__Write"
                | "local__Bash"
                | "tool::file_write"
                | "tool::apply_patch"
                | "write"
                | "exec"
                | "bash"
                | "write_file"
                | "batch_files"
        );
        assert_eq!(
            gantry_testkit::files_below(&bench.workspace()) != before,
            changes,
            "{}: {:?}",
            tool.name(),
            outcome.answer
        );
    }
}

#[tokio::test]
async fn deny_rule_for_process_stops_input_to_a_running_command() {
    let bench = Bench::new();
    let started = json!({"command": "cat > typed", "background": true});
    let id = bench.call("Bash", started).await.unwrap()["sessionId"].clone();
    let typed = |action: &str, data: &str| json!({"action": action, "sessionId": id, "data": data});
    let by_action = Operator::regex("^(write|submit)$").unwrap();
    let by_data = Operator::Contains("rm ".into());
    let (gate_by_action, _) = gate_with(&bench, process_rule("action", by_action));
    let (gate, _) = gate_with(&bench, process_rule("data", by_data));
    for (gate, action) in
        [&gate_by_action, &gate].into_iter().flat_map(|gate| [(gate, "write"), (gate, "submit")])
    {
        let outcome = gate.call(bench.operator_call(), "Process", typed(action, "rm -r .")).await;
        let Answer::Refused(refusal) = outcome.answer else { panic!("{action}: {:?}", outcome.answer) };
        assert_eq!(refusal.code, RefusalCode::Denied, "{action}: {refusal}");
    }
    // Other data passes, and only that data arrives.
    let outcome = gate.call(bench.operator_call(), "Process", typed("submit", "ls")).await;
    assert!(matches!(outcome.answer, Answer::Success(_)), "{:?}", outcome.answer);
    bench.call("Process", json!({"action": "close", "sessionId": id})).await.unwrap();
    let ended =
        bench.call("Process", json!({"action": "poll", "sessionId": id, "waitMs": 20_000})).await.unwrap();
    assert_eq!(ended["running"], false, "{ended}");
    assert_eq!(bench.read("typed"), "ls\n");
}

fn process_rule(field: &str, operator: Operator) -> Rule {
    let rule = Rule::new("no-typing", "Process", Decision::Deny, "as tested").unwrap();
    rule.when(Condition::new(field, operator).unwrap())
}
