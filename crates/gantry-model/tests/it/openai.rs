//! Chat completions, of OpenAI and of other servers.

use gantry_model::testing::{Failure, Quirks, Say, Script, ScriptedServer, Turn};
use gantry_model::{
    Block, Effort, Message, ModelError, Models, ModelsConfig, ProviderKind, Request, StopReason, SystemPart,
    Thinking, Usage,
};
use serde_json::{Value, json};

use super::{ask, assert_clean, assistant, call, calls, continue_with, request, result, tool, user};

/// A request with every feature, byte for byte.
#[tokio::test]
async fn request_has_the_documented_form() {
    let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
    let request = Request {
        system: vec![
            SystemPart { text: "You are.".into(), cache: true },
            SystemPart { text: "Today.".into(), cache: false },
        ],
        messages: vec![
            user(vec![
                Block::text("look"),
                Block::Image { media_type: "image/png".into(), data: "iVBO".into() },
            ]),
            assistant(vec![
                Block::Thinking { text: "hm".into(), signature: Some("s".into()), origin: None },
                Block::Provider { provider: "anthropic".into(), block: json!({"type": "server_tool_use"}) },
                Block::text("I look."),
                call("call:1", "see", json!({"b": 1, "a": 2})),
                call("2", "see", json!({})),
            ]),
            user(vec![
                Block::ToolResult {
                    id: "call:1".into(),
                    content: vec![
                        Block::text("seen"),
                        Block::Image { media_type: "image/gif".into(), data: "R0".into() },
                    ],
                    is_error: false,
                },
                Block::ToolResult { id: "2".into(), content: vec![], is_error: true },
                Block::text("and?"),
            ]),
        ],
        tools: vec![tool("see")],
        native_web_search: true,
        thinking: Thinking::Adaptive,
        effort: Some(Effort::High),
        ..request("")
    };
    ask(&server.models(ProviderKind::Openai), &request).await.reply();
    let heard = &server.requests()[0];
    assert_eq!(heard.path, "/v1/chat/completions");
    let expected = json!({
        "model": "scripted-1", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 500,
        "reasoning_effort": "high",
        "tools": [{"type": "function", "function": {"name": "see", "description": "Does see.",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}],
        "messages": [
            {"role": "system", "content": "You are.\n\nToday."},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "see", "arguments": "{\"b\":1,\"a\":2}"}},
                {"id": "2", "type": "function", "function": {"name": "see", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
            {"role": "tool", "tool_call_id": "2", "content": "The call failed: (no output)"},
            {"role": "user", "content": [
                {"type": "text", "text": "From the result of call_1:"},
                {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0"}},
                {"type": "text", "text": "and?"}]},
        ],
    });
    assert_eq!(heard.body.to_string(), expected.to_string());
    assert_clean(&server);
}

#[tokio::test]
async fn first_party_uses_max_completion_tokens() {
    let script = Script { turns: vec![Turn::text("ok")], first_party: true, ..Script::default() };
    let server = ScriptedServer::start(script).await;
    ask(&server.models(ProviderKind::Openai), &request("hi")).await.reply();
    assert_eq!(server.requests()[0].body["max_completion_tokens"], 500);
    assert_clean(&server);
}

/// Runs a conversation with thinking, two parallel calls and an answer, with the server's quirks.
async fn converse(quirks: Quirks) -> (Vec<(String, Value)>, StopReason, Usage) {
    let say = vec![
        Say::Thinking("Hm, grüße.".into()),
        Say::Text("Hello 🌍".into()),
        Say::Call { name: "see".into(), input: json!({"a": "x\n\"ü\""}) },
        Say::Call { name: "hear".into(), input: json!({"a": "y"}) },
    ];
    let usage = Usage { input_tokens: 11, output_tokens: 22, cache_read_tokens: 33, cache_write_tokens: 0 };
    let turn = Turn { usage: Some(usage), piece: Some(2), ..Turn::say(say) };
    let server =
        ScriptedServer::start(Script { turns: vec![turn, Turn::text("done")], quirks, ..Script::default() })
            .await;
    let models = server.models(ProviderKind::Openai);
    let mut request = Request { tools: vec![tool("see"), tool("hear")], ..request("hi") };
    let outcome = ask(&models, &request).await;
    let reply = outcome.reply();
    assert_eq!(reply.message.text(), "Hello 🌍", "{quirks:?}");
    assert_eq!(outcome.text(), "Hello 🌍");
    assert!(
        matches!(&reply.message.content[0], Block::Thinking { text, signature: None, .. } if text == "Hm, grüße."),
        "{reply:?}"
    );
    let calls = calls(&reply.message);
    assert_ne!(calls[0].0, calls[1].0, "{quirks:?}");
    continue_with(&mut request, reply);
    assert_eq!(ask(&models, &request).await.text(), "done", "{quirks:?}");
    assert_clean(&server);
    (calls.into_iter().map(|(_, name, input, _)| (name, input)).collect(), reply.stop, reply.usage)
}

#[tokio::test]
async fn quirks_of_every_server_are_handled() {
    let usage = Usage { input_tokens: 11, output_tokens: 22, cache_read_tokens: 33, cache_write_tokens: 0 };
    let expected = vec![("see".to_owned(), json!({"a": "x\n\"ü\""})), ("hear".to_owned(), json!({"a": "y"}))];
    let usual = Quirks::default();
    for quirks in [
        usual,
        Quirks { no_ids: true, ..usual },
        Quirks { no_index: true, ..usual },
        Quirks { no_ids: true, no_index: true, ..usual },
        Quirks { same_index: true, ..usual },
        Quirks { same_index: true, no_ids: true, ..usual },
        Quirks { same_index: true, whole_arguments: true, ..usual },
        Quirks { no_done: true, ..usual },
        Quirks { whole_arguments: true, ..usual },
        Quirks { reasoning: true, always_stop: true, ..usual },
        Quirks { crlf: true, ..usual },
        Quirks { content_parts: true, ..usual },
        Quirks { think_tags: true, ..usual },
        Quirks { function_call: true, ..usual },
    ] {
        assert_eq!(converse(quirks).await, (expected.clone(), StopReason::ToolUse, usage), "{quirks:?}");
    }
    // If a server does not count tokens, they are estimated, rather too many.
    let (calls, _, counted) = converse(Quirks { no_usage: true, ..usual }).await;
    assert_eq!(calls, expected);
    assert!(counted.input_tokens >= 700 && counted.output_tokens >= 10, "{counted:?}");
}

/// Some servers answer a request that is too long with an empty stream.
#[tokio::test]
async fn empty_stream_is_retried_once() {
    let nothing = || Turn::text("x").failing(Failure::End(0));
    let silent = || Turn { say: Vec::new(), ..Turn::default() };
    for turn in [nothing(), silent()] {
        let server = ScriptedServer::start(vec![turn.clone(), Turn::text("ok")]).await;
        assert_eq!(ask(&server.models(ProviderKind::Openai), &request("hi")).await.text(), "ok");
        assert_clean(&server);
        let server = ScriptedServer::start(vec![turn.clone(), turn]).await;
        let outcome = ask(&server.models(ProviderKind::Openai), &request("hi")).await;
        assert!(matches!(outcome.error(), ModelError::Empty { .. }), "{:?}", outcome.answer);
        assert_clean(&server);
    }
}

#[tokio::test]
async fn stop_reasons_are_distinguished() {
    for (stop, expected) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal),
    ] {
        let server = ScriptedServer::start(vec![Turn { stop: Some(stop.into()), ..Turn::text("x") }]).await;
        let outcome = ask(&server.models(ProviderKind::Openai), &request("hi")).await;
        assert_eq!(outcome.reply().stop, expected, "{stop}");
    }
}

/// A conversation may move from one provider to another and back.
#[tokio::test]
async fn conversation_moves_between_formats() {
    let say = vec![Say::Thinking("a".into()), Say::Call { name: "see".into(), input: json!({"a": "1"}) }];
    let anthropic = ScriptedServer::start(vec![Turn::say(say.clone()), Turn::text("back")]).await;
    let openai = ScriptedServer::start(vec![Turn::say(say)]).await;
    let models = Models::new(ModelsConfig {
        providers: vec![
            anthropic.provider("one", ProviderKind::Anthropic),
            openai.provider("two", ProviderKind::Openai),
        ],
        ..ModelsConfig::default()
    });
    let mut request = Request { tools: vec![tool("see")], model: "one/scripted-1".into(), ..request("hi") };
    let outcome = ask(&models, &request).await;
    continue_with(&mut request, outcome.reply());
    request.model = "two/scripted-1".into();
    let outcome = ask(&models, &request).await;
    continue_with(&mut request, outcome.reply());
    request.model = "one/scripted-1".into();
    assert_eq!(ask(&models, &request).await.text(), "back");
    assert_clean(&anthropic);
    assert_clean(&openai);
}

/// Whatever is in a journal, the APIs accept the request.
#[tokio::test]
async fn broken_conversation_is_repaired_when_sent() {
    let messages = vec![
        assistant(vec![call("lost 1", "see", json!({}))]),
        assistant(vec![Block::text(" "), call("2", "see", json!([1]))]),
        user(vec![result("3", "of nothing"), Block::text("")]),
        Message::user("go on"),
        assistant(vec![Block::ToolUse {
            id: "4".into(),
            name: "see".into(),
            input: json!({}),
            malformed: Some("{\"a\": ".into()),
        }]),
    ];
    for kind in super::BOTH {
        let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
        let request = Request { messages: messages.clone(), tools: vec![tool("see")], ..request("") };
        assert_eq!(ask(&server.models(kind), &request).await.text(), "ok", "{kind:?}");
        let sent = server.requests()[0].body.to_string();
        assert!(
            sent.contains("INVALID_JSON") && sent.contains("of nothing") && sent.contains("go on"),
            "{sent}"
        );
        assert_clean(&server);
    }
}
