//! Generates `docs/tools.md` from the registry, and `docs/protocol.d.ts` from the types of the protocol.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell;

const PAGE: &str = "docs/tools.md";
const TYPES: &str = "docs/protocol.d.ts";
const LEAD: &str = "# Tools\n\n\
    <!-- Written by `cargo xtask docs` from the registry. Change the doc comments of the tools instead. -->\n\n\
    Every tool, as `gantry tools NAME` shows it. Run one with `gantry call NAME '{…}'`. Unknown fields are refused with the\n\
    nearest known name; every violation of a schema is listed at once.\n";

pub(crate) fn run(only_check: bool) -> Result<()> {
    println!("\n$ cargo xtask docs{}", if only_check { " --check" } else { "" });
    put(PAGE, &render()?, only_check)?;
    let types = ["cargo", "run", "--quiet", "-p", "gantry-protocol", "--example", "typescript"];
    put(TYPES, &shell::output(&types, &[])?, only_check)
}

/// Writes a generated file, or fails if it is out of date.
fn put(name: &str, text: &str, only_check: bool) -> Result<()> {
    let path = shell::root().join(name);
    if only_check {
        let current = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        ensure!(current == text, "{name} is out of date; run `cargo xtask docs`");
        return Ok(());
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write {name}"))
}

fn render() -> Result<String> {
    let data = tempfile::tempdir()?;
    let data = data.path().to_string_lossy().into_owned();
    let listing = shell::output(
        &[
            "cargo",
            "run",
            "--quiet",
            "-p",
            "gantry",
            "--all-features",
            "--",
            "tools",
            "--json",
            "--data-dir",
            &data,
            // The page also has the tools that need a search provider.
            "--set",
            "web.search.searxngUrl=https://searx.example",
        ],
        &[],
    )?;
    let tools: Vec<Value> = serde_json::from_str(&listing)?;
    let mut page = LEAD.to_owned();
    let mut toolset = "";
    // Node tools are listed once, by their bare name. `local__Bash` is the same tool without the `node` argument.
    let once = |tool: &&Value| !tool["name"].as_str().is_some_and(|name| name.starts_with("local__"));
    for tool in tools.iter().filter(once) {
        let own = tool["toolset"].as_str().unwrap_or_default();
        if own != toolset {
            toolset = own;
            write!(page, "\n## Toolset `{toolset}`\n")?;
        }
        write_tool(&mut page, tool)?;
    }
    Ok(page)
}

fn write_tool(page: &mut String, tool: &Value) -> Result<()> {
    let flag = |name: &str, text: &'static str| tool[name].as_bool().unwrap_or_default().then_some(text);
    let traits: Vec<&str> = [
        flag("readOnly", "read-only"),
        flag("destructive", "destructive"),
        flag("idempotent", "idempotent"),
        flag("openWorld", "reaches outside"),
    ]
    .into_iter()
    .flatten()
    .chain(tool["capabilities"].as_array().into_iter().flatten().filter_map(Value::as_str))
    .collect();
    writeln!(page, "\n### `{}`\n", tool["name"].as_str().unwrap_or_default())?;
    if !traits.is_empty() {
        writeln!(page, "*{}*\n", traits.join(" · "))?;
    }
    for paragraphs in ["description", "notes"] {
        if let Some(text) = tool[paragraphs].as_str().filter(|text| !text.is_empty()) {
            writeln!(page, "{text}\n")?;
        }
    }
    write_fields(page, "parameter", &tool["inputSchema"])?;
    match &tool["outputSchema"] {
        Value::Null => writeln!(page, "\nAnswers in plain text.")?,
        schema => {
            writeln!(page, "\nAnswers:\n")?;
            write_fields(page, "field", schema)?;
            // For toolsets that wrap their answers, the page describes the inner result.
            if let Some(result) = schema["properties"].get("result").filter(|result| has_fields(result)) {
                writeln!(page, "\nwith in `result`\n")?;
                write_fields(page, "field", result)?;
            }
        }
    }
    Ok(())
}

fn has_fields(schema: &Value) -> bool {
    ["properties", "anyOf", "oneOf"].iter().any(|key| schema.get(key).is_some())
}

fn write_fields(page: &mut String, head: &str, schema: &Value) -> Result<()> {
    let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array());
    if let Some(alternatives) = alternatives.filter(|_| schema.get("properties").is_none()) {
        for (index, schema) in alternatives.iter().enumerate() {
            if index > 0 {
                writeln!(page, "\nor\n")?;
            }
            write_fields(page, head, schema)?;
        }
        return Ok(());
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    writeln!(page, "| {head} | type | default | meaning |\n| --- | --- | --- | --- |")?;
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let default = match field.get("default") {
            Some(default) if !default.is_null() => format!("`{default}`"),
            _ if head == "parameter" && required.contains(&name.as_str()) => "required".to_owned(),
            _ => String::new(),
        };
        let meaning = field["description"]
            .as_str()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        writeln!(page, "| `{name}` | {} | {default} | {} |", type_name(field), meaning.replace('|', "\\|"))?;
    }
    Ok(())
}

fn type_name(schema: &Value) -> String {
    let code = |value: &Value| format!("`{value}`");
    if let Some(options) = schema["enum"].as_array() {
        return options.iter().filter(|option| !option.is_null()).map(code).collect::<Vec<_>>().join(", ");
    }
    if let Some(value) = schema.get("const") {
        return code(value);
    }
    if let Some(options) = ["anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array()) {
        let names = options.iter().map(type_name).filter(|name| name != "null");
        return names.collect::<Vec<_>>().join(" or ");
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| *name != "null")
            .collect::<Vec<_>>()
            .join(" or "),
        _ => "any".to_owned(),
    };
    match schema.get("items").filter(|_| name == "array") {
        Some(items) => format!("list of {}", type_name(items)),
        None => name,
    }
}
