//! The MCP client for the protocol's conformance suite. It lists the tools of the given server, logs in if required, accepts
//! the tools, and calls each through a gate. It simulates the browser.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a program of the tests"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gantry_mcp::client::{AddressSpec, Place, Registered, ServerError, ServerSpec, Servers, Surroundings};
use gantry_net::{Client, ClientOptions, HostPattern, Redirects, Request, Url, header};
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::{DataDir, Secrets, ServerRecords};
use gantry_tool::{Answer, Call, Gate, Principal, Registry, Surface};
use serde_json::{Map, Value, json};

const NAME: &str = "suite";
/// Maximum logins per server.
const MAX_LOGINS: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let url = Url::parse(&std::env::args().next_back().unwrap()).unwrap();
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    let (gate, _) = gantry_tool::testing::gate([]);
    let servers = open(&folder.path().join("data"), url, gate.registry().clone());
    match converse(&servers, &gate, &context).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn open(data: &std::path::Path, url: Url, registry: Registry) -> Servers {
    let data = DataDir::new(data.to_owned());
    data.create().unwrap();
    let around = Surroundings {
        processes: Processes::new(ProcessesOptions::new(PathBuf::from("/none"), data.process_logs())),
        variables: Vec::new(),
        closed: Vec::new(),
        secrets: Secrets::new(&data, None),
        records: ServerRecords::new(&data),
        network: ClientOptions::default(),
        version: "0",
    };
    let spec = ServerSpec {
        name: NAME.to_owned(),
        place: Place::Address(AddressSpec { url, headers: Vec::new() }),
        tools: None,
        timeout: Duration::from_secs(20),
        idle: Duration::from_secs(60),
        trust_annotations: false,
    };
    Servers::open(around, registry, vec![spec])
}

async fn converse(servers: &Servers, gate: &Gate, context: &Value) -> Result<(), String> {
    let mut logins = 0;
    loop {
        match servers.list(NAME).await {
            Ok(_) => break,
            Err(ServerError::Login { challenge, .. }) if logins < MAX_LOGINS => {
                logins += 1;
                log_in(servers, &challenge, context).await?;
            }
            Err(err) => return Err(err.to_string()),
        }
    }
    servers.accept(NAME, None, 0).map_err(|err| err.to_string())?;
    let calls: Vec<(String, Value)> = match context["toolCalls"].as_array() {
        Some(calls) => calls
            .iter()
            .map(|call| (call["name"].as_str().unwrap_or_default().to_owned(), given(&call["arguments"])))
            .collect(),
        None => servers
            .statuses(NAME)
            .map_err(|err| err.to_string())?
            .into_iter()
            .filter_map(|status| {
                let schema = status.offered?["inputSchema"].clone();
                Some((status.name, example(&schema, gate.registry())))
            })
            .collect(),
    };
    for (tool, input) in calls {
        loop {
            let call = Call::new(Principal::Operator, Surface::Cli, "/".into());
            let outcome = gate.dispatch(call, &format!("{NAME}__{tool}"), input.clone()).await;
            match outcome.answer {
                Answer::Refused(refusal) => match servers.wanted(NAME) {
                    Some(challenge) if logins < MAX_LOGINS => {
                        logins += 1;
                        log_in(servers, &challenge, context).await?;
                    }
                    _ => {
                        eprintln!("{tool}: {refusal}");
                        break;
                    }
                },
                Answer::Success(_) | Answer::ToolError(_) => break,
            }
        }
    }
    servers.stop().await;
    Ok(())
}

/// Leaves out null values, which the gate rejects if the schema requires another type.
fn given(arguments: &Value) -> Value {
    let fields = arguments.as_object().cloned().unwrap_or_default();
    Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

/// Returns a value that matches a schema.
fn example(schema: &Value, registry: &Registry) -> Value {
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let value = |(number, (name, field)): (usize, (String, Value))| {
        let value = match field["type"].as_str() {
            Some("number" | "integer") => json!(number + 3),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            // A schema is passed as the gate has it.
            Some("object") if name == "schema" => {
                let tool = registry.entries().into_iter().find(|tool| tool.input_schema() != schema);
                tool.map_or(json!({}), |tool| tool.input_schema().clone())
            }
            Some("object") => json!({}),
            _ => field["enum"].get(0).cloned().unwrap_or(json!("text")),
        };
        (name, value)
    };
    Value::Object(fields.into_iter().enumerate().map(value).collect::<Map<_, _>>())
}

async fn log_in(servers: &Servers, challenge: &str, context: &Value) -> Result<(), String> {
    let login = servers.login(NAME).map_err(|err| err.to_string())?.unwrap();
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let registered =
        Registered { client_id: text("client_id"), client_secret: text("client_secret"), scope: None };
    let visit = |url: &Url| drop(tokio::spawn(browse(url.clone())));
    login.log_in(challenge, registered, visit).await.map_err(|err| err.to_string())
}

/// Opens a URL and follows redirects, like a browser whose user is logged in.
async fn browse(url: Url) {
    let hosts = ["127.0.0.1", "localhost"].map(|host| HostPattern::parse(host).unwrap());
    let client = Client::new(ClientOptions { allowed_hosts: hosts.to_vec(), ..ClientOptions::default() });
    let mut next = Some(url);
    while let Some(url) = next {
        let mut request = Request::get(url.clone(), tokio::time::Instant::now() + Duration::from_secs(10));
        request.redirects = Redirects::Stop;
        let Ok(response) = client.send(request).await else { return };
        let to = response.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
        next = to.and_then(|to| url.join(to).ok());
    }
}
