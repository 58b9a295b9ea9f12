//! Protocol methods `outbox.*` and routes `/v1/outbox`.

use std::sync::Arc;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use gantry_domain::http::Named;
use gantry_domain::{Identity, MethodContext, Methods, RequestContext};
use gantry_protocol::{OutboxList, OutboxListParams, OutboxMessage, OutboxParams, method};

use crate::access::{Access, Answer, answered, bad_query, wire};
use crate::domain::Flow;

pub(crate) fn methods(methods: Methods, flow: &Arc<Flow>) -> Methods {
    methods
        .on(method::OUTBOX_LIST, flow, list)
        .on(method::OUTBOX_SHOW, flow, show)
        .on(method::OUTBOX_RESEND, flow, resend)
        .on(method::OUTBOX_ARRIVED, flow, arrived)
        .on(method::OUTBOX_DROP, flow, drop_message)
}

async fn list(flow: Arc<Flow>, context: MethodContext, params: OutboxListParams) -> Answer<OutboxList> {
    flow.list_outbox(&context.identity, &params).await.map_err(wire)
}

async fn show(flow: Arc<Flow>, context: MethodContext, params: OutboxParams) -> Answer<OutboxMessage> {
    flow.outbox_message(&context.identity, &params.id, Access::Read).await.map_err(wire)
}

async fn resend(flow: Arc<Flow>, context: MethodContext, params: OutboxParams) -> Answer<OutboxMessage> {
    flow.resend_outbox(&context.identity, &params.id).await.map_err(wire)
}

async fn arrived(flow: Arc<Flow>, context: MethodContext, params: OutboxParams) -> Answer<OutboxMessage> {
    flow.arrived_outbox(&context.identity, &params.id).await.map_err(wire)
}

async fn drop_message(
    flow: Arc<Flow>,
    context: MethodContext,
    params: OutboxParams,
) -> Answer<OutboxMessage> {
    flow.drop_outbox(&context.identity, &params.id).await.map_err(wire)
}

pub(crate) fn routes() -> Router<RequestContext> {
    Router::new()
        .route("/v1/outbox", get(list_route))
        .route("/v1/outbox/{id}", get(show_route).delete(drop_route))
        .route("/v1/outbox/{id}/resend", post(resend_route))
        .route("/v1/outbox/{id}/arrived", post(arrived_route))
}

type State = Extension<Arc<Flow>>;

async fn list_route(
    Extension(flow): State,
    Extension(identity): Extension<Identity>,
    params: Result<Query<OutboxListParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(flow.list_outbox(&identity, &params).await),
        Err(err) => bad_query(&err),
    }
}

async fn show_route(
    Extension(flow): State,
    Extension(identity): Extension<Identity>,
    Named(id): Named,
) -> Response {
    answered(flow.outbox_message(&identity, &id, Access::Read).await)
}

async fn drop_route(
    Extension(flow): State,
    Extension(identity): Extension<Identity>,
    Named(id): Named,
) -> Response {
    answered(flow.drop_outbox(&identity, &id).await)
}

async fn resend_route(
    Extension(flow): State,
    Extension(identity): Extension<Identity>,
    Named(id): Named,
) -> Response {
    answered(flow.resend_outbox(&identity, &id).await)
}

async fn arrived_route(
    Extension(flow): State,
    Extension(identity): Extension<Identity>,
    Named(id): Named,
) -> Response {
    answered(flow.arrived_outbox(&identity, &id).await)
}
