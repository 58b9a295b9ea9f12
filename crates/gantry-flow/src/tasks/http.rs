//! HTTP routes of tasks. They answer like the protocol methods.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use gantry_domain::http::{Named, problem};
use gantry_domain::{Identity, RequestContext};
use gantry_protocol::{TaskAddParams, TaskChanges, TasksListParams};

use super::api;
use crate::access::Seen;
use crate::domain::Flow;
use crate::pipelines::http::{answered, body};

type Shared = Extension<Arc<Flow>>;
type Caller = Extension<Identity>;

pub(crate) fn routes(flow: Arc<Flow>) -> Router<RequestContext> {
    Router::new()
        .route("/v1/tasks", get(list).post(add))
        .route("/v1/tasks/{id}", get(show).patch(edit))
        .route("/v1/tasks/{id}/runs", get(history).post(run))
        .route("/v1/tasks/{id}/cancel", post(cancel))
        .route("/v1/tasks/{id}/confirm", post(confirm))
        .layer(Extension(flow))
}

async fn list(
    Extension(flow): Shared,
    Extension(identity): Caller,
    params: Result<Query<TasksListParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(api::list(&flow, &identity, params).await),
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

async fn add(
    State(context): State<RequestContext>,
    Extension(flow): Shared,
    Extension(identity): Caller,
    request: Request,
) -> Response {
    match body::<TaskAddParams>(&context, &identity, request, None).await {
        Ok(params) => answered(api::add(&flow, &identity, params).await),
        Err(refused) => *refused,
    }
}

async fn show(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::show(&flow, &identity, &id).await)
}

async fn edit(
    State(context): State<RequestContext>,
    Extension(flow): Shared,
    Extension(identity): Caller,
    Named(id): Named,
    request: Request,
) -> Response {
    match body::<TaskChanges>(&context, &identity, request, Some(("task_id", id))).await {
        Ok(changes) => answered(api::edit(&flow, &identity, changes).await),
        Err(refused) => *refused,
    }
}

async fn run(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::run(&flow, &identity, &id).await)
}

async fn cancel(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::cancel(&flow, &identity, &id).await)
}

async fn confirm(
    Extension(flow): Shared,
    Extension(identity): Caller,
    Named(id): Named,
    params: Result<Query<Seen>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(Seen { seen })) => answered(api::confirm(&flow, &identity, &id, seen.as_deref()).await),
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

async fn history(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::history(&flow, &identity, &id).await)
}
