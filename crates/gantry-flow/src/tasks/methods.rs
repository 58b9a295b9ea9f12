//! Protocol methods of tasks.

use std::sync::Arc;

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{
    TaskAddParams, TaskChanged, TaskChanges, TaskConfirm, TaskHistory, TaskInfo, TaskList, TaskParams,
    TasksListParams, WireError, method,
};

use super::api;
use crate::domain::Flow;
use crate::pipelines::methods::wire;

type Answer<T> = Result<T, WireError>;

pub(crate) fn add(methods: Methods, flow: &Arc<Flow>) -> Methods {
    methods
        .on(method::TASKS_LIST, flow, list)
        .on(method::TASKS_SHOW, flow, show)
        .on(method::TASKS_ADD, flow, add_task)
        .on(method::TASKS_EDIT, flow, edit)
        .on(method::TASKS_RUN, flow, run)
        .on(method::TASKS_CANCEL, flow, cancel)
        .on(method::TASKS_CONFIRM, flow, confirm)
        .on(method::TASKS_HISTORY, flow, history)
}

async fn list(flow: Arc<Flow>, context: MethodContext, params: TasksListParams) -> Answer<TaskList> {
    api::list(&flow, &context.identity, params).await.map_err(wire)
}

async fn show(flow: Arc<Flow>, context: MethodContext, params: TaskParams) -> Answer<TaskInfo> {
    api::show(&flow, &context.identity, &params.id).await.map_err(wire)
}

async fn add_task(flow: Arc<Flow>, context: MethodContext, params: TaskAddParams) -> Answer<TaskChanged> {
    api::add(&flow, &context.identity, params).await.map_err(wire)
}

async fn edit(flow: Arc<Flow>, context: MethodContext, params: TaskChanges) -> Answer<TaskChanged> {
    api::edit(&flow, &context.identity, params).await.map_err(wire)
}

async fn run(flow: Arc<Flow>, context: MethodContext, params: TaskParams) -> Answer<TaskChanged> {
    api::run(&flow, &context.identity, &params.id).await.map_err(wire)
}

async fn cancel(flow: Arc<Flow>, context: MethodContext, params: TaskParams) -> Answer<TaskChanged> {
    api::cancel(&flow, &context.identity, &params.id).await.map_err(wire)
}

async fn confirm(flow: Arc<Flow>, context: MethodContext, params: TaskConfirm) -> Answer<TaskChanged> {
    api::confirm(&flow, &context.identity, &params.id, params.seen.as_deref()).await.map_err(wire)
}

async fn history(flow: Arc<Flow>, context: MethodContext, params: TaskParams) -> Answer<TaskHistory> {
    api::history(&flow, &context.identity, &params.id).await.map_err(wire)
}
