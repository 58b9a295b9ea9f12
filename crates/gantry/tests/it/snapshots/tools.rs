//! What a model reads of every tool: its description and its input schema, one file per toolset.

use std::collections::BTreeMap;

use gantry_testkit::World;
use serde_json::Value;

#[test]
fn every_tool_description_and_schema_matches_its_snapshot() {
    let world = World::new();
    let listed = world.run(&["tools", "--local", "--json"]).json();
    let tools = listed.as_array().unwrap_or_else(|| panic!("{listed}"));
    let mut toolsets: BTreeMap<String, String> = BTreeMap::new();
    // `local__Read` is `Read` of this machine.
    for tool in tools.iter().filter(|tool| !text_of(&tool["name"]).starts_with("local__")) {
        let text = toolsets.entry(tool["toolset"].as_str().unwrap().to_owned()).or_default();
        *text += &format!("# {}\n\n{}\n\n", text_of(&tool["name"]), text_of(&tool["description"]));
        *text += &format!("{}\n\n", serde_json::to_string_pretty(&tool["inputSchema"]).unwrap());
    }
    let described = toolsets.values().map(|text| text.matches("\n# ").count() + 1).sum::<usize>();
    assert!(described >= 39, "only {described} tools are listed");
    for (toolset, text) in &toolsets {
        super::check(&format!("tools_{toolset}"), &super::without_paths(&world, text));
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}"))
}
