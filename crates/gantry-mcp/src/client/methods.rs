//! `mcp.servers`, `mcp.review` and `mcp.accept`, for the operator: which tools servers offer, and which are accepted.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{
    Empty, ErrorCode, McpAccept, McpAccepted, McpReview, McpReviewed, McpServer, McpServerList, McpTool,
    WireError, method,
};
use serde_json::Value;

use super::{ServerError, Servers, State, ToolStatus, difference};

type Answer<T> = Result<T, WireError>;

/// Characters of the hash of what a person saw.
const SEEN_CHARS: usize = 32;

pub(super) fn methods(servers: &Servers) -> Methods {
    let servers = &Arc::new(servers.clone());
    Methods::default()
        .on_operator(method::MCP_SERVERS, servers, list)
        .on_operator(method::MCP_REVIEW, servers, review)
        .on_operator(method::MCP_ACCEPT, servers, accept)
}

async fn list(servers: Arc<Servers>, _: MethodContext, _: Empty) -> Answer<McpServerList> {
    let server = |name: String| {
        let (tools, problem) = match servers.statuses(&name) {
            Ok(statuses) => (statuses.iter().map(|status| tool(status, None)).collect(), None),
            Err(err) => (Vec::new(), Some(err.to_string())),
        };
        McpServer { tools, problem, confinement: servers.confinement(&name), name }
    };
    Ok(McpServerList {
        servers: servers.names().into_iter().map(server).collect(),
        problems: servers.problems(),
    })
}

/// Asks the server for its tools now.
async fn review(servers: Arc<Servers>, _: MethodContext, params: McpReview) -> Answer<McpReviewed> {
    known(&servers, &params.name)?;
    let statuses = servers.list(&params.name).await.map_err(|err| wire(&err))?;
    Ok(McpReviewed {
        seen: seen(&statuses),
        tools: statuses.iter().map(reviewed).collect(),
        name: params.name,
    })
}

/// Accepts what the operator has seen, and nothing that the server has changed since.
async fn accept(servers: Arc<Servers>, _: MethodContext, params: McpAccept) -> Answer<McpAccepted> {
    let McpAccept { name, tool, seen: shown } = params;
    known(&servers, &name)?;
    let statuses = servers.statuses(&name).map_err(|err| wire(&err))?;
    if seen(&statuses) != shown {
        let message = format!("the tools of {name} have changed since they were shown; review them again");
        return Err(WireError::new(ErrorCode::Conflict, message));
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
    let accepted = servers.accept(&name, tool.as_deref(), now).map_err(|err| wire(&err))?;
    Ok(McpAccepted { name, accepted })
}

fn known(servers: &Servers, name: &str) -> Answer<()> {
    match servers.names().iter().any(|known| known == name) {
        true => Ok(()),
        false => {
            let shown: String = name.chars().take(80).collect();
            let message = format!("unknown MCP server {shown:?}; mcp.servers lists them");
            Err(WireError::new(ErrorCode::NotFound, message))
        }
    }
}

fn tool(status: &ToolStatus, difference: Option<String>) -> McpTool {
    McpTool {
        name: super::shown_name(&status.name),
        state: status.state.name().to_owned(),
        reason: match &status.state {
            State::Unusable(reason) => Some(reason.clone()),
            _ => None,
        },
        difference,
    }
}

fn reviewed(status: &ToolStatus) -> McpTool {
    let nothing = Value::Null;
    let is_open = matches!(status.state, State::New | State::Changed | State::Gone);
    let changes = || {
        difference(status.accepted.as_ref().unwrap_or(&nothing), status.offered.as_ref().unwrap_or(&nothing))
    };
    tool(status, is_open.then(changes))
}

/// Identifies everything that an acceptance would accept.
fn seen(statuses: &[ToolStatus]) -> String {
    let mut hasher = blake3::Hasher::new();
    for status in statuses {
        let text = serde_json::json!([status.name, status.state.name(), status.accepted, status.offered])
            .to_string();
        hasher.update(blake3::hash(text.as_bytes()).as_bytes());
    }
    hasher.finalize().to_hex().chars().take(SEEN_CHARS).collect()
}

fn wire(err: &ServerError) -> WireError {
    WireError::new(ErrorCode::Failed, err.to_string())
}
