//! `GET /v1/tools`: what the caller sees, by both names of node tools.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gantry_tool::{SharedTool, Surface, Toolset, View};
use serde_json::{Value, json};

use super::call::{agent_of, refusal_response};
use super::{json_response, problem};
use crate::auth::Identity;
use crate::callers::Wanted;
use crate::gateway::Gateway;

/// Tools by their names, and those of nodes also once by their bare names with a `node` argument.
pub(crate) fn all(view: &View, toolset: Option<&str>) -> Value {
    let wanted = |set: Toolset| toolset.is_none_or(|name| name == set.name());
    let tools: Vec<Value> =
        view.entries().iter().filter(|tool| wanted(tool.toolset())).map(|tool| tool.to_json()).collect();
    let shared: Vec<Value> =
        view.shared().iter().filter(|_| wanted(Toolset::Node)).map(shared_json).collect();
    json!({"tools": tools, "shared": shared})
}

pub(crate) fn one(view: &View, name: &str) -> Option<Value> {
    let shared = view.shared().into_iter().find(|tool| tool.name == name);
    shared.as_ref().map(shared_json).or_else(|| view.find(name).map(|tool| tool.to_json()))
}

fn shared_json(shared: &SharedTool) -> Value {
    let mut value = shared.tool.to_json();
    value["name"] = json!(shared.name);
    value["inputSchema"] = shared.input_schema();
    value["nodes"] = json!(shared.nodes);
    value
}

pub(super) async fn tools(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let toolset = query.get("toolset").map(String::as_str);
    if let Some(name) = toolset
        && !Toolset::ALL.iter().any(|toolset| toolset.name() == name)
    {
        let known = Toolset::ALL.map(Toolset::name).join(", ");
        let message = format!("there is no such toolset; there are {known}");
        return problem(StatusCode::BAD_REQUEST, "bad_params", &message, None);
    }
    match view(&gateway, &identity, &headers) {
        Ok(view) => json_response(StatusCode::OK, &all(&view, toolset)),
        Err(refused) => *refused,
    }
}

pub(super) async fn tool(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match view(&gateway, &identity, &headers) {
        Ok(view) => match one(&view, &name) {
            Some(tool) => json_response(StatusCode::OK, &tool),
            None => refusal_response(&view.unknown(&name)),
        },
        Err(refused) => *refused,
    }
}

fn view(gateway: &Gateway, identity: &Identity, headers: &HeaderMap) -> Result<View, Box<Response>> {
    let wanted = Wanted { agent: agent_of(headers)?, workspace: None };
    match gateway.call(identity, &wanted, Surface::Http) {
        Ok(call) => Ok(gateway.gate.registry().view(&call.scope)),
        Err(refusal) => Err(Box::new(refusal_response(&refusal))),
    }
}
