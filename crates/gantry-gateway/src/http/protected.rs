//! `/.well-known/oauth-protected-resource` names the servers that issue tokens for `/mcp`, if configured.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::{json_response, unknown};
use crate::gateway::Gateway;

pub(super) const PATH: &str = "/.well-known/oauth-protected-resource";
/// The path for clients that append the resource's path.
pub(super) const PATH_OF_MCP: &str = "/.well-known/oauth-protected-resource/mcp";

/// `ProtectedResource` is the metadata of RFC 9728.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedResource {
    /// The gateway's URL without a path.
    pub origin: String,
    pub authorization_servers: Vec<String>,
    pub scopes: Vec<String>,
}

pub(super) async fn metadata(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let Some(protected) = &gateway.protected else { return unknown(request).await };
    let mut metadata = json!({
        "resource": format!("{}/mcp", protected.origin),
        "resource_name": "Gantry",
        "authorization_servers": protected.authorization_servers,
        "bearer_methods_supported": ["header"],
    });
    if !protected.scopes.is_empty() {
        metadata["scopes_supported"] = json!(protected.scopes);
    }
    json_response(StatusCode::OK, &metadata)
}

/// Returns the header that names, for a client without a valid token, where to get one.
pub(super) fn challenge(protected: &ProtectedResource) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("Bearer resource_metadata=\"{}{PATH_OF_MCP}\"", protected.origin)).ok()
}
