//! `gantry tools` lists the tools, or shows one with its parameters.

use anyhow::Result;
use clap::Args;
use gantry_protocol::{ToolInfo, ToolList, ToolsGetParams, ToolsListParams, method};
use gantry_tool::{Toolset, nearest};
use serde_json::Value;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::local::Local;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry tools --toolset guarded\n  \
    gantry tools Bash\n  \
    gantry tools --agent file-assistant            list the tools of an agent\n  \
    gantry tools read --json | jq .inputSchema")]
pub(crate) struct ToolsArgs {
    /// Tool to show [default: list all tools]
    pub(crate) name: Option<String>,
    /// List only this toolset: node, native, guarded, basic, assistant, gantry, mcp
    #[arg(long, value_name = "TOOLSET")]
    pub(crate) toolset: Option<String>,
    /// List only the tools of this agent
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// List the tools of this process, even if a gateway is running or configured
    #[arg(long)]
    pub(crate) local: bool,
}

pub(crate) fn run(environment: Environment, output: &Output, args: &ToolsArgs) -> Result<Exit> {
    let toolset = args.toolset.as_deref().map(parse_toolset).transpose()?;
    let tools = match Target::find(&environment, output, args.local)? {
        Target::Gateway(address) => from_gateway(&address, output, args)?,
        Target::InProcess => {
            let local = Local::open(environment)?;
            local.servers.problems().iter().for_each(|problem| output.warning(problem));
            let call = local.call(args.agent.as_deref(), None)?;
            let view = local.gate.registry().view(&call.scope);
            match &args.name {
                Some(name) => vec![view.describe(name).ok_or_else(|| Refused(view.unknown(name)))?],
                None => view.list(toolset),
            }
        }
    };
    match args.name {
        Some(_) => tools.iter().for_each(|tool| show(output, tool)),
        None => list(output, &tools),
    }
    Ok(Exit::Success)
}

fn from_gateway(address: &Address, output: &Output, args: &ToolsArgs) -> Result<Vec<ToolInfo>> {
    if let Some(name) = &args.name {
        let params = ToolsGetParams { name: name.clone(), agent: args.agent.clone(), mcp: None };
        return Ok(vec![Client::once(address, output, method::TOOLS_GET, &params)?]);
    }
    let (agent, toolset) = (args.agent.clone(), args.toolset.clone());
    let params = ToolsListParams { agent, toolset, ..ToolsListParams::default() };
    let listed: ToolList = Client::once(address, output, method::TOOLS_LIST, &params)?;
    Ok(listed.tools)
}

fn list(output: &Output, tools: &[ToolInfo]) {
    if output.json {
        return output.value(tools);
    }
    let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    let mut current = String::new();
    for tool in tools {
        let heading = match &tool.nodes {
            Some(_) => "# node tools; pass \"node\": NAME, tag:NAME or *".to_owned(),
            None => format!("# {}", tool.toolset),
        };
        if current != heading {
            output.line(&output.dim(&heading));
            current = heading;
        }
        let name = format!("{:width$}", tool.name);
        let on = match tool.nodes.as_deref().unwrap_or_default() {
            [] => String::new(),
            nodes => output.dim(&format!("  [{}]", nodes.join(", "))),
        };
        let line = format!("{}  {}{on}", output.bold(&name), first_sentence(&tool.description));
        output.prose(&line, width + 2);
    }
}

fn show(output: &Output, tool: &ToolInfo) {
    if output.json {
        return output.value(tool);
    }
    output.line(&format!("{}  {}", output.bold(&tool.name), output.dim(&traits(tool))));
    for paragraphs in [&tool.description, &tool.notes].into_iter().filter(|text| !text.is_empty()) {
        output.line("");
        paragraphs.lines().for_each(|line| output.prose(line, 0));
    }
    output.line("");
    output.line(&output.bold("Input"));
    parameters(&tool.input_schema).iter().for_each(|line| output.prose(line, 6));
    output.page(&format!("\n{}", output.bold("Output")));
    match &tool.output_schema {
        None => output.line("  text"),
        Some(schema) => parameters(schema).iter().for_each(|line| output.prose(line, 6)),
    }
    output.page(&format!("\n{}", output.dim("Add --json for the complete schemas.")));
}

fn parse_toolset(name: &str) -> Result<Toolset> {
    Toolset::from_name(name).ok_or_else(|| {
        let names = Toolset::ALL.map(Toolset::name);
        let hint = match nearest(name, names).first() {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the toolsets are {}", names.join(", ")),
        };
        UsageError(format!("unknown toolset \"{name}\"; {hint}")).into()
    })
}

fn traits(tool: &ToolInfo) -> String {
    let mut words = vec![tool.toolset.as_str()];
    let flags = [
        (tool.read_only, "read-only"),
        (tool.destructive, "destructive"),
        (tool.open_world, "uses the network"),
    ];
    words.extend(flags.iter().filter(|(applies, _)| *applies).map(|(_, word)| *word));
    words.extend(tool.capabilities.iter().chain(tool.nodes.iter().flatten()).map(String::as_str));
    words.join(" · ")
}

fn first_sentence(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match joined.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => joined,
    }
}

/// Describes a schema, one line per field: name, type, whether it is required, default, description.
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
