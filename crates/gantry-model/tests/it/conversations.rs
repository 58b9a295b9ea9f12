//! Whatever a conversation is made of, what goes out is what the providers accept.

use gantry_model::testing::{Script, ScriptedServer, Turn};
use gantry_model::{Block, Message, Request, Role, SystemPart, Thinking};
use proptest::prelude::*;
use serde_json::json;

use super::{BOTH, ask, request, tool};

fn block(depth: u32) -> BoxedStrategy<Block> {
    let id = prop::sample::select(vec!["1", "2", "call:3", "", "ü"]).prop_map(str::to_owned);
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
        3 => (id.clone(), prop::option::of(Just("{\"a".to_owned()))).prop_map(|(id, malformed)| Block::ToolUse {
            id, name: "see".into(), input: json!({"a": 1}), malformed }),
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
fn any_conversation_goes_out_well_formed() {
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
                let told = runtime.block_on(ask(&models, &request));
                prop_assert_eq!(server.violations(), Vec::<String>::new(), "{:?}", request.messages);
                prop_assert_eq!(told.text(), "ok");
                Ok(())
            })
            .unwrap();
    }
}
