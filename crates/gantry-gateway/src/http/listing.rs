//! `GET /v1/tools` lists the caller's tools, with both names of node tools.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gantry_domain::Identity;
use gantry_domain::http::refusal_response;
use gantry_protocol::ToolList;
use gantry_tool::{Surface, Toolset, View};

use super::call::agent_of;
use super::{Named, json_response, problem};
use crate::callers::Wanted;
use crate::gateway::Gateway;

pub(super) async fn tools(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    query: Result<Query<HashMap<String, String>>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(err) => return problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    };
    let toolset = match query.get("toolset").map(|name| Toolset::from_name(name).ok_or(())).transpose() {
        Ok(toolset) => toolset,
        Err(()) => {
            let known = Toolset::ALL.map(Toolset::name).join(", ");
            let message = format!("unknown toolset; use one of {known}");
            return problem(StatusCode::BAD_REQUEST, "bad_params", &message, None);
        }
    };
    match view(&gateway, &identity, &headers) {
        Ok(view) => json_response(StatusCode::OK, &ToolList { tools: view.list(toolset), listed: None }),
        Err(refused) => *refused,
    }
}

pub(super) async fn tool(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Named(name): Named,
    headers: HeaderMap,
) -> Response {
    match view(&gateway, &identity, &headers) {
        Ok(view) => match view.describe(&name) {
            Some(tool) => json_response(StatusCode::OK, &tool),
            None => refusal_response(&view.unknown(&name)),
        },
        Err(refused) => *refused,
    }
}

fn view(gateway: &Gateway, identity: &Identity, headers: &HeaderMap) -> Result<View, Box<Response>> {
    let wanted = Wanted { agent: agent_of(headers)?, ..Wanted::default() };
    match gateway.call(identity, &wanted, Surface::Http) {
        Ok(call) => Ok(gateway.gate.registry().view(&call.scope)),
        Err(refusal) => Err(Box::new(refusal_response(&refusal))),
    }
}
