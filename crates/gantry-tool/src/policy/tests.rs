use super::*;
use crate::call::{Principal, Surface};
use crate::gate::approval::{BORDER_RULE, FLOW_RULE};
use crate::registry::model_name::published_name;
use crate::testing::echo_tool;
use crate::tool::Toolset;
use serde_json::json;

fn rule(tool: &str, decision: Decision) -> Rule {
    Rule::new(&format!("rule-{tool}"), tool, decision, "because").unwrap()
}

fn condition(path: &str, operator: Operator) -> Condition {
    Condition::new(path, operator).unwrap()
}

fn decide(
    policy: &Policy,
    principal: Principal,
    tool: &str,
    input: Value,
    touches: &[&str],
) -> (Decision, String) {
    let tool = echo_tool(tool, Toolset::Node);
    let call = Call::new(principal, Surface::Cli, "/w".into());
    let touches: Vec<_> = touches.iter().map(|path| Touch::read(path.into())).collect();
    let verdict = policy.decide(&Request {
        call: &call,
        subject: Subject::of(&tool),
        input: &input,
        touches: &touches,
        crossings: &[],
    });
    (verdict.decision, verdict.rule)
}

fn agent() -> Principal {
    Principal::Agent { id: "a".into() }
}

#[test]
fn the_first_match_wins_and_patterns_take_stars() {
    let policy = Policy::new(
        vec![
            rule("local__R*", Decision::Allow),
            rule("*", Decision::Deny),
            rule("local__Bash", Decision::Allow),
        ],
        SensitivePaths::default(),
        vec![],
    );
    assert_eq!(decide(&policy, Principal::Operator, "local__Read", json!({}), &[]).0, Decision::Allow);
    assert_eq!(decide(&policy, Principal::Operator, "local__Bash", json!({}), &[]).0, Decision::Deny);
}

#[test]
fn a_rule_for_a_bare_node_tool_binds_every_node() {
    let policy = Policy::new(vec![rule("Bash", Decision::Deny)], SensitivePaths::default(), vec![]);
    assert_eq!(decide(&policy, Principal::Operator, "laptop__Bash", json!({}), &[]).0, Decision::Deny);
}

#[test]
fn rules_that_name_a_node_are_known() {
    let rules = ["box__Bash", "box__*", "box::Read", "Bash", "boxes__Bash", "*", "my-box__Bash"];
    let rules = rules.map(|tool| rule(tool, Decision::Deny)).to_vec();
    let policy = Policy::new(rules, SensitivePaths::default(), vec![]);
    assert_eq!(policy.rules_about_node("box"), ["rule-box__Bash", "rule-box__*", "rule-box::Read"]);
    assert_eq!(policy.rules_about_node("my-box"), ["rule-my-box__Bash"]);
}

#[test]
fn call_for_another_agent_obeys_the_rules_of_both() {
    let of = |agent: &str, tool, decision| rule(tool, decision).for_agents(vec![agent.to_owned()]);
    let rules = vec![of("parent", "write", Decision::Deny), of("persona", "read", Decision::Ask)];
    let policy = Policy::new(rules, SensitivePaths::default(), vec![]);
    for (agent, policy_agents) in [("parent", "persona"), ("persona", "parent")] {
        let mut call = Call::new(Principal::Agent { id: agent.into() }, Surface::Agent, "/w".into());
        (call.autonomy, call.policy_agents) = (Autonomy::Guided, vec![policy_agents.into()]);
        let decide = |name: &str| {
            let tool = echo_tool(name, Toolset::Basic);
            policy
                .decide(&Request {
                    call: &call,
                    subject: Subject::of(&tool),
                    input: &json!({}),
                    touches: &[],
                    crossings: &[],
                })
                .decision
        };
        assert_eq!((decide("write"), decide("read")), (Decision::Deny, Decision::Ask), "{agent}");
        assert_eq!(decide("exec"), Decision::Allow);
    }
}

#[test]
fn rule_for_a_bare_name_does_not_match_mcp_tools() {
    let allow = rule("Read", Decision::Allow);
    assert!(allow.is_about(&echo_tool("box__Read", Toolset::Node)));
    assert!(!allow.is_about(&echo_tool("evil__Read", Toolset::Mcp)));
    assert!(rule("evil__*", Decision::Deny).is_about(&echo_tool("evil__Read", Toolset::Mcp)));
}

#[test]
fn a_rule_binds_a_tool_by_every_spelling_of_its_name() {
    let guarded = echo_tool("tool::file_read", Toolset::Guarded);
    for pattern in ["tool::file_read", "tool__file_read", "tool__*", "tool::file_*", "tool_*", "tool:*"] {
        assert!(rule(pattern, Decision::Deny).is_about(&guarded), "{pattern}");
    }
    let theirs = echo_tool("p__a::b", Toolset::Mcp);
    for pattern in ["p__a::b", "p__a__b", "p__a_*", "p__a:*", "p::a::b"] {
        assert!(rule(pattern, Decision::Deny).is_about(&theirs), "{pattern}");
    }
    let dotted = echo_tool("p__a.b", Toolset::Mcp);
    assert!(rule(&published_name("p__a.b"), Decision::Deny).is_about(&dotted), "as clients see it");
    for pattern in ["a__b", "p__a", "tool__file_write", "file_read"] {
        let rule = rule(pattern, Decision::Allow);
        assert!(![&guarded, &theirs, &dotted].iter().any(|tool| rule.is_about(tool)), "{pattern}");
    }
}

#[test]
fn conditions_test_dotted_paths() {
    let cases = [
        (condition("command", Operator::Contains("rm ".into())), json!({"command": "rm -rf x"}), true),
        (condition("command", Operator::Contains("rm ".into())), json!({"command": "ls"}), false),
        (condition("env.A", Operator::Equals(json!("1"))), json!({"env": {"A": "1"}}), true),
        (condition("env.A", Operator::Equals(json!(1))), json!({"env": {"A": "1"}}), false),
        (condition("argv.0", Operator::StartsWith("gi".into())), json!({"argv": ["git", "x"]}), true),
        (condition("argv", Operator::Equals(json!("--force"))), json!({"argv": ["git", "--force"]}), true),
        (condition("command", Operator::regex("^sudo\\b").unwrap()), json!({"command": "sudo x"}), true),
        (condition("timeout", Operator::regex("^9").unwrap()), json!({"timeout": 900}), true),
        (condition("missing.deep", Operator::Contains(String::new())), json!({"missing": 1}), false),
    ];
    for (condition, input, expected) in cases {
        let policy = Policy::new(
            vec![rule("*", Decision::Deny).when(condition.clone())],
            SensitivePaths::default(),
            vec![],
        );
        let denied =
            decide(&policy, Principal::Operator, "local__Bash", input.clone(), &[]).0 == Decision::Deny;
        assert_eq!(denied, expected, "{condition:?} on {input}");
    }
    assert!(Operator::regex("(").is_err() && Condition::new("", Operator::Contains("x".into())).is_err());
}

#[test]
fn the_data_directory_is_closed_before_any_rule() {
    let policy =
        Policy::new(vec![rule("*", Decision::Allow)], SensitivePaths::default(), vec!["/data".into()]);
    let (decision, rule) =
        decide(&policy, Principal::Operator, "local__Read", json!({}), &["/data/audit.key"]);
    assert_eq!((decision, rule.as_str()), (Decision::Deny, "closed-data-directory"));
    assert_eq!(
        decide(&policy, Principal::Operator, "local__Read", json!({}), &["/database"]).0,
        Decision::Allow
    );
}

#[test]
fn sensitive_paths_ask_for_agents_and_mcp_clients_whichever_tool() {
    let policy = Policy::default();
    for principal in [agent(), Principal::Mcp { client: "c".into() }] {
        let (decision, rule) = decide(&policy, principal, "local__Read", json!({}), &["/h/.ssh/id_rsa"]);
        assert_eq!((decision, rule.as_str()), (Decision::Ask, "sensitive-paths"));
    }
    assert_eq!(decide(&policy, Principal::Operator, "x", json!({}), &["/h/.ssh/id_rsa"]).0, Decision::Allow);
}

#[test]
fn only_the_operator_reads_the_memory_of_other_programs() {
    let policy = Policy::default();
    let as_who = |principal, path| decide(&policy, principal, "local__Read", json!({}), &[path]);
    let client = || Principal::Client { token: "c".into() };
    let (decision, rule) = as_who(client(), "/proc/12/environ");
    assert_eq!((decision, rule.as_str()), (Decision::Deny, "other-programs"));
    assert_eq!(as_who(client(), "/h/.netrc").0, Decision::Allow);
    assert_eq!(as_who(Principal::Operator, "/proc/12/environ").0, Decision::Allow);
}

#[test]
fn supervised_agent_needs_approval_for_changes() {
    let destructive = echo_tool("local__Bash", Toolset::Node);
    let reading = echo_tool("local__Read", Toolset::Node).read_only();
    for (autonomy, tool, expected) in [
        (Autonomy::Supervised, &destructive, Decision::Ask),
        (Autonomy::Supervised, &reading, Decision::Allow),
        (Autonomy::Guided, &destructive, Decision::Allow),
        (Autonomy::Autonomous, &destructive, Decision::Allow),
    ] {
        let mut call = Call::new(agent(), Surface::Agent, "/w".into());
        call.autonomy = autonomy;
        let request = Request {
            call: &call,
            subject: Subject::of(tool),
            input: &json!({}),
            touches: &[],
            crossings: &[],
        };
        assert_eq!(Policy::default().decide(&request).decision, expected, "{autonomy:?} {tool:?}");
    }
}

#[test]
fn rules_can_be_limited_to_principals_and_agents() {
    let only_agents = rule("*", Decision::Deny).for_principals(vec![PrincipalKind::Agent]);
    let only_b = rule("*", Decision::Deny).for_agents(vec!["b".into()]);
    let policy = Policy::new(vec![only_b], SensitivePaths::default(), vec![]);
    assert_eq!(decide(&policy, Principal::Agent { id: "b".into() }, "x", json!({}), &[]).0, Decision::Deny);
    assert_eq!(decide(&policy, Principal::Operator, "x", json!({}), &[]).0, Decision::Allow);
    let policy = Policy::new(vec![only_agents], SensitivePaths::default(), vec![]);
    assert_eq!(decide(&policy, Principal::Operator, "x", json!({}), &[]).0, Decision::Allow);
}

/// Decides on the call of an agent that crosses the border.
fn at_the_border(
    policy: &Policy,
    autonomy: Autonomy,
    labelled: bool,
    crossings: &[Crossing],
) -> (Decision, String) {
    let tool = echo_tool("call", Toolset::Basic).read_only();
    let mut call = Call::new(agent(), Surface::Agent, "/w".into());
    call.autonomy = autonomy;
    call.holds_both = labelled.then(|| "the conversation holds both".to_owned());
    let touches: Vec<Touch> = crossings
        .iter()
        .filter_map(|crossing| match crossing {
            Crossing::Write(path) => Some(Touch::write(path.clone())),
            _ => None,
        })
        .collect();
    let input = json!({});
    let verdict = policy.decide(&Request {
        call: &call,
        subject: Subject::of(&tool),
        input: &input,
        touches: &touches,
        crossings,
    });
    (verdict.decision, verdict.rule)
}

fn host(name: &str, known: bool) -> Crossing {
    Crossing::Host { host: name.into(), known }
}

#[test]
fn unknown_hosts_outside_writes_and_foreign_tools_are_asked_at_the_border() {
    let policy = Policy::default();
    let decide = |crossings: &[Crossing]| at_the_border(&policy, Autonomy::Guided, false, crossings);
    let ask = (Decision::Ask, BORDER_RULE.to_owned());
    let change = Crossing::Change { what: "delete an event".into() };
    for asked in [host("new.example", false), Crossing::Foreign, Crossing::Write("/etc/x".into()), change] {
        assert_eq!(decide(std::slice::from_ref(&asked)), ask, "{asked:?}");
        assert_eq!(at_the_border(&policy, Autonomy::Autonomous, false, &[asked]).0, Decision::Ask);
    }
    for free in [host("known.example", true), Crossing::Network, Crossing::Write("/w/x".into())] {
        assert_eq!(decide(std::slice::from_ref(&free)).0, Decision::Allow, "{free:?}");
    }
    assert_eq!(decide(&[Crossing::Write("/w/../etc/x".into())]), ask, "a path as written");
    assert_eq!(decide(&[host("known.example", true), host("new.example", false)]), ask);
}

#[test]
fn labelled_run_is_asked_about_every_crossing() {
    let policy = Policy::default();
    let crossings = [
        host("known.example", true),
        host("new.example", false),
        Crossing::Network,
        Crossing::Foreign,
        Crossing::Change { what: "delete an event".into() },
        Crossing::Write("/etc/x".into()),
    ];
    for autonomy in [Autonomy::Supervised, Autonomy::Guided, Autonomy::Autonomous] {
        for crossing in &crossings {
            let decided = at_the_border(&policy, autonomy, true, std::slice::from_ref(crossing));
            assert_eq!(decided, (Decision::Ask, FLOW_RULE.to_owned()), "{autonomy:?} {crossing:?}");
        }
        assert_eq!(at_the_border(&policy, autonomy, true, &[]).0, Decision::Allow, "inside nothing is asked");
    }
}

#[test]
fn only_a_rule_for_exact_hosts_or_paths_counts_in_a_labelled_run() {
    let allow = || rule("call", Decision::Allow);
    let decide = |rule: Rule, labelled, crossing: Crossing| {
        let policy = Policy::new(vec![rule], SensitivePaths::default(), vec![]);
        at_the_border(&policy, Autonomy::Guided, labelled, &[crossing]).0
    };
    let (a, b) = (|| host("a.example", false), || host("b.example", false));
    let hosts = || allow().for_hosts(vec!["a.example".into()]);
    assert_eq!(decide(hosts(), false, a()), Decision::Allow);
    assert_eq!(decide(hosts(), false, b()), Decision::Ask);
    assert_eq!(decide(hosts(), true, a()), Decision::Ask);
    assert_eq!(decide(hosts().even_labelled().unwrap(), true, a()), Decision::Allow);
    assert_eq!(decide(hosts().even_labelled().unwrap(), true, b()), Decision::Ask);
    assert_eq!(decide(allow(), true, a()), Decision::Ask, "a rule for everything");
    assert_eq!(decide(rule("call", Decision::Deny), true, a()), Decision::Deny, "nobody is asked in vain");
    let paths = || allow().for_paths(vec!["/srv/out".into()]).even_labelled().unwrap();
    assert_eq!(decide(paths(), true, Crossing::Write("/srv/out/a".into())), Decision::Allow);
    assert_eq!(decide(paths(), true, Crossing::Write("/srv/outer".into())), Decision::Ask);
    assert_eq!(decide(paths(), true, a()), Decision::Ask);
    assert!(allow().even_labelled().is_err());
    assert!(rule("call", Decision::Deny).for_hosts(vec!["a".into()]).even_labelled().is_err());
}
