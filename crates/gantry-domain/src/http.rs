//! Answers and bodies of HTTP requests, the same for the gateway's own routes and those of domains.

mod body;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gantry_protocol::{HttpError, HttpProblem};
use gantry_tool::{Refusal, RefusalCode};
use serde::Serialize;

pub use body::{AfterRun, Taken, held, read_body};
/// Memory that a body takes from its caller's quota, until it is dropped.
pub use gantry_link::Reservation;

/// The name in a path, or an error response if it is invalid.
pub struct Named(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, Response> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Named(name)),
            Err(err) => Err(problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None)),
        }
    }
}

/// The error object of everything that is not a tool's own error: `{"error":{"code","message","hint"?}}`.
pub fn problem(status: StatusCode, code: &str, message: &str, hint: Option<&str>) -> Response {
    let (code, message, hint) = (code.to_owned(), message.to_owned(), hint.map(str::to_owned));
    json_response(status, &HttpProblem { error: HttpError { code, message, hint } })
}

pub fn json_response<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (status, headers, Body::from(serde_json::to_string(value).unwrap_or_default())).into_response()
}

/// The answer to a refused call or request.
pub fn refusal_response(refusal: &Refusal) -> Response {
    let status = match refusal.code {
        RefusalCode::UnknownTool => StatusCode::NOT_FOUND,
        RefusalCode::InvalidInput => StatusCode::BAD_REQUEST,
        RefusalCode::Denied => StatusCode::FORBIDDEN,
        RefusalCode::ApprovalNeeded => StatusCode::CONFLICT,
        RefusalCode::Unaudited | RefusalCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        RefusalCode::Deadline => StatusCode::GATEWAY_TIMEOUT,
        RefusalCode::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
    };
    json_response(status, &refusal.to_json())
}
