//! `/v1/grants`: approvals that also cover later calls.

use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::Response;
use gantry_domain::Identity;
use gantry_domain::http::{Named, problem};
use gantry_protocol::GrantsListParams;

use super::sessions::answered;
use crate::sessions_api::SessionsApi;

pub(super) async fn list(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    params: Result<Query<GrantsListParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(api.list_grants(&identity, params.agent.as_deref()).await),
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

pub(super) async fn revoke(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    Named(id): Named,
) -> Response {
    answered(api.revoke_grant(&identity, &id).await)
}
