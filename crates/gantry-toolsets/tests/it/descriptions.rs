//! Every tool and field has a description, and the first sentence of a tool fits in a list.

use gantry_toolsets::testing::Bench;
use serde_json::Value;

const FIRST_SENTENCE_CHARS: usize = 100;

#[test]
fn every_tool_and_field_has_a_description() {
    let bench = Bench::new();
    for tool in bench.gate.registry().entries() {
        let name = tool.name();
        let joined = tool.description().replace('\n', " ");
        let sentence = joined.split_once(". ").map_or(joined.trim_end_matches('.'), |(first, _)| first);
        let length = sentence.chars().count();
        assert!((15..=FIRST_SENTENCE_CHARS).contains(&length), "{name}: {length} characters: {sentence}");
        assert_eq!(tool.input_schema()["additionalProperties"], false, "{name}");
        check_fields(name, tool.input_schema());
        if let Some(output) = tool.output_schema() {
            assert_eq!(output["type"], "object", "{name}");
        }
    }
}

fn check_fields(name: &str, schema: &Value) {
    for (field, schema) in schema["properties"].as_object().unwrap() {
        assert!(schema["description"].is_string(), "{name}.{field}");
    }
}
