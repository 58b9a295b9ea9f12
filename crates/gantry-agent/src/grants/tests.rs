//! Tests of grants: what they cover, and what a question offers.

use gantry_protocol::GrantInfo;
use gantry_tool::{Call, Masker, Principal, Surface};
use serde_json::json;

use super::*;

fn asked(rule: &str, action: AskedAction) -> Approval {
    let call = Call::new(Principal::Agent { id: "a".into() }, Surface::Agent, "/w".into());
    let masker = Masker::default();
    let input = serde_json::to_value(&action).unwrap();
    Approval::new(&masker, &call, "local__Bash", rule, "it may", &input).about(&masker, action)
}

fn command(line: &str) -> AskedAction {
    AskedAction::Command {
        command: line.into(),
        machine: "local".into(),
        directory: None,
        escalation: None,
        sandboxed: true,
        not_shown: 0,
    }
}

fn connection(host: &str, port: u16) -> AskedAction {
    AskedAction::Connection { host: host.into(), port, command: None }
}

fn request(host: &str) -> AskedAction {
    AskedAction::WebRequest {
        method: "GET".into(),
        url: format!("https://{host}/x"),
        host: host.into(),
        sent: None,
        not_shown: 0,
    }
}

fn change(paths: &[&str]) -> AskedAction {
    AskedAction::FileChange {
        machine: "local".into(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        change: ChangeKind::Change,
        text: String::new(),
        not_shown: 0,
    }
}

fn grant(id: &str, rule: &str, scope: GrantScope) -> StoredGrant {
    StoredGrant {
        info: GrantInfo {
            id: id.into(),
            agent: "a".into(),
            session_key: "agent:a:main".into(),
            reach: GrantReach::Session,
            scope,
            label: String::new(),
            tool: "local__Bash".into(),
            rule: rule.into(),
            asked: String::new(),
            by: "operator".into(),
            created: 0,
            expires: i64::MAX,
        },
        fingerprint: "f".into(),
        exact: "e".into(),
    }
}

fn prefix(id: &str, line: &str) -> StoredGrant {
    grant(id, SUPERVISED, GrantScope::Prefix(line.split(' ').map(str::to_owned).collect()))
}

#[test]
fn prefix_covers_whole_lines_in_the_sandbox_only() {
    let grants = [prefix("1", "cargo test"), prefix("2", "tail")];
    let covered = |rule: &str, action| covering(&grants, &asked(rule, action), "");
    assert_eq!(covered(SUPERVISED, command("cargo test --workspace")), Some("1".into()));
    assert_eq!(covered(BORDER_RULE, command("cargo test | tail -5")), Some("1+2".into()));
    assert_eq!(covered(SUPERVISED, command("cargo test; rm x")), None);
    assert_eq!(covered("ask-cargo", command("cargo test")), None, "an operator's own rule");
    for change in [
        |action: &mut AskedAction| set(action, |_, _, sandboxed| *sandboxed = false),
        |action: &mut AskedAction| set(action, |machine, _, _| *machine = "laptop".into()),
        |action: &mut AskedAction| set(action, |_, escalation, _| *escalation = Some("needed".into())),
    ] {
        let mut action = command("cargo test");
        change(&mut action);
        assert_eq!(covered(SUPERVISED, action.clone()), None, "{action:?}");
    }
    let runner = [prefix("3", "env")];
    assert_eq!(covering(&runner, &asked(SUPERVISED, command("env rm x")), ""), None);
}

fn set(action: &mut AskedAction, change: impl Fn(&mut String, &mut Option<String>, &mut bool)) {
    if let AskedAction::Command { machine, escalation, sandboxed, .. } = action {
        change(machine, escalation, sandboxed);
    }
}

#[test]
fn no_grant_answers_the_flow_rule_or_an_escalation() {
    let question = asked(FLOW_RULE, command("cargo test"));
    for scope in [
        GrantScope::Call,
        GrantScope::Tool,
        GrantScope::Prefix(vec!["cargo".into()]),
        GrantScope::Host("example.com".into()),
    ] {
        for rule in [FLOW_RULE, ESCALATION_RULE, UNATTENDED_RULE, "sensitive-paths, flow-labels"] {
            let mut same = grant("1", rule, scope.clone());
            same.fingerprint.clone_from(&question.fingerprint);
            for action in [command("cargo test"), connection("example.com", 443)] {
                let mut question = asked(rule, action);
                question.fingerprint.clone_from(&same.fingerprint);
                assert_eq!(covering(std::slice::from_ref(&same), &question, "e"), None, "{rule} {scope:?}");
                assert!(offers(&question, &[], 24).is_empty());
                assert!(refused(&scope, rule).is_some());
            }
        }
    }
}

#[test]
fn host_covers_requests_and_connections_to_it() {
    let grants = [grant("1", EGRESS_RULE, GrantScope::Host("example.com".into()))];
    let covered = |rule: &str, action| covering(&grants, &asked(rule, action), "").is_some();
    assert!(covered(EGRESS_RULE, connection("example.com", 443)));
    assert!(covered(EGRESS_RULE, connection("example.com", 80)));
    assert!(covered(BORDER_RULE, request("example.com")));
    for other in [
        connection("example.com", 22),
        connection("example.com.evil.net", 443),
        connection("www.example.com", 443),
        request("example.com:8443"),
        command("curl https://example.com"),
    ] {
        assert!(!covered(EGRESS_RULE, other.clone()), "{other:?}");
    }
    assert!(!covered("sensitive-paths", request("example.com")));
    let loopback = [grant("2", EGRESS_RULE, GrantScope::Host(LOOPBACK_SERVICE.into()))];
    assert_eq!(covering(&loopback, &asked(EGRESS_RULE, connection(LOOPBACK_SERVICE, 443)), ""), None);
}

#[test]
fn path_covers_what_is_below_it() {
    let grants = [grant("1", BORDER_RULE, GrantScope::Path("/home/ann/notes".into()))];
    let covered = |action| covering(&grants, &asked(BORDER_RULE, action), "").is_some();
    assert!(covered(change(&["/home/ann/notes"])));
    assert!(covered(change(&["/home/ann/notes/a/b.md", "/home/ann/notes/c.md"])));
    for other in [
        change(&["/home/ann/notes2/a"]),
        change(&["/home/ann/notes/a", "/etc/passwd"]),
        change(&["/home/ann/notes/../.ssh/x"]),
        change(&["home/ann/notes/a"]),
        change(&[]),
    ] {
        assert!(!covered(other.clone()), "{other:?}");
    }
    let AskedAction::FileChange { paths, text, .. } = change(&["/home/ann/notes/a"]) else { panic!() };
    let remote = AskedAction::FileChange {
        machine: "laptop".into(),
        paths: paths.clone(),
        change: ChangeKind::Change,
        text: text.clone(),
        not_shown: 0,
    };
    let copy = AskedAction::FileChange {
        machine: "local".into(),
        paths,
        change: ChangeKind::Copy,
        text,
        not_shown: 0,
    };
    assert!(!covered(remote) && !covered(copy), "these paths are not resolved");
    let sensitive = asked("sensitive-paths", change(&["/home/ann/notes/.env"]));
    assert_eq!(covering(&grants, &sensitive, ""), None);
}

#[test]
fn call_and_tool_cover_what_they_name() {
    let mut question = asked(SUPERVISED, command("make"));
    question.fingerprint = "f".into();
    let call = [grant("1", SUPERVISED, GrantScope::Call)];
    assert!(covering(&call, &question, "").is_some());
    question.fingerprint = "other".into();
    assert!(covering(&call, &question, "e").is_some() && covering(&call, &question, "x").is_none());
    let egress = asked(EGRESS_RULE, connection("example.com", 443));
    assert_eq!(covering(&call, &egress, "e"), None, "a call may connect to many hosts");
    let tool = [grant("2", SUPERVISED, GrantScope::Tool)];
    assert!(covering(&tool, &question, "").is_some());
    assert_eq!(covering(&tool, &asked("sensitive-paths", command("make")), ""), None);
    let to = |to: &str| AskedAction::Message { to: to.into(), text: "hi".into(), not_shown: 0 };
    let recipient = [grant("3", SUPERVISED, GrantScope::Recipient("ann".into()))];
    assert!(covering(&recipient, &asked(SUPERVISED, to("ann")), "").is_some());
    assert_eq!(covering(&recipient, &asked(SUPERVISED, to("bob")), ""), None);
}

#[test]
fn a_question_offers_the_grants_that_make_sense() {
    let labels = |rule: &str, action, known: &[StoredGrant]| -> Vec<String> {
        offers(&asked(rule, action), known, 24).into_iter().map(|offer| offer.label).collect()
    };
    let exact = "this session: this exact command";
    let cargo = "this session: commands that start with \"cargo test\"";
    let tail = "this session: commands that start with \"tail\"";
    assert_eq!(labels(SUPERVISED, command("cargo test -q"), &[]), [exact, cargo]);
    assert_eq!(labels(SUPERVISED, command("cargo test | tail -5"), &[]), [exact, cargo, tail]);
    let known = [prefix("1", "cargo test")];
    assert_eq!(labels(SUPERVISED, command("cargo test | tail -5"), &known), [exact, tail]);
    for alone in ["sh -c x", "cargo test $X", "cargo test; python3 x.py", "curl -d password=hunter2222 x"] {
        assert_eq!(labels(SUPERVISED, command(alone), &[]), [exact], "{alone}");
    }
    let host = ["this session: the host example.com", "always (30 days): the host example.com"];
    assert_eq!(labels(EGRESS_RULE, connection("example.com", 443), &[]), host);
    assert_eq!(labels(BORDER_RULE, request("example.com"), &[]), host);
    assert_eq!(
        labels(BORDER_RULE, change(&["/home/ann/notes/a.md"]), &[]),
        [
            "this session: changes to /home/ann/notes and below it",
            "always (30 days): changes to /home/ann/notes and below it"
        ]
    );
    let near_root = labels(BORDER_RULE, change(&["/home/ann/.profile"]), &[]);
    assert_eq!(near_root[0], "this session: changes to /home/ann/.profile and below it");
    assert_eq!(
        labels("sensitive-paths", change(&["/home/ann/notes/.env"]), &[]),
        ["this session: this exact call"]
    );
    let other = AskedAction::Other { tool: "x".into(), input: json!({}), not_shown: 0 };
    assert_eq!(
        labels(SUPERVISED, other, &[]),
        ["this session: this exact call", "this session: any call of local__Bash"]
    );
}

#[test]
fn impossible_subjects_are_refused() {
    for scope in [
        GrantScope::Prefix(vec!["sh".into(), "-c".into()]),
        GrantScope::Prefix(Vec::new()),
        GrantScope::Path("relative".into()),
        GrantScope::Path("/".into()),
        GrantScope::Path("/a/../b".into()),
        GrantScope::Host("*.example.com".into()),
        GrantScope::Host(String::new()),
    ] {
        assert!(refused(&scope, SUPERVISED).is_some(), "{scope:?}");
    }
    assert_eq!(refused(&GrantScope::Host("example.com".into()), SUPERVISED), None);
    assert_eq!(refused(&GrantScope::Path("/home/ann/x".into()), BORDER_RULE), None);
}
