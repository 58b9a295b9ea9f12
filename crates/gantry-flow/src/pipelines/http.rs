//! HTTP routes of pipelines, plans and processes. They answer like the protocol methods.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use gantry_domain::http::{Named, json_response, problem, read_body, refusal_response};
use gantry_domain::{Identity, RequestContext};
use gantry_protocol::{
    PipelineAdd, PipelineRunParams, PipelineRunsParams, PipelineStatusParams, PlanAnswer, ProcessPromote,
};
use gantry_tool::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::api;
use crate::domain::Flow;
use crate::{plans, processes};

type Shared = Extension<Arc<Flow>>;
type Caller = Extension<Identity>;

pub(crate) fn routes(flow: Arc<Flow>) -> Router<RequestContext> {
    Router::new()
        .route("/v1/pipelines", get(list).post(add))
        .route("/v1/pipelines/{id}", get(show).delete(remove))
        .route("/v1/pipelines/{id}/runs", post(run))
        .route("/v1/pipeline-runs", get(runs))
        .route("/v1/pipeline-runs/{id}", get(status))
        .route("/v1/pipeline-runs/{id}/cancel", post(cancel))
        .route("/v1/pipeline-runs/{id}/retry", post(retry))
        .route("/v1/plans", get(list_plans))
        .route("/v1/plans/{id}/answer", post(answer_plan))
        .route("/v1/processes", get(list_processes))
        .route("/v1/processes/{id}", get(show_process).delete(remove_process))
        .route("/v1/processes/{id}/promote", post(promote))
        .layer(Extension(flow))
}

async fn list(Extension(flow): Shared, Extension(identity): Caller) -> Response {
    answered(api::list(&flow, &identity).await)
}

async fn show(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::get(&flow, &identity, &id).await)
}

async fn remove(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::remove(&flow, &identity, &id).await)
}

async fn add(
    State(context): State<RequestContext>,
    Extension(flow): Shared,
    Extension(identity): Caller,
    request: Request,
) -> Response {
    match body::<PipelineAdd>(&context, &identity, request, None).await {
        Ok(params) => answered(api::add(&flow, &identity, params).await),
        Err(refused) => *refused,
    }
}

async fn run(
    State(context): State<RequestContext>,
    Extension(flow): Shared,
    Extension(identity): Caller,
    Named(id): Named,
    request: Request,
) -> Response {
    match body::<PipelineRunParams>(&context, &identity, request, Some(("pipelineId", id))).await {
        Ok(params) => answered(api::run(&flow, &identity, params).await),
        Err(refused) => *refused,
    }
}

async fn runs(
    Extension(flow): Shared,
    Extension(identity): Caller,
    params: Result<Query<PipelineRunsParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(api::runs(&flow, &identity, params).await),
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Wait {
    wait_ms: u64,
}

async fn status(
    Extension(flow): Shared,
    Extension(identity): Caller,
    Named(run_id): Named,
    params: Result<Query<Wait>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(Wait { wait_ms })) => {
            answered(api::status(&flow, &identity, PipelineStatusParams { run_id, wait_ms }).await)
        }
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

async fn cancel(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::cancel(&flow, &identity, &id).await)
}

async fn retry(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(api::retry(&flow, &identity, &id).await)
}

async fn list_plans(Extension(flow): Shared, Extension(identity): Caller) -> Response {
    answered(plans::api::list(&flow, &identity).await)
}

async fn answer_plan(
    State(context): State<RequestContext>,
    Extension(flow): Shared,
    Extension(identity): Caller,
    Named(id): Named,
    request: Request,
) -> Response {
    match body::<PlanAnswer>(&context, &identity, request, Some(("approvalId", id))).await {
        Ok(params) => answered(plans::api::answer(&flow, &identity, params).await),
        Err(refused) => *refused,
    }
}

async fn list_processes(Extension(flow): Shared, Extension(identity): Caller) -> Response {
    answered(processes::api::list(&flow, &identity).await)
}

async fn show_process(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(processes::api::get(&flow, &identity, &id).await)
}

async fn remove_process(Extension(flow): Shared, Extension(identity): Caller, Named(id): Named) -> Response {
    answered(processes::api::remove(&flow, &identity, &id).await)
}

async fn promote(
    State(context): State<RequestContext>,
    Extension(flow): Shared,
    Extension(identity): Caller,
    Named(id): Named,
    request: Request,
) -> Response {
    match body::<ProcessPromote>(&context, &identity, request, Some(("id", id))).await {
        Ok(params) => answered(processes::api::promote(&flow, &identity, params).await),
        Err(refused) => *refused,
    }
}

pub(crate) fn answered<T: Serialize>(answer: Result<T, Refusal>) -> Response {
    match answer {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(refusal) => refusal_response(&refusal),
    }
}

/// Reads a JSON body. `named` is a field that comes from the path. An empty body is an empty object.
pub(crate) async fn body<T: DeserializeOwned>(
    context: &RequestContext,
    identity: &Identity,
    request: Request,
    named: Option<(&str, String)>,
) -> Result<T, Box<Response>> {
    let taken = read_body(&context.quota.of(identity), request.into_body()).await?;
    let wrong = |err: serde_json::Error| {
        let message = format!("invalid body: {err}");
        Box::new(problem(StatusCode::BAD_REQUEST, "invalid_input", &message, None))
    };
    let mut fields: Map<String, Value> = match taken.bytes.is_empty() {
        true => Map::new(),
        false => serde_json::from_slice(&taken.bytes).map_err(wrong)?,
    };
    if let Some((name, value)) = named {
        fields.insert(name.to_owned(), Value::String(value));
    }
    serde_json::from_value(Value::Object(fields)).map_err(wrong)
}
