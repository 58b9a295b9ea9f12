//! `gantry tools`: what there is, and what one of them takes.

use anyhow::Result;
use gantry_tool::{Tool, Toolset, View, nearest};
use serde_json::{Value, json};

use crate::cli::ToolsArgs;
use crate::exit::{Exit, UsageError};
use crate::local::Local;
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: Places, output: &Output, args: &ToolsArgs) -> Result<Exit> {
    if let Some(exit) = output.no_gateway(args.local) {
        return Ok(exit);
    }
    let local = Local::open(places)?;
    let call = local.call(args.agent.as_deref(), None)?;
    let view = local.gate.registry().view(&call.scope);
    match &args.name {
        Some(name) => show(output, &view, name),
        None => list(output, &view, args.toolset.as_deref()),
    }
}

fn list(output: &Output, view: &View, toolset: Option<&str>) -> Result<Exit> {
    let toolset = toolset.map(parse_toolset).transpose()?;
    let tools: Vec<_> = view
        .entries()
        .into_iter()
        .filter(|tool| toolset.is_none_or(|wanted| tool.toolset() == wanted))
        .collect();
    if output.json {
        output.value(&tools.iter().map(|tool| describe(tool)).collect());
        return Ok(Exit::Success);
    }
    let width = tools.iter().map(|tool| tool.name().len()).max().unwrap_or(0);
    let mut current = None;
    for tool in &tools {
        if current.replace(tool.toolset()) != Some(tool.toolset()) {
            output.line(&output.dim(&format!("# {}", tool.toolset().name())));
        }
        let name = format!("{:width$}", tool.name());
        output.line(&format!("{}  {}", output.bold(&name), first_sentence(tool.description())));
    }
    Ok(Exit::Success)
}

fn show(output: &Output, view: &View, name: &str) -> Result<Exit> {
    let Some(tool) = view.find(name) else {
        output.refusal(&view.unknown(name));
        return Ok(Exit::Usage);
    };
    if output.json {
        output.value(&describe(&tool));
        return Ok(Exit::Success);
    }
    output.line(&format!("{}  {}", output.bold(tool.name()), output.dim(&traits(&tool))));
    output.line(&format!("\n{}\n", tool.description()));
    output.line(&output.bold("Input"));
    for line in parameters(tool.input_schema()) {
        output.line(&line);
    }
    output.line(&format!("\n{}", output.bold("Output")));
    match tool.output_schema() {
        Some(schema) => parameters(schema).iter().for_each(|line| output.line(line)),
        None => output.line("  text"),
    }
    output.line(&format!("\n{}", output.dim("--json prints the whole schemas")));
    Ok(Exit::Success)
}

/// Everything about a tool, as other programs read it.
pub(crate) fn describe(tool: &Tool) -> Value {
    json!({
        "name": tool.name(),
        "toolset": tool.toolset().name(),
        "description": tool.description(),
        "readOnly": tool.is_read_only(),
        "destructive": tool.is_destructive(),
        "idempotent": tool.is_idempotent(),
        "openWorld": tool.is_open_world(),
        "capabilities": tool.capability_ids().iter().map(|capability| capability.id()).collect::<Vec<_>>(),
        "inputSchema": tool.input_schema(),
        "outputSchema": tool.output_schema(),
    })
}

fn parse_toolset(name: &str) -> Result<Toolset> {
    let names = Toolset::ALL.map(Toolset::name);
    Toolset::ALL.into_iter().find(|toolset| toolset.name() == name).ok_or_else(|| {
        let hint = match nearest(name, names).first() {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("there are {}", names.join(", ")),
        };
        UsageError(format!("unknown toolset \"{name}\"; {hint}")).into()
    })
}

fn traits(tool: &Tool) -> String {
    let mut words = vec![tool.toolset().name()];
    words.extend(tool.is_read_only().then_some("read-only"));
    words.extend(tool.is_destructive().then_some("destructive"));
    words.extend(tool.is_open_world().then_some("reaches outside"));
    words.extend(tool.capability_ids().iter().map(|capability| capability.id()));
    words.join(" · ")
}

fn first_sentence(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match joined.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => joined,
    }
}

/// One line a field: name, type, whether it is required, default, description.
pub(crate) fn parameters(schema: &Value) -> Vec<String> {
    let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array());
    if let Some(alternatives) = alternatives.filter(|_| schema.get("properties").is_none()) {
        let each = alternatives.iter().enumerate().map(|(index, schema)| {
            let lead = if index == 0 { Vec::new() } else { vec!["  or".to_owned()] };
            lead.into_iter().chain(parameters(schema)).collect::<Vec<_>>()
        });
        return each.flatten().collect();
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
    if fields.is_empty() {
        return vec![format!("  {}", type_name(schema))];
    }
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, field): &(&String, &Value)| {
        let mut notes = vec![type_name(field)];
        notes.extend(required.contains(&name.as_str()).then(|| "required".to_owned()));
        notes.extend(
            field
                .get("default")
                .filter(|default| !default.is_null())
                .map(|default| format!("default {default}")),
        );
        let text = field["description"]
            .as_str()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        format!("  {name:width$}  {}  {text}", notes.join(", ")).trim_end().to_owned()
    };
    fields.iter().map(line).collect()
}

fn type_name(schema: &Value) -> String {
    if let Some(options) = schema["enum"].as_array() {
        return options.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(options) = ["anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array()) {
        let names: Vec<String> = options.iter().map(type_name).filter(|name| name != "null").collect();
        return names.join(" | ");
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| *name != "null")
            .collect::<Vec<_>>()
            .join(" | "),
        _ => "any".to_owned(),
    };
    match schema.get("items").filter(|_| name == "array") {
        Some(items) => format!("{}[]", type_name(items)),
        None => name,
    }
}
