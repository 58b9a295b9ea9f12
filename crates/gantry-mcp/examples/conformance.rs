//! The MCP server over a gate with the tools that the protocol's conformance suite requires. It prints the port it listens
//! on. It requires no token, because the gateway checks tokens.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program of the tests"
)]

use std::sync::Arc;
use std::time::Duration;

use gantry_mcp::{Backend, CallRequest, McpServer, Names, OfferedTools, Who, http_service};
use gantry_tool::testing::{MemoryAudit, MemoryResults};
use gantry_tool::{
    Call, Ctx, Decision, Gate, GateParts, GateSettings, Outcome, Policy, Principal, Progress, Refusal,
    Registry, RemoteTool, Reply, Rule, SensitivePaths, Surface, Text, Tool, ToolError, ToolScope, Toolset,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

#[derive(Clone)]
struct Fixtures(Arc<Gate>);

impl Backend for Fixtures {
    async fn offered_tools(&self, _: &Who) -> Result<OfferedTools, Refusal> {
        Ok(OfferedTools { tools: self.0.registry().view(&ToolScope::default()), names: Names::Bare })
    }

    async fn call(&self, who: &Who, asked: CallRequest) -> Outcome {
        let principal = Principal::Mcp { client: who.client.clone() };
        let mut call = Call::new(principal, Surface::Mcp, "/".into());
        (call.cancel, call.progress, call.approver) = (asked.cancel, asked.progress, asked.approver);
        Box::pin(self.0.dispatch(call, &asked.tool, asked.input)).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.registry().changes()
    }
}

/// A fixture of the suite.
#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// Blocks of content.
#[derive(Debug, Serialize, JsonSchema)]
struct Blocks {
    content: Vec<Value>,
}

fn answering(name: &'static str, content: Value) -> Tool {
    let content = Arc::new(content.as_array().cloned().unwrap_or_default());
    Tool::new(name, Toolset::Gantry, &content, async |ctx: Ctx<Vec<Value>>, _: Nothing| {
        Ok(Blocks { content: ctx.state.to_vec() })
    })
    .read_only()
}

fn fixtures() -> Vec<Tool> {
    let text = json!({"type": "text", "text": "Multiple content types test:"});
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let audio = json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"});
    let resource = json!({"type": "resource", "resource": {
        "uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content.",
    }});
    let mixed = json!({"type": "resource", "resource": {
        "uri": "test://mixed-content-resource", "mimeType": "application/json", "text": "{\"test\":\"data\",\"value\":123}",
    }});
    let none = Arc::new(());
    vec![
        Tool::new("test_simple_text", Toolset::Gantry, &none, async |_: Ctx<()>, _: Nothing| {
            Ok(Text("This is a simple text response for testing.".into()))
        })
        .read_only(),
        answering("test_image_content", json!([image])),
        answering("test_audio_content", json!([audio])),
        answering("test_embedded_resource", json!([resource])),
        answering("test_multiple_content_types", json!([text, image, mixed])),
        Tool::new("test_error_handling", Toolset::Assistant, &none, async |_: Ctx<()>, _: Nothing| {
            Err::<Text, _>(ToolError::failed("This tool intentionally returns an error for testing"))
        })
        .read_only(),
        Tool::new("test_tool_with_progress", Toolset::Gantry, &none, progressing).read_only(),
        Tool::new("test_tool_with_logging", Toolset::Gantry, &none, progressing).read_only(),
        Tool::new("test_logging_tool", Toolset::Gantry, &none, progressing).read_only(),
        // Policy requires approval for these, which triggers an elicitation.
        remote("test_elicitation", json!({"type": "object", "properties": {"message": {"type": "string"}}})),
        remote("test_streaming_elicitation", json!({"type": "object"})),
        remote("test_input_required_result_elicitation", json!({"type": "object"})),
        remote("test_input_required_result_request_state", json!({"type": "object"})),
        remote("test_input_required_result_tampered_state", json!({"type": "object"})),
        Tool::new("gsv__ReadFile", Toolset::Native, &none, stored).read_only(),
        with_schema(),
    ]
}

/// A remote tool, whose schema is passed on unchanged.
fn with_schema() -> Tool {
    let street_and_city = json!({
        "$anchor": "addressDef",
        "type": "object",
        "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
    });
    remote(
        "json_schema_2020_12_tool",
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": street_and_city},
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        }),
    )
}

fn remote(name: &str, input_schema: Value) -> Tool {
    let remote = RemoteTool {
        name: name.into(),
        toolset: Toolset::Gantry,
        description: "A tool from elsewhere".into(),
        input_schema,
        output_schema: None,
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
        capabilities: Vec::new(),
    };
    Tool::remote(remote, async |_, _| Ok(Reply::Text("done".into())))
}

/// Where to read.
#[derive(Debug, Deserialize, JsonSchema)]
struct Stored {
    path: String,
}

/// A workspace with one skill in it.
async fn stored(_: Ctx<()>, input: Stored) -> Result<Value, ToolError> {
    let found = match &*input.path {
        "/" => json!({"path": "/", "files": [], "directories": ["skills"]}),
        "skills/" => json!({"path": "skills", "files": [], "directories": ["test_simple_prompt"]}),
        "skills/test_simple_prompt/SKILL.md" => {
            json!({"content": "---\ndescription: A simple prompt\n---\nThis is a simple prompt for testing."})
        }
        other => return Err(ToolError::failed(format!("no such file: {other}"))),
    };
    Ok(json!({"ok": true, "result": found}))
}

async fn progressing(ctx: Ctx<()>, _: Nothing) -> Result<Text, ToolError> {
    for done in [0, 50, 100] {
        if let Some(sink) = &ctx.call.progress {
            sink.report(Progress { done, total: Some(100), message: format!("{done} of 100") });
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    Ok(Text("done".into()))
}

/// One more tool than before.
async fn changing(ctx: Ctx<Registry>, _: Nothing) -> Result<Text, ToolError> {
    ctx.state.replace(remote("test_tool_that_came_later", json!({"type": "object"})));
    Ok(Text("changed".into()))
}

#[tokio::main]
async fn main() {
    let registry = Registry::default();
    fixtures().into_iter().for_each(|tool| drop(registry.replace(tool)));
    let another =
        Tool::new("test_trigger_tool_change", Toolset::Gantry, &Arc::new(registry.clone()), changing);
    registry.replace(another.read_only());
    let asks = ["test_*elicitation", "test_input_required_*"];
    let asks =
        asks.map(|tools| Rule::new("fixtures", tools, Decision::Ask, "the suite wants to be asked").unwrap());
    let policy = Policy::new(asks.into(), SensitivePaths::default(), Vec::new());
    let parts = GateParts::new(Arc::new(MemoryAudit::default()), Arc::new(MemoryResults::default()));
    let gate = Gate::new(GateParts { registry, settings: GateSettings::of(policy), ..parts });
    let server = McpServer::new(Fixtures(Arc::new(gate)), "0.0.0");
    let (service, _) = http_service(server, CancellationToken::new());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}/mcp", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            let _ = connection.await;
        });
    }
}
