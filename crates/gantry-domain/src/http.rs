//! Answers and bodies of HTTP requests, the same for the gateway's own routes and those of domains.

mod body;

use std::fmt::Display;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
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

/// Logs `error` under a new id, and answers with `message` and that id.
pub fn internal_error(message: &str, error: &dyn Display) -> Response {
    let id = uuid::Uuid::new_v4();
    tracing::error!(%id, %error, "internal_error");
    let message = format!("{message}; see {id} in the gateway's log");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", &message, None)
}

/// The value of a header that must not be repeated.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Box<Response>> {
    let mut given = headers.get_all(name).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| bad_header(name, "visible ASCII text")),
        (Some(_), Some(_)) => {
            let message = format!("the header {name} must not be repeated");
            Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_params", &message, None)))
        }
    }
}

/// The answer to a header with an invalid value.
pub fn bad_header(name: &str, expected: &str) -> Box<Response> {
    let message = format!("the header {name} must be {expected}");
    Box::new(problem(StatusCode::BAD_REQUEST, "bad_params", &message, None))
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
