//! Internal errors are logged under an id that the answer contains.

use std::fmt::Display;

use axum::http::StatusCode;
use axum::response::Response;

use super::problem;

/// Logs `error` under a new id, and answers with `message` and that id.
pub(super) fn internal_error(message: &str, error: &dyn Display) -> Response {
    let id = uuid::Uuid::new_v4();
    tracing::error!(%id, %error, "internal_error");
    let message = format!("{message}; see {id} in the gateway's log");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", &message, None)
}
