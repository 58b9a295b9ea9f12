//! HTTP routes of agents: their sessions, and OpenAI's chat-completions interface.

mod completions;
mod grants;
mod sessions;

use std::sync::Arc;

use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use gantry_domain::RequestContext;

use crate::sessions_api::SessionsApi;

pub(crate) fn routes(api: Arc<SessionsApi>) -> Router<RequestContext> {
    Router::new()
        .route("/v1/agents", get(sessions::agents))
        .route("/v1/models", get(completions::models))
        .route("/v1/models/{name}", get(completions::model))
        .route("/v1/chat/completions", post(completions::complete))
        .route("/v1/sessions", get(sessions::list))
        .route("/v1/sessions/{key}", get(sessions::status))
        .route("/v1/sessions/{key}/events", get(sessions::history))
        .route("/v1/sessions/{key}/messages", post(sessions::message))
        .route("/v1/sessions/{key}/answers", post(sessions::answer))
        .route("/v1/grants", get(grants::list))
        .route("/v1/grants/{id}", delete(grants::revoke))
        .layer(Extension(api))
}
