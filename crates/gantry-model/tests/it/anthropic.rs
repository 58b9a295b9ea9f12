//! The Messages API: outgoing requests and incoming answers.

use gantry_model::testing::{Say, Script, ScriptedServer, Turn};
use gantry_model::{
    Block, Effort, Message, Models, ModelsConfig, ProviderKind, Request, StopReason, StreamEvent, SystemPart,
    Thinking, Usage,
};
use serde_json::{Value, json};

use super::{ask, assert_clean, assistant, call, calls, continue_with, request, result, tool, user};

async fn first_party(turns: Vec<Turn>) -> (ScriptedServer, Models) {
    let models = vec![
        "claude-opus-5-5".into(),
        "claude-sonnet-5-5".into(),
        "claude-haiku-4-5".into(),
        "scripted-1".into(),
    ];
    let script = Script { turns, first_party: true, models, ..Script::default() };
    let server = ScriptedServer::start(script).await;
    let models = server.models(ProviderKind::Anthropic);
    (server, models)
}

/// A request with every feature, byte for byte.
#[tokio::test]
async fn request_has_the_documented_form() {
    let (server, models) = first_party(vec![Turn::text("ok")]).await;
    let request = Request {
        model: "claude-sonnet-5-5".into(),
        system: vec![
            SystemPart { text: "You are.".into(), cache: true },
            SystemPart { text: "Today.".into(), cache: false },
        ],
        messages: vec![
            Message::user("look"),
            assistant(vec![
                Block::text("I look."),
                call("toolu_1", "see", json!({"b": 1, "a": [true, null]})),
            ]),
            user(vec![Block::ToolResult {
                id: "toolu_1".into(),
                content: vec![
                    Block::text("seen"),
                    Block::Image { media_type: "image/png".into(), data: "iVBO".into() },
                ],
                is_error: true,
            }]),
        ],
        tools: vec![tool("see")],
        native_web_search: true,
        max_tokens: 300,
        thinking: Thinking::Adaptive,
        effort: Some(Effort::Low),
    };
    ask(&models, &request).await.reply();
    let heard = &server.requests()[0];
    assert_eq!(heard.path, "/v1/messages");
    assert_eq!(heard.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(heard.header("accept"), Some("text/event-stream"));
    let expected = json!({
        "model": "claude-sonnet-5-5", "max_tokens": 300, "stream": true,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low"},
        "tools": [
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            {"name": "see", "description": "Does see.",
             "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}, "eager_input_streaming": true},
        ],
        "system": [
            {"type": "text", "text": "You are.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Today."},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "see", "input": {"b": 1, "a": [true, null]}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                    {"type": "text", "text": "seen"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}],
                 "is_error": true, "cache_control": {"type": "ephemeral"}}]},
        ],
    });
    assert_eq!(heard.body.to_string(), expected.to_string(), "also in its order, for caches");
    assert_clean(&server);
}

#[tokio::test]
async fn stream_events_add_up_to_the_reply() {
    let say = vec![
        Say::Thinking("Hm, grüße.".into()),
        Say::Redacted("secret".into()),
        Say::Text("Hello 🌍, ".into()),
        Say::Call { name: "see".into(), input: json!({"a": "x\n\"ü\""}) },
        Say::Call { name: "hear".into(), input: json!({}) },
    ];
    let usage = Usage { input_tokens: 11, output_tokens: 22, cache_read_tokens: 33, cache_write_tokens: 44 };
    let turn = Turn { usage: Some(usage), piece: Some(3), ..Turn::say(say) };
    let server = ScriptedServer::start(vec![turn, Turn::text("done")]).await;
    let models = server.models(ProviderKind::Anthropic);
    let mut request = Request { tools: vec![tool("see"), tool("hear")], ..request("hi") };
    let outcome = ask(&models, &request).await;
    let reply = outcome.reply();
    assert_eq!(
        (reply.stop, reply.usage, reply.model.as_str()),
        (StopReason::ToolUse, usage, "scripted/scripted-1")
    );
    let [thinking, redacted, text, ..] = reply.message.content.as_slice() else { panic!("{reply:?}") };
    let Block::Thinking { text: thought, signature: Some(signature), origin } = thinking else {
        panic!("{thinking:?}")
    };
    assert_eq!((thought.as_str(), origin.as_deref()), ("Hm, grüße.", Some("scripted/scripted-1")));
    assert!(signature.starts_with("sig+"));
    assert!(matches!(redacted, Block::Provider { block, .. } if block["type"] == "redacted_thinking"));
    assert_eq!(text, &Block::text("Hello 🌍, "));
    let calls = calls(&reply.message);
    assert_eq!((calls[0].1.as_str(), &calls[0].2), ("see", &json!({"a": "x\n\"ü\""})));
    assert_eq!((calls[1].1.as_str(), &calls[1].2), ("hear", &json!({})));
    assert_ne!(calls[0].0, calls[1].0);
    // The events contain the same, piece by piece, in order.
    let mut inputs = String::new();
    let mut begun = Vec::new();
    for event in &outcome.events {
        match event {
            StreamEvent::ToolBegin { id, name } => begun.push((id.clone(), name.clone())),
            StreamEvent::ToolInput { id, partial } if *id == calls[0].0 => inputs.push_str(partial),
            _ => {}
        }
    }
    assert_eq!(begun, [(calls[0].0.clone(), "see".into()), (calls[1].0.clone(), "hear".to_owned())]);
    assert_eq!(serde_json::from_str::<Value>(&inputs).unwrap(), calls[0].2);
    assert_eq!(outcome.text(), "Hello 🌍, ");
    assert!(matches!(outcome.events.last(), Some(StreamEvent::Done(done)) if **done == *reply));
    // The reply is sent back unchanged, including signatures, which the server checks.
    continue_with(&mut request, reply);
    assert_eq!(ask(&models, &request).await.text(), "done");
    assert_clean(&server);
}

#[tokio::test]
async fn thinking_is_sent_back_only_to_its_model() {
    let say = vec![
        Say::Thinking("mine".into()),
        Say::Redacted("mine too".into()),
        Say::Call { name: "see".into(), input: json!({}) },
    ];
    let script = Script {
        turns: vec![Turn::say(say), Turn::text("other"), Turn::text("same")],
        models: vec!["scripted-1".into(), "scripted-2".into()],
        ..Script::default()
    };
    let server = ScriptedServer::start(script).await;
    let models = server.models(ProviderKind::Anthropic);
    let mut request = Request { tools: vec![tool("see")], ..request("hi") };
    let first = ask(&models, &request).await;
    continue_with(&mut request, first.reply());
    let to_other = Request { model: "scripted-2".into(), ..request.clone() };
    assert_eq!(ask(&models, &to_other).await.text(), "other");
    assert_eq!(ask(&models, &request).await.text(), "same");
    let kinds = |at: usize| {
        let body = &server.requests()[at].body;
        let blocks = body["messages"][1]["content"].as_array().unwrap().clone();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(1), ["tool_use"]);
    assert_eq!(kinds(2), ["thinking", "redacted_thinking", "tool_use"]);
    assert_clean(&server);
}

/// A signature may become invalid when the conversation before it is shortened.
#[tokio::test]
async fn rejected_thinking_is_left_out() {
    let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
    let models = server.models(ProviderKind::Anthropic);
    let origin = Some("scripted/scripted-1".to_owned());
    let thought = Block::Thinking { text: "old".into(), signature: Some("void".into()), origin };
    let mut request = Request { tools: vec![tool("see")], ..request("hi") };
    request.messages.push(assistant(vec![thought, call("1", "see", json!({}))]));
    request.messages.push(user(vec![result("1", "seen")]));
    let outcome = ask(&models, &request).await;
    assert_eq!(outcome.text(), "ok");
    assert_eq!(server.requests().len(), 2);
    assert_eq!(server.violations(), ["messages.1: invalid `signature` in `thinking` block"]);
}

#[tokio::test]
async fn each_model_generation_gets_its_thinking_style() {
    let turns = (0..9).map(|_| Turn::text("ok")).collect();
    let (server, models) = first_party(turns).await;
    for (model, thinking, expected) in [
        ("claude-opus-5-5", Thinking::Off, Value::Null),
        ("claude-opus-5-5", Thinking::Budget(2_000), json!({"type": "adaptive", "display": "summarized"})),
        ("claude-sonnet-5-5", Thinking::Off, json!({"type": "disabled"})),
        ("claude-haiku-4-5", Thinking::Off, Value::Null),
        ("claude-haiku-4-5", Thinking::Budget(2_000), json!({"type": "enabled", "budget_tokens": 2_000})),
        ("claude-haiku-4-5", Thinking::Budget(1), json!({"type": "enabled", "budget_tokens": 1_024})),
        ("claude-haiku-4-5", Thinking::Adaptive, json!({"type": "enabled", "budget_tokens": 2_000})),
        ("scripted-1", Thinking::Adaptive, json!({"type": "adaptive"})),
    ] {
        let request = Request { model: model.into(), thinking, max_tokens: 4_000, ..request("hi") };
        ask(&models, &request).await.reply();
        let heard = server.requests().pop().unwrap();
        assert_eq!(heard.body["thinking"], expected, "{model} {thinking:?}");
    }
    // A turn that began without thinking cannot continue with a budget.
    let mut request = Request {
        model: "claude-haiku-4-5".into(),
        thinking: Thinking::Budget(2_000),
        max_tokens: 4_000,
        ..request("hi")
    };
    request.messages.push(assistant(vec![call("1", "see", json!({}))]));
    request.messages.push(user(vec![result("1", "seen")]));
    ask(&models, &request).await.reply();
    assert_eq!(server.requests().pop().unwrap().body["thinking"], Value::Null);
    assert_clean(&server);
}

#[tokio::test]
async fn provider_search_blocks_are_sent_back_unchanged() {
    let search = Say::Search { query: "rust".into(), text: "Rust is old.".into() };
    let pause = Turn { stop: Some("pause_turn".into()), ..Turn::say(vec![search]) };
    let (server, models) = first_party(vec![pause, Turn::text("done")]).await;
    let mut request = Request { native_web_search: true, ..request("hi") };
    let outcome = ask(&models, &request).await;
    let reply = outcome.reply();
    assert_eq!((reply.stop, reply.message.text().as_str()), (StopReason::Pause, "Rust is old."));
    request.messages.push(reply.message.clone());
    assert_eq!(ask(&models, &request).await.text(), "done");
    let sent = &server.requests()[1].body["messages"][1]["content"];
    assert_eq!(sent[0]["input"], json!({"query": "rust"}));
    assert_eq!(sent[1]["type"], "web_search_tool_result");
    assert_eq!(sent[2]["text"], "Rust is old.");
    assert_eq!(sent[2]["citations"][0]["cited_text"], "Rust is old.");
    assert_clean(&server);
}

#[tokio::test]
async fn first_party_features_are_sent_only_to_it() {
    let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
    let models = server.models(ProviderKind::Anthropic);
    let request = Request { native_web_search: true, tools: vec![tool("see")], ..request("hi") };
    ask(&models, &request).await.reply();
    let body = server.requests()[0].body.to_string();
    assert!(!body.contains("eager_input_streaming") && !body.contains("web_search"), "{body}");
    assert_clean(&server);
}

/// If the system prompt has no part to mark, requests begin with the tools.
#[tokio::test]
async fn at_most_two_cache_marks_are_set() {
    let server = ScriptedServer::start(vec![Turn::text("ok"), Turn::text("ok")]).await;
    let models = server.models(ProviderKind::Anthropic);
    let many = |cache| (0..6).map(|at| SystemPart { text: format!("part {at}"), cache }).collect();
    for (system, place) in [(many(true), "/system/5"), (many(false), "/tools/0")] {
        let request = Request { system, tools: vec![tool("see")], ..request("hi") };
        ask(&models, &request).await.reply();
        let body = server.requests().pop().unwrap().body;
        assert_eq!(body.to_string().matches("cache_control").count(), 2);
        for place in [place, "/messages/0/content/0"] {
            assert!(body.pointer(place).unwrap().get("cache_control").is_some(), "{place}");
        }
    }
    assert_clean(&server);
}

#[tokio::test]
async fn stop_reasons_are_distinguished() {
    for (stop, expected) in [
        ("end_turn", StopReason::EndTurn),
        ("stop_sequence", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("model_context_window_exceeded", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal),
        ("pause_turn", StopReason::Pause),
        ("something_new", StopReason::EndTurn),
    ] {
        let turn = Turn { stop: Some(stop.into()), ..Turn::text("x") };
        let server = ScriptedServer::start(vec![turn]).await;
        let outcome = ask(&server.models(ProviderKind::Anthropic), &request("hi")).await;
        assert_eq!(outcome.reply().stop, expected, "{stop}");
    }
}

#[tokio::test]
async fn providers_of_one_kind_do_not_share_blocks() {
    let search = Say::Search { query: "q".into(), text: "t".into() };
    let one = Script {
        turns: vec![Turn::say(vec![Say::Thinking("a".into()), search])],
        first_party: true,
        ..Script::default()
    };
    let one = ScriptedServer::start(one).await;
    let two = ScriptedServer::start(vec![Turn::text("ok")]).await;
    let models = Models::new(ModelsConfig {
        providers: vec![
            one.provider("one", ProviderKind::Anthropic),
            two.provider("two", ProviderKind::Anthropic),
        ],
        ..ModelsConfig::default()
    });
    let mut request = Request { model: "one/scripted-1".into(), native_web_search: true, ..request("hi") };
    let outcome = ask(&models, &request).await;
    continue_with(&mut request, outcome.reply());
    request.messages.push(Message::user("and?"));
    request.model = "two/scripted-1".into();
    ask(&models, &request).await.reply();
    let sent = &two.requests()[0].body["messages"][1]["content"];
    assert_eq!(sent, &json!([{"type": "text", "text": "t"}]));
    assert_clean(&one);
    assert_clean(&two);
}
