//! Tests through a real server on loopback that checks each request.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod anthropic;
mod conversations;
mod failures;
mod openai;
mod splits;

use std::time::Duration;

use gantry_model::testing::ScriptedServer;
use gantry_model::{
    Block, Limits, Message, ModelError, Models, ProviderKind, Reply, Request, Role, StreamEvent, ToolSpec,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// `Outcome` is the result of a request: all events, and the answer or the error.
struct Outcome {
    events: Vec<StreamEvent>,
    answer: Result<Reply, ModelError>,
}

async fn ask(models: &Models, request: &Request) -> Outcome {
    ask_within(models, request, Limits::within(Duration::from_secs(20))).await
}

async fn ask_within(models: &Models, request: &Request, limits: Limits) -> Outcome {
    let mut events = Vec::new();
    let cancel = CancellationToken::new();
    let answer = models.answer(request, limits, &cancel, &mut |event| events.push(event)).await;
    Outcome { events, answer }
}

impl Outcome {
    fn reply(&self) -> &Reply {
        self.answer.as_ref().unwrap()
    }

    fn error(&self) -> &ModelError {
        self.answer.as_ref().unwrap_err()
    }

    /// Returns the text since the last restart.
    fn text(&self) -> String {
        let mut text = String::new();
        for event in &self.events {
            match event {
                StreamEvent::Text(piece) => text.push_str(piece),
                StreamEvent::Restart { .. } => text.clear(),
                _ => {}
            }
        }
        text
    }
}

fn request(text: &str) -> Request {
    Request {
        model: "scripted-1".into(),
        messages: vec![Message::user(text)],
        max_tokens: 500,
        ..Request::default()
    }
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: format!("Does {name}."),
        input_schema: json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        eager_input_streaming: true,
    }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse { id: id.into(), name: name.into(), input, malformed: None }
}

fn result(id: &str, text: &str) -> Block {
    Block::ToolResult { id: id.into(), content: vec![Block::text(text)], is_error: false }
}

fn assistant(content: Vec<Block>) -> Message {
    Message { role: Role::Assistant, content }
}

fn user(content: Vec<Block>) -> Message {
    Message { role: Role::User, content }
}

fn calls(message: &Message) -> Vec<(String, String, Value, Option<String>)> {
    let calls = message.content.iter().filter_map(|block| match block {
        Block::ToolUse { id, name, input, malformed } => {
            Some((id.clone(), name.clone(), input.clone(), malformed.clone()))
        }
        _ => None,
    });
    calls.collect()
}

/// Continues the conversation with the reply and one result per call.
fn continue_with(request: &mut Request, reply: &Reply) {
    request.messages.push(reply.message.clone());
    let results: Vec<Block> = calls(&reply.message).iter().map(|(id, ..)| result(id, "done")).collect();
    if !results.is_empty() {
        request.messages.push(user(results));
    }
}

fn assert_clean(server: &ScriptedServer) {
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(server.left(), 0, "turns that nobody asked for");
}

/// Returns the cases of a long suite, and a runner that repeats them for the same seed.
fn runner(whole: u32) -> proptest::test_runner::TestRunner {
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let seed = gantry_testkit::seed_or(20_261_116);
    let cases = gantry_testkit::scaled(whole, whole / 15);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

const BOTH: [ProviderKind; 2] = [ProviderKind::Anthropic, ProviderKind::Openai];
