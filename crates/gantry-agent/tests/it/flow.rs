//! Runs that hold private data and untrusted content: calls that reach the network need an approval.

use std::sync::Arc;

use gantry_agent::{Agent, ApprovalDecision, FlowRule, GrantReach, GrantScope, SessionEvent};
use gantry_tool::{Autonomy, Phase};
use serde_json::json;
use tokio::sync::broadcast::Receiver;

use crate::world::{Setup, World, calls, final_text, results, says, settled, until};

fn script(request: &gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    match results(request).len() {
        0 => calls(&[("a", "page", json!({"text": "site"}))]),
        1 => calls(&[("b", "private", json!({"text": "diary"}))]),
        2 => calls(&[("c", "post", json!({"text": "secret"}))]),
        _ => says(results(request).last().unwrap()),
    }
}

fn agent(autonomy: Autonomy, flow: FlowRule) -> Setup {
    Setup { agent: Agent { autonomy, flow, ..Agent::default() }, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn autonomous_run_is_denied_and_the_denial_names_the_steps() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Ask), script).await;
    let end = world.ask("go").await;
    let text = final_text(&end);
    assert!(text.contains("denied") && text.contains("(page") && text.contains("(private"), "{text}");
    assert!(!world.notes().contains(&"secret".to_owned()));
    assert_denied(&world, "post");
    let requests = world.model.requests.lock().unwrap().clone();
    let page = &results(&requests[1])[0];
    assert!(page.starts_with("[untrusted ") && page.ends_with(']'), "{page}");
    world.stop().await;
}

/// Checks that the denial is in the audit log and in the metrics.
fn assert_denied(world: &World, tool: &str) {
    let lines: Vec<_> = world.audit.records().into_iter().map(|(record, _)| record).collect();
    let line = lines.iter().find(|record| record.phase == Phase::Refused).expect("an audit line");
    assert_eq!((line.tool.as_str(), line.rule.as_deref()), (tool, Some("flow-labels")));
    assert_eq!((line.status.as_deref(), line.principal.as_ref()), (Some("denied"), "agent:main"));
    assert_eq!(line.input, Some(json!({"text": "secret"})));
    let metrics = world.gate.metrics().render();
    let counted = format!("tool_execution_total{{tool=\"{tool}\",status=\"denied\"}} 1");
    assert!(metrics.contains(&counted), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_approval_is_audited() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Guided, FlowRule::Ask), script).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("go").await;
    answer_next(&world, &mut events, "post", "flow-labels", ApprovalDecision::No).await;
    let end = settled(&mut events, &message).await;
    assert!(final_text(&end).contains("the user said no"), "{end:?}");
    assert_denied(&world, "post");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_covers_exactly_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Guided, FlowRule::Ask), script).await;
    let key = world.key();
    let mut events = world.sessions.listen(&key);
    let message = world.send("go").await;
    let event = until(&mut events, |event| matches!(event, SessionEvent::Approval { .. })).await;
    let SessionEvent::Approval { question, .. } = event else { panic!() };
    assert_eq!((question.rule.as_str(), &question.input), ("flow-labels", &json!({"text": "secret"})));
    let wide = ApprovalDecision::Always {
        scope: GrantScope::Tool,
        until: i64::MAX,
        reach: GrantReach::Session,
        grant: None,
    };
    assert!(world.sessions.answer(&key, None, wide, "operator").await.is_err());
    world.sessions.answer(&key, None, ApprovalDecision::Yes, "operator").await.unwrap();
    assert_eq!(final_text(&settled(&mut events, &message).await), "noted secret");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_survive_compaction_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).len() {
        0 if crate::world::texts(request).last().is_some_and(|text| text.contains("post")) => {
            calls(&[("c", "post", json!({"text": "secret"}))])
        }
        0 => calls(&[("a", "page", json!({"text": "site"})), ("b", "private", json!({"text": "diary"}))]),
        _ => says(results(request).last().unwrap()),
    };
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Ask), script).await;
    world.ask("read").await;
    let mut events = world.sessions.listen(&world.key());
    world.command("/compact").await;
    until(&mut events, |event| matches!(event, SessionEvent::Compacted { .. })).await;
    world.stop().await;
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Ask), script).await;
    assert_eq!(world.sessions.status(&world.key()).await.unwrap().labels.len(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_rule_can_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Off), script).await;
    assert_eq!(final_text(&world.ask("go").await), "noted secret");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_search_is_untrusted_and_ends_with_private_data() {
    use gantry_model::{Block, Message, Reply, Role, StopReason, Usage};
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent { autonomy: Autonomy::Autonomous, native_web_search: true, ..Agent::default() };
    let script = |request: &gantry_model::Request| match (request.messages.len(), results(request).len()) {
        (1, _) => {
            let found = json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []});
            let call = ("b".to_owned(), "private".to_owned(), json!({"text": "diary"}));
            let content = vec![
                Block::Provider { provider: "scripted".into(), block: found },
                Block::ToolUse { id: call.0, name: call.1, input: call.2, malformed: None },
            ];
            let message = Message { role: Role::Assistant, content };
            let (usage, model) = (Usage::default(), "scripted".into());
            Ok(Reply { message, stop: StopReason::ToolUse, usage, model })
        }
        (_, 1) => calls(&[("c", "post", json!({"text": "secret"}))]),
        _ => says(results(request).last().unwrap()),
    };
    let world = World::open(folder.path(), Setup { agent, ..Setup::default() }, script).await;
    let end = world.ask("go").await;
    let text = final_text(&end);
    assert!(text.contains("denied") && text.contains("the model's own web search"), "{text}");
    let requests = world.model.requests.lock().unwrap().clone();
    let offered: Vec<bool> = requests.iter().map(|request| request.native_web_search).collect();
    assert_eq!(offered, [true, false, false]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_equal_pages_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).len() {
        9 => says("enough"),
        number => calls(&[(&format!("a{number}"), "page", json!({"text": "site"}))]),
    };
    let world = World::open(folder.path(), agent(Autonomy::Guided, FlowRule::Ask), script).await;
    let end = world.ask("go").await;
    let requests = world.model.requests.lock().unwrap().clone();
    let page = results(requests.last().unwrap()).pop().unwrap();
    assert!(page.starts_with("[untrusted ") && page.contains("same result each time"), "{page}");
    assert_eq!((requests.len(), matches!(end, SessionEvent::Final { .. })), (4, false), "{end:?}");
    world.stop().await;
}

const SUPERVISED: &str = "supervised-agent";

async fn answer_next(
    world: &World,
    events: &mut Receiver<Arc<SessionEvent>>,
    tool: &str,
    rule: &str,
    answer: ApprovalDecision,
) {
    let event = until(events, |event| matches!(event, SessionEvent::Approval { .. })).await;
    let SessionEvent::Approval { question, .. } = event else { panic!() };
    assert_eq!((question.tool.as_str(), question.rule.as_str()), (tool, rule));
    world.sessions.answer(&world.key(), Some(question.id), answer, "operator").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_rule_asks_about_each_call_once() {
    use gantry_model::Block;
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| {
        let given = results(request);
        let is_new = !matches!(
            request.messages.last().and_then(|last| last.content.last()),
            Some(Block::ToolResult { .. })
        );
        let id = format!("a{}", given.len());
        match (is_new, given.len()) {
            (true, 0) => calls(&[(&id, "page", json!({"text": "site"}))]),
            (false, 1) => calls(&[(&id, "private", json!({"text": "diary"}))]),
            (false, 2) | (true, _) => calls(&[(&id, "post", json!({"text": "secret"}))]),
            _ => says(given.last().unwrap()),
        }
    };
    let world = World::open(folder.path(), agent(Autonomy::Supervised, FlowRule::Ask), script).await;
    let key = world.key();
    let mut events = world.sessions.listen(&key);
    let message = world.send("go").await;
    answer_next(&world, &mut events, "page", SUPERVISED, ApprovalDecision::Yes).await;
    let asked = until(&mut events, |event| matches!(event, SessionEvent::Approval { .. })).await;
    let SessionEvent::Approval { question, .. } = asked else { panic!() };
    assert_eq!((question.rule.as_str(), question.offers.len()), ("flow-labels", 0));
    let always = ApprovalDecision::Always {
        scope: GrantScope::Call,
        until: i64::MAX,
        reach: GrantReach::Session,
        grant: None,
    };
    let refused = world.sessions.answer(&key, None, always, "operator").await.unwrap_err().to_string();
    assert!(refused.contains("asks about each call by itself"), "{refused}");
    // The yes also answers the rule for supervised agents, for this call.
    world.sessions.answer(&key, None, ApprovalDecision::Yes, "operator").await.unwrap();
    assert_eq!(final_text(&settled(&mut events, &message).await), "noted secret");
    let message = world.send("again").await;
    answer_next(&world, &mut events, "post", "flow-labels", ApprovalDecision::Yes).await;
    assert_eq!(final_text(&settled(&mut events, &message).await), "noted secret");
    assert_eq!(world.notes().iter().filter(|note| *note == "secret").count(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn always_of_another_rule_does_not_cover_the_flow_rule() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| {
        let given = results(request);
        let id = format!("a{}", given.len());
        match given.len() {
            0 | 3 => calls(&[(&id, "post", json!({"text": "secret"}))]),
            1 => calls(&[(&id, "page", json!({"text": "site"}))]),
            2 => calls(&[(&id, "private", json!({"text": "diary"}))]),
            _ => says(given.last().unwrap()),
        }
    };
    let world = World::open(folder.path(), agent(Autonomy::Supervised, FlowRule::Ask), script).await;
    let key = world.key();
    let mut events = world.sessions.listen(&key);
    let message = world.send("go").await;
    let always = || ApprovalDecision::Always {
        scope: GrantScope::Call,
        until: i64::MAX,
        reach: GrantReach::Session,
        grant: None,
    };
    for tool in ["post", "page"] {
        answer_next(&world, &mut events, tool, SUPERVISED, always()).await;
    }
    answer_next(&world, &mut events, "post", "flow-labels", ApprovalDecision::Yes).await;
    assert_eq!(final_text(&settled(&mut events, &message).await), "noted secret");
    world.stop().await;
}

const PICTURE: &str = "Look: ![x](http://canary.example/?diary)\n\nand `vec![1](x)`";

/// Returns the text that listeners receive, and the final event.
async fn stream(world: &World) -> (String, SessionEvent) {
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("go").await;
    let mut text = String::new();
    loop {
        match until(&mut events, |event| {
            matches!(event, SessionEvent::Text { .. }) || event.settles(&message)
        })
        .await
        {
            SessionEvent::Text { delta, .. } => text += &delta,
            settled => return (text, settled),
        }
    }
}

/// Reads a page and the diary, then answers with [`PICTURE`].
fn pictures(request: &gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    match results(request).len() {
        0 => calls(&[("a", "page", json!({"text": "site"}))]),
        1 => calls(&[("b", "private", json!({"text": "diary"}))]),
        _ => says(PICTURE),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_a_run_with_both_labels_become_text() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Ask), pictures).await;
    let (streamed, end) = stream(&world).await;
    assert_eq!(streamed, final_text(&end), "the journal has what was streamed");
    assert!(
        streamed.starts_with("Look: !\\[x](http://canary.example/?diary)\n\nand `vec![1](x)`"),
        "{streamed}"
    );
    assert!(streamed.contains("(page") && streamed.contains("(private"), "the steps are named: {streamed}");
    let journal = world.journal.page(&world.key().key, 0, 1_000).await.unwrap();
    assert!(!journal.iter().any(|event| event.data.contains("![x]")), "the journal has no image");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_other_runs_stay_unchanged() {
    let alone = |request: &gantry_model::Request| match results(request).len() {
        0 => calls(&[("b", "private", json!({"text": "diary"}))]),
        _ => says(PICTURE),
    };
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Ask), alone).await;
    let (streamed, end) = stream(&world).await;
    assert_eq!((streamed.as_str(), final_text(&end)), (PICTURE, PICTURE));
    world.stop().await;
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Off), pictures).await;
    let (streamed, end) = stream(&world).await;
    assert_eq!((streamed.as_str(), final_text(&end)), (PICTURE, PICTURE));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_in_questions_to_the_user_become_text() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).len() {
        0 => calls(&[("a", "page", json!({"text": "site"}))]),
        1 => calls(&[("b", "private", json!({"text": "diary"}))]),
        2 => calls(&[("c", "ask", json!({"text": PICTURE}))]),
        _ => says("done"),
    };
    let world = World::open(folder.path(), agent(Autonomy::Guided, FlowRule::Ask), script).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("go").await;
    let event = until(&mut events, |event| matches!(event, SessionEvent::Asked { .. })).await;
    let SessionEvent::Asked { asked, .. } = event else { panic!() };
    assert!(asked.questions[0].question.starts_with(r"Look: !\[x]"), "{asked:?}");
    world.sessions.reply(&world.key(), None, vec!["no".into()], "operator").await.unwrap();
    assert_eq!(final_text(&settled(&mut events, &message).await), "done");
    world.stop().await;
}

/// A call that fetches content and stores it itself. No label of the run says so before the call.
#[tokio::test(flavor = "multi_thread")]
async fn file_that_a_call_downloaded_is_untrusted_in_later_conversations() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).len() {
        0 => {
            let asked = crate::world::texts(request).last().cloned().unwrap_or_default();
            let tool = if asked.contains("download") { "download" } else { "open" };
            calls(&[("a", tool, json!({"text": "saved.txt"}))])
        }
        _ => says("done"),
    };
    let world = World::open(folder.path(), agent(Autonomy::Autonomous, FlowRule::Ask), script).await;
    world.ask("open it").await;
    assert_eq!(world.sessions.status(&world.key()).await.unwrap().labels.len(), 0);
    world.command("/new").await;
    world.ask("download it").await;
    world.command("/new").await;
    assert_eq!(world.sessions.status(&world.key()).await.unwrap().labels.len(), 0);
    world.ask("open it").await;
    let labels = world.sessions.status(&world.key()).await.unwrap().labels;
    assert!(labels.iter().any(|label| format!("{label:?}").to_lowercase().contains("untrusted")), "{labels:?}");
    world.stop().await;
}
