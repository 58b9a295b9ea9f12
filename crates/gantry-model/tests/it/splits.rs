//! However the network splits a stream, the reply is the same.

use gantry_model::testing::{Quirks, Say, Script, ScriptedServer, Turn};
use gantry_model::{ProviderKind, Reply, Request};
use proptest::prelude::*;
use serde_json::json;

use super::{ask, request, tool};

fn turn() -> Turn {
    Turn::say(vec![
        Say::Thinking("Ähm… 思考".into()),
        Say::Text("Grüße 🌍👩‍🚀\r\n\n data: [DONE]\n\nevent: ping".into()),
        Say::CallAs {
            id: "c1".into(),
            name: "see".into(),
            input: json!({"a": "ü\n🌍\u{2028}", "n": 1.5e300}),
        },
        Say::Malformed { name: "hear".into(), arguments: "{\"a\": \"🌍".into() },
        Say::Pings { count: 1, every_ms: 0 },
        Say::Text("end".into()),
    ])
}

async fn reply(kind: ProviderKind, crlf: bool, piece: usize, writes: Vec<usize>) -> Reply {
    let turn = Turn { piece: Some(piece), writes, ..turn() };
    let quirks = Quirks { crlf, ..Quirks::default() };
    let server = ScriptedServer::start(Script { turns: vec![turn], quirks, ..Script::default() }).await;
    let request = Request { tools: vec![tool("see"), tool("hear")], ..request("hi") };
    let outcome = ask(&server.models(kind), &request).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    outcome.reply().clone()
}

#[test]
fn any_stream_split_gives_the_same_reply() {
    let mut runner = super::runner(2_000);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for kind in super::BOTH {
        let whole = runtime.block_on(reply(kind, false, 1_000, vec![]));
        let cases = (any::<bool>(), 1..40_usize, prop::collection::vec(1..90_usize, 1..20));
        runner
            .run(&cases, |(crlf, piece, writes)| {
                let split = runtime.block_on(reply(kind, crlf, piece, writes));
                prop_assert_eq!(&split, &whole);
                Ok(())
            })
            .unwrap();
    }
}
