//! Protocol methods of pipelines, plans and processes.

use std::sync::Arc;

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{
    CapturedProcess, CapturedProcessId, CapturedProcessList, PipelineAdd, PipelineId, PipelineInfo,
    PipelineList, PipelineRunId, PipelineRunList, PipelineRunParams, PipelineRunState, PipelineRunsParams,
    PipelineStatusParams, PlanAnswer, PlanDecision, PlanList, ProcessPromote, PromotedProcess, WireError,
    method,
};
use gantry_tool::Refusal;
use serde::Deserialize;

use super::api;
use crate::domain::Flow;
use crate::{plans, processes};

type Answer<T> = Result<T, WireError>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

pub(crate) fn add(methods: Methods, flow: &Arc<Flow>) -> Methods {
    methods
        .on(method::PIPELINES_LIST, flow, list)
        .on(method::PIPELINES_GET, flow, get)
        .on(method::PIPELINES_ADD, flow, add_pipeline)
        .on(method::PIPELINES_REMOVE, flow, remove)
        .on(method::PIPELINES_RUN, flow, run)
        .on(method::PIPELINES_RUNS, flow, runs)
        .on(method::PIPELINES_STATUS, flow, status)
        .on(method::PIPELINES_CANCEL, flow, cancel)
        .on(method::PIPELINES_RETRY, flow, retry)
        .on(method::PLANS_LIST, flow, list_plans)
        .on(method::PLANS_ANSWER, flow, answer_plan)
        .on(method::PROCESSES_LIST, flow, list_processes)
        .on(method::PROCESSES_GET, flow, get_process)
        .on(method::PROCESSES_PROMOTE, flow, promote_process)
        .on(method::PROCESSES_REMOVE, flow, remove_process)
}

async fn list(flow: Arc<Flow>, context: MethodContext, _: NoParams) -> Answer<PipelineList> {
    api::list(&flow, &context.identity).await.map_err(wire)
}

async fn get(flow: Arc<Flow>, context: MethodContext, params: PipelineId) -> Answer<PipelineInfo> {
    api::get(&flow, &context.identity, &params.id).await.map_err(wire)
}

async fn add_pipeline(flow: Arc<Flow>, context: MethodContext, params: PipelineAdd) -> Answer<PipelineInfo> {
    api::add(&flow, &context.identity, params).await.map_err(wire)
}

async fn remove(flow: Arc<Flow>, context: MethodContext, params: PipelineId) -> Answer<PipelineInfo> {
    api::remove(&flow, &context.identity, &params.id).await.map_err(wire)
}

async fn run(flow: Arc<Flow>, context: MethodContext, params: PipelineRunParams) -> Answer<PipelineRunState> {
    api::run(&flow, &context.identity, params).await.map_err(wire)
}

async fn runs(
    flow: Arc<Flow>,
    context: MethodContext,
    params: PipelineRunsParams,
) -> Answer<PipelineRunList> {
    api::runs(&flow, &context.identity, params).await.map_err(wire)
}

async fn status(
    flow: Arc<Flow>,
    context: MethodContext,
    params: PipelineStatusParams,
) -> Answer<PipelineRunState> {
    api::status(&flow, &context.identity, params).await.map_err(wire)
}

async fn cancel(flow: Arc<Flow>, context: MethodContext, params: PipelineRunId) -> Answer<PipelineRunState> {
    api::cancel(&flow, &context.identity, &params.run_id).await.map_err(wire)
}

async fn retry(flow: Arc<Flow>, context: MethodContext, params: PipelineRunId) -> Answer<PipelineRunState> {
    api::retry(&flow, &context.identity, &params.run_id).await.map_err(wire)
}

async fn list_plans(flow: Arc<Flow>, context: MethodContext, _: NoParams) -> Answer<PlanList> {
    plans::api::list(&flow, &context.identity).await.map_err(wire)
}

async fn answer_plan(flow: Arc<Flow>, context: MethodContext, params: PlanAnswer) -> Answer<PlanDecision> {
    plans::api::answer(&flow, &context.identity, params).await.map_err(wire)
}

async fn list_processes(flow: Arc<Flow>, context: MethodContext, _: NoParams) -> Answer<CapturedProcessList> {
    processes::api::list(&flow, &context.identity).await.map_err(wire)
}

async fn get_process(
    flow: Arc<Flow>,
    context: MethodContext,
    params: CapturedProcessId,
) -> Answer<CapturedProcess> {
    processes::api::get(&flow, &context.identity, &params.id).await.map_err(wire)
}

async fn promote_process(
    flow: Arc<Flow>,
    context: MethodContext,
    params: ProcessPromote,
) -> Answer<PromotedProcess> {
    processes::api::promote(&flow, &context.identity, params).await.map_err(wire)
}

async fn remove_process(
    flow: Arc<Flow>,
    context: MethodContext,
    params: CapturedProcessId,
) -> Answer<CapturedProcess> {
    processes::api::remove(&flow, &context.identity, &params.id).await.map_err(wire)
}

pub(crate) fn wire(refusal: Refusal) -> WireError {
    refusal.to_wire()
}
