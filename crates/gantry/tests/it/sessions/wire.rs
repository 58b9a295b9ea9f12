//! What a model is really sent, in both formats: pictures, calls side by side, thoughts, effort, and where caches begin.

use gantry_model::testing::{Heard, KEY, Say, Script, Turn};
use gantry_testkit::{Gateway, World};
use serde_json::{Value, json};

use super::{Model, NOBODY, post};

/// One red pixel.
const PNG: [u8; 69] = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";

fn answered(heard: &Heard) -> bool {
    let text = heard.body["messages"].to_string();
    text.contains("tool_result") || text.contains("\"role\":\"tool\"")
}

fn two_calls() -> Turn {
    let call = |name: &str, input: Value| Say::Call { name: name.into(), input };
    Turn {
        say: vec![
            Say::Text("I look.".into()),
            call("Read", json!({"path": "red.png"})),
            call("Glob", json!({"pattern": "*.png"})),
        ],
        ..Turn::default()
    }
}

fn talk(kind: &str) -> (Model, Vec<Heard>) {
    let script = Script { models: vec!["claude-sonnet-5-5".into()], ..Script::default() };
    let model = Model::of(script, |heard| match answered(heard) {
        false => two_calls(),
        true => Turn::text("it is red"),
    });
    let world = World::new();
    world.configure(&format!(
        "{NOBODY}[models.providers.lab]\nkind = \"{kind}\"\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n\
         [models.providers.lab.models.claude-sonnet-5-5]\ncontextWindow = 100000\n\
         [agents.main]\nautonomy = \"guided\"\nthinking = \"adaptive\"\neffort = \"high\"\n",
        model.server.base_url()
    ));
    std::fs::write(world.workspace().join("red.png"), PNG).unwrap();
    let up = Gateway::start(&world);
    let reported = post(&up, "main", &json!({"message": "which colour?"}), &[]).json();
    assert_eq!(reported["reply"], "it is red", "{reported}");
    for (command, part) in [
        ("/think low", "thinking is now adaptive, with low effort"),
        ("/think off", "thinking is now off"),
        ("/model claude-sonet-5-5", "did you mean lab/claude-sonnet-5-5"),
        ("/model", "the model is lab/claude-sonnet-5-5"),
    ] {
        let reported = post(&up, "main", &json!({"message": command}), &[]).json().to_string();
        assert!(reported.contains(part), "{command}: {reported}");
    }
    let reported = post(&up, "main", &json!({"message": "and again?"}), &[]).json();
    assert_eq!(reported["status"], "final", "{reported}");
    let heard = model.server.requests();
    model.check();
    (model, heard)
}

#[test]
fn messages_api_receives_images_tool_pairs_and_cache_marks() {
    let (_model, heard) = talk("anthropic");
    let [first, second, third] = heard.as_slice() else { panic!("{}", heard.len()) };
    let results = second.body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 2, "both results in one message: {results:?}");
    let picture = results[0]["content"].as_array().unwrap().iter().find(|block| block["type"] == "image");
    assert_eq!(picture.unwrap()["source"]["media_type"], "image/png");
    assert!(first.body["system"].to_string().contains("cache_control"), "{}", first.body["system"]);
    assert!(second.body["messages"].to_string().contains("cache_control"));
    assert_eq!(first.body["system"][0], second.body["system"][0], "what caches hold does not change");
    assert_eq!(first.body["tools"], second.body["tools"]);
    assert_eq!(
        (&first.body["thinking"]["type"], &first.body["output_config"]["effort"]),
        (&json!("adaptive"), &json!("high"))
    );
    assert_eq!(third.body["output_config"]["effort"], "low");
    assert!(third.body["thinking"]["type"] != "adaptive", "{}", third.body["thinking"]);
}

#[test]
fn chat_completions_receives_images_and_tool_pairs() {
    let (_model, heard) = talk("openai");
    let messages = heard[1].body["messages"].as_array().unwrap();
    let tools = messages.iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(tools, 2, "{messages:?}");
    assert!(heard[1].body["messages"].to_string().contains("data:image/png;base64,"), "{messages:?}");
    assert_eq!(heard[0].body["reasoning_effort"], "high");
    assert_eq!(heard[2].body["reasoning_effort"], "low");
}
