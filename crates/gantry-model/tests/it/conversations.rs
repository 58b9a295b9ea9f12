//! Whatever a conversation contains, providers accept the request.

use gantry_model::testing::{Script, ScriptedServer, Turn};
use gantry_model::{Block, Message, Request, Role, SystemPart, Thinking};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{BOTH, ask, assert_clean, assistant, call, request, result, tool, user};

/// Longer than OpenAI accepts as an id and as a name.
const LONG_ID: &str = "toolu_0123456789012345678901234567890123456789012345678901234567890123456789";

fn block(depth: u32) -> BoxedStrategy<Block> {
    let id = prop::sample::select(vec!["1", "2", "call:3", "", "ü", LONG_ID]).prop_map(str::to_owned);
    let name = prop::sample::select(vec!["see", "see", "multi_tool_use.parallel", "", "tool::see", LONG_ID]);
    let text = prop::sample::select(vec!["", " \n", "words", "🌍"]).prop_map(Block::text);
    let origin = prop::option::of(
        prop::sample::select(vec!["scripted/scripted-2", "other/x"]).prop_map(str::to_owned),
    );
    let simple = prop_oneof![
        3 => text,
        1 => prop::sample::select(vec!["image/png", "image/tiff"])
            .prop_map(|kind| Block::Image { media_type: kind.into(), data: "aGk=".into() }),
        1 => (origin, prop::option::of(Just("sig".to_owned())))
            .prop_map(|(origin, signature)| Block::Thinking { text: "hm".into(), signature, origin }),
        1 => Just(Block::Provider { provider: "other".into(), block: json!({"type": "server_tool_use"}) }),
        1 => Just(Block::Provider { provider: "scripted".into(), block: json!("no object") }),
        3 => (id.clone(), name, prop::option::of(Just("{\"a".to_owned()))).prop_map(|(id, name, malformed)| {
            Block::ToolUse { id, name: name.into(), input: json!({"a": 1}), malformed }
        }),
    ];
    if depth == 0 {
        return simple.boxed();
    }
    let result = (id, prop::collection::vec(block(depth - 1), 0..3), any::<bool>())
        .prop_map(|(id, content, is_error)| Block::ToolResult { id, content, is_error });
    prop_oneof![3 => simple, 2 => result].boxed()
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant)];
    let message =
        (role, prop::collection::vec(block(1), 0..4)).prop_map(|(role, content)| Message { role, content });
    prop::collection::vec(message, 0..8)
}

#[test]
fn any_conversation_is_sent_well_formed() {
    let mut runner = super::runner(6_000);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for kind in BOTH {
        let script = Script { turns: vec![Turn::text("ok")], repeat: true, ..Script::default() };
        let server = runtime.block_on(ScriptedServer::start(script));
        let models = server.models(kind);
        runner
            .run(&conversation(), |messages| {
                let request = Request {
                    messages,
                    system: vec![SystemPart { text: " ".into(), cache: true }],
                    tools: vec![tool("see")],
                    thinking: Thinking::Budget(1_024),
                    max_tokens: 2_000,
                    ..request("")
                };
                let outcome = runtime.block_on(ask(&models, &request));
                prop_assert_eq!(server.violations(), Vec::<String>::new(), "{:?}", request.messages);
                prop_assert_eq!(outcome.text(), "ok");
                Ok(())
            })
            .unwrap();
    }
}

/// What one model wrote can be sent to any other, also after a change of model. It may have names
/// that no API accepts, and ids that are too long for one API or repeated for another.
#[tokio::test]
async fn names_and_ids_of_other_models_are_rewritten() {
    for kind in BOTH {
        let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
        let turn = |text: &str| {
            let calls = vec![
                call("call_0", "multi_tool_use.parallel", json!({"tool_uses": []})),
                call(LONG_ID, "see", json!({"a": text})),
            ];
            let second = format!("{text} seen");
            [assistant(calls), user(vec![result("call_0", text), result(LONG_ID, &second)])]
        };
        let mut messages = vec![Message::user("look")];
        messages.extend(turn("first").into_iter().chain(turn("last")));
        let request = Request { messages, tools: vec![tool("see")], ..request("") };
        assert_eq!(ask(&server.models(kind), &request).await.text(), "ok", "{kind:?}");
        assert_clean(&server);
        let sent = &server.requests()[0].body;
        let (names, results) = calls_and_results(sent);
        assert_eq!(names, ["multi_tool_use_parallel", "see", "multi_tool_use_parallel", "see"]);
        assert_eq!(results, ["first", "first seen", "last", "last seen"], "each call has its own result");
        // The next request begins with the same bytes.
        let longer = Request { messages: [&request.messages[..], &turn("more")].concat(), ..request };
        let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
        ask(&server.models(kind), &longer).await.reply();
        let before = calls_and_results(&server.requests()[0].body);
        assert_eq!((&before.0[..4], &before.1[..4]), (&names[..], &results[..]));
    }
}

/// Returns the names of all calls in order, and the text of each call's result.
fn calls_and_results(body: &Value) -> (Vec<String>, Vec<String>) {
    let messages = body["messages"].as_array().unwrap();
    let blocks = || {
        let content = messages.iter().filter_map(|message| message["content"].as_array());
        content.flatten().chain(messages.iter().filter(|message| message["role"] == "tool"))
    };
    let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
    let calls = calls.chain(blocks().filter(|block| block["type"] == "tool_use"));
    let result = |id: &Value| {
        let is_its = |block: &&Value| block["tool_use_id"] == *id || block["tool_call_id"] == *id;
        let found: Vec<&Value> = blocks().filter(is_its).collect();
        assert_eq!(found.len(), 1, "{id}");
        let content = &found[0]["content"];
        content.as_str().or_else(|| content[0]["text"].as_str()).unwrap().to_owned()
    };
    let name = |call: &Value| call["name"].as_str().or(call["function"]["name"].as_str()).unwrap().to_owned();
    calls.map(|call| (name(call), result(&call["id"]))).unzip()
}
