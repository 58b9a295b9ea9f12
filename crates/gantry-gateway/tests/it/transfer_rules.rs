//! The gateway's rules apply to both ends of a transfer and to each file of a directory, whatever rules the nodes have.

use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::TokenAdd;
use gantry_store::{Depth, NewTransfer};
use gantry_tool::{Condition, Decision, ImpliedQuestion, Operator, Rule, ToolError};

use crate::fleet::Fleet;

const LIMIT: Duration = Duration::from_secs(60);

fn rule(tool: &str, decision: Decision) -> Rule {
    Rule::new(&format!("on {tool}"), tool, decision, "because").unwrap()
}

fn on_path(tool: &str, decision: Decision, part: &str) -> Rule {
    rule(tool, decision).when(Condition::new("path", Operator::Contains(part.into())).unwrap())
}

fn text(result: Result<gantry_toolsets::Transferred, ToolError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_with_a_denied_file_is_not_sent() {
    let rules = vec![
        on_path("Read", Decision::Deny, "secret"),
        on_path("gsv__ReadFile", Decision::Deny, "secret"),
        on_path("b__Write", Decision::Deny, "keep/"),
        on_path("gsv__WriteFile", Decision::Ask, "keep/"),
    ];
    let fleet = Fleet::start_ruled(&["a", "b"], LIMIT, rules).await;
    for node in ["a", "local"] {
        for number in 0..600 {
            fleet.write(node, &format!("tree/{number:04}"), "x");
        }
        fleet.write(node, "tree/zz/secret.txt", "s");
        fleet.write(node, "plain/file", "x");
        fleet.write(node, "kept/keep/file", "x");
    }
    fleet.objects.put("agents/main/tree/a", "x", "text/plain").await.unwrap();
    fleet.objects.put("agents/main/tree/secret", "x", "text/plain").await.unwrap();
    let keys = async || {
        let listing = fleet.objects.list("", Depth::All).await.unwrap();
        listing.objects.into_iter().map(|object| object.key).collect::<Vec<_>>()
    };
    let before = keys().await;
    for (source, destination, expected) in [
        ("a:tree", "b:copy", "zz/secret.txt: denied: because (rule on Read)"),
        ("a:tree", "gsv:copy", "zz/secret.txt: denied: because (rule on Read)"),
        ("a:tree", "local:copy", "zz/secret.txt: denied: because (rule on Read)"),
        ("local:tree", "b:copy", "zz/secret.txt: denied: because (rule on Read)"),
        ("gsv:tree", "b:copy", "secret: denied: because (rule on gsv__ReadFile)"),
        ("a:kept", "b:copy", "keep/file: denied: because (rule on b__Write)"),
        ("a:kept", "gsv:copy", "keep/file: approval needed, and parts of a directory cannot be approved"),
        ("a:tree/zz/secret.txt", "b:copy", "denied: because (rule on Read)"),
        ("a:plain", "b:keep/x", "denied: because (rule on b__Write)"),
    ] {
        let said = text(fleet.transfer(source, destination).await);
        assert!(said.contains(expected), "{source} → {destination}: {said}");
        assert_eq!(fleet.names("b"), [""; 0], "{source} → {destination}: nothing is written");
        assert_eq!(keys().await, before, "{source} → {destination}: nothing is stored");
    }
    assert!(!fleet.at("local", "copy").exists());
    for (source, destination) in
        [("a:plain", "b:copy"), ("a:kept", "local:copy"), ("local:plain", "gsv:copy")]
    {
        let done = fleet.transfer(source, destination).await.unwrap();
        assert_eq!(done.files, Some(1), "{source} → {destination}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approved_rule_is_not_asked_again_on_the_gateways_own_machine() {
    let rules = vec![rule("local__Read", Decision::Ask), on_path("local__Write", Decision::Ask, "x")];
    let fleet = Fleet::start_ruled(&["a"], LIMIT, rules).await;
    fleet.write("local", "file", "x");
    let said = text(fleet.transfer("local:file", "a:file").await);
    assert!(said.contains("approval needed") && said.contains("(rule on local__Read)"), "{said}");
    let approved = |tool: &str| ImpliedQuestion { tool: tool.into(), rule: format!("on {tool}") };
    let mut call = fleet.call();
    call.approved = vec![approved("local__Read")];
    fleet.transfer_as(call.clone(), "local:file", "a:file").await.unwrap();
    let said = text(fleet.transfer_as(call.clone(), "local:file", "local:x").await);
    assert!(said.contains("(rule on local__Write)"), "an approved read does not approve a write: {said}");
    call.approved.push(approved("local__Write"));
    fleet.transfer_as(call, "local:file", "local:x").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_transfer_keeps_the_identity_of_its_caller() {
    let rules = vec![
        rule("b__Write", Decision::Deny).for_agents(vec!["persona".into()]),
        rule("away__Write", Decision::Deny),
    ];
    let fleet = Fleet::start_ruled(&["a", "b"], LIMIT, rules).await;
    fleet.write("a", "file", "x");
    for name in ["good", "revoked"] {
        let new =
            TokenAdd { name: name.into(), tools: None, agents: Vec::new(), read_only: false, expires: None };
        fleet.database.add_client_token(&new, 1).await.unwrap();
    }
    fleet.database.revoke_client_token("revoked", 2).await.unwrap();
    let identities = [
        ("free", "b", None),
        ("bound", "b", Some(r#"{"alsoAs": ["persona"]}"#)),
        ("torn", "b", Some("{")),
        ("good", "b", Some(r#"{"token": "good"}"#)),
        ("revoked", "b", Some(r#"{"token": "revoked"}"#)),
        // The rules are checked before the wait for an offline node.
        ("denied", "away", None),
    ];
    for (id, node, standing) in identities {
        let new = NewTransfer {
            id: id.into(),
            agent: "main".into(),
            principal: "operator".into(),
            autonomy: "supervised".into(),
            source: "a:file".into(),
            destination: format!("{node}:{id}"),
            standing: standing.map(str::to_owned),
        };
        fleet.database.insert_transfer(&new, 1).await.unwrap();
    }
    assert_eq!(fleet.resume().await.unwrap(), 6);
    for _ in 0..600 {
        if fleet.database.unfinished_transfers().await.unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let error = async |id: &str| fleet.database.transfer(id).await.unwrap().unwrap().error;
    assert_eq!(error("free").await, None);
    // The gateway does not know how far it was, so files may have arrived.
    let denied = "denied: because (rule on b__Write); files that had arrived complete before are kept";
    assert_eq!(error("bound").await.as_deref(), Some(denied));
    assert!(error("torn").await.is_some_and(|error| error.contains("cannot restore the caller")));
    assert_eq!(error("good").await, None);
    assert_eq!(
        error("revoked").await.as_deref(),
        Some("the token that started the transfer is no longer valid")
    );
    assert!(error("denied").await.is_some_and(|error| error.contains("(rule on away__Write)")));
    assert_eq!(fleet.names("b"), ["free", "good"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_transfer_waits_until_unfinished_transfers_are_resumed() {
    let fleet = Arc::new(Fleet::start(&["a", "b"]).await);
    fleet.write("a", "file", "x");
    let unfinished = fleet.transfers.unfinished().await.unwrap();
    let asking = fleet.clone();
    let asks = tokio::spawn(async move { asking.transfer("a:file", "b:file").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        !asks.is_finished() && fleet.names("b").is_empty(),
        "it does not start before the others are resumed"
    );
    unfinished.resume(&*fleet.gateway).await.unwrap();
    asks.await.unwrap().unwrap();
}
