//! Protocol methods `cron.*` and routes `/v1/cron/…`. Both check who may do what.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use gantry_domain::http::{Named, Taken, problem, read_body};
use gantry_domain::{Identity, MethodContext, Methods, RequestContext};
use gantry_protocol::{
    CronCancelled, CronConfirm, CronHistory, CronHistoryParams, CronJob, CronJobInput, CronJobList,
    CronListParams, CronParams, CronQueued, CronRemoved, CronStatus, CronStatusParams, CronUpdateParams,
    method,
};
use gantry_tool::{Refusal, RefusalCode};

use super::info::Job;
use super::input::CheckedJob;
use crate::access::{Access, Answer, Seen, answered, bad_query, check, check_operator, own_agents, wire};
use crate::domain::Flow;

const MAIN: &str = "main";

impl Flow {
    /// Checks an input on a thread of its own, because an impossible expression takes up to half a second.
    pub(super) async fn checked_job(
        self: &Arc<Flow>,
        input: CronJobInput,
        old: Option<super::JobDefinition>,
        agent: String,
    ) -> Result<CheckedJob, Refusal> {
        let flow = self.clone();
        let checked = tokio::task::spawn_blocking(move || flow.check_job(&input, old.as_ref(), &agent)).await;
        checked.unwrap_or_else(|err| {
            Err(Refusal::new(RefusalCode::Unavailable, format!("cannot check the job: {err}")))
        })
    }

    async fn job_for(&self, identity: &Identity, id: &str, access: Access) -> Result<Job, Refusal> {
        let job = self.find_job(id, own_agents(identity)).await?;
        check(identity, &job.row.agent, access)?;
        Ok(job)
    }

    pub(super) async fn api_list(
        &self,
        identity: &Identity,
        params: CronListParams,
    ) -> Result<CronJobList, Refusal> {
        let chosen = chosen(identity, params.agent_id)?;
        let limit = params.limit.unwrap_or(200).clamp(1, 500);
        let with_disabled = params.include_disabled.unwrap_or(true);
        self.list_jobs(chosen.as_deref(), with_disabled, limit, params.offset.unwrap_or(0)).await
    }

    pub(super) async fn api_status(
        &self,
        identity: &Identity,
        params: CronStatusParams,
    ) -> Result<CronStatus, Refusal> {
        self.jobs_status(chosen(identity, params.agent_id)?.as_deref()).await
    }

    pub(super) async fn api_show(&self, identity: &Identity, id: &str) -> Result<CronJob, Refusal> {
        let job = self.job_for(identity, id, Access::Read).await?;
        Ok(self.job_info(&job, Vec::new()))
    }

    pub(crate) async fn api_add(
        self: &Arc<Flow>,
        identity: &Identity,
        input: CronJobInput,
    ) -> Result<CronJob, Refusal> {
        let agent = input.agent_id.clone().unwrap_or_else(|| MAIN.to_owned());
        check(identity, &agent, Access::Change)?;
        let by = identity.owner();
        let authority = self.parts.sessions.own_authority(&agent, &by).map_err(invalid)?;
        let enabled = input.enabled.unwrap_or(true);
        let checked = self.checked_job(input, None, agent).await?;
        self.store_job(checked, authority, enabled, Some(by)).await
    }

    pub(super) async fn api_update(
        self: &Arc<Flow>,
        identity: &Identity,
        params: CronUpdateParams,
    ) -> Result<CronJob, Refusal> {
        let job = self.job_for(identity, &params.id, Access::Change).await?;
        let agent = params.patch.agent_id.clone().unwrap_or_else(|| job.row.agent.clone());
        check(identity, &agent, Access::Change)?;
        let checked =
            self.checked_job(params.patch.clone(), Some(job.definition.clone()), agent.clone()).await?;
        let by = identity.owner();
        let authority = match agent == job.row.agent {
            true => job.authority.clone(),
            false => self.parts.sessions.own_authority(&agent, &by).map_err(invalid)?,
        };
        // A job of an agent that nobody allowed stays so until `cron.confirm`.
        let confirmed = job.row.confirmed_by.as_ref().map(|_| Some(by));
        self.store_job_change(job, &params.patch, checked, authority, confirmed).await
    }

    pub(super) async fn api_remove(&self, identity: &Identity, id: &str) -> Result<CronRemoved, Refusal> {
        let job = self.job_for(identity, id, Access::Change).await?;
        Ok(CronRemoved { removed: self.remove_job(&job).await? })
    }

    pub(super) async fn api_run(&self, identity: &Identity, id: &str) -> Result<CronQueued, Refusal> {
        let job = self.job_for(identity, id, Access::Change).await?;
        self.start_job(&job).await
    }

    pub(super) async fn api_pause(&self, identity: &Identity, id: &str) -> Result<CronJob, Refusal> {
        let job = self.job_for(identity, id, Access::Change).await?;
        self.pause_job(&job.row.id, None, &identity.owner()).await
    }

    pub(super) async fn api_resume(&self, identity: &Identity, id: &str) -> Result<CronJob, Refusal> {
        let job = self.job_for(identity, id, Access::Change).await?;
        self.resume_job(&job.row.id, None).await
    }

    pub(super) async fn api_confirm(
        &self,
        identity: &Identity,
        id: &str,
        seen: Option<&str>,
    ) -> Result<CronJob, Refusal> {
        check_operator(identity, "allow a job that an agent added")?;
        self.confirm_job(id, seen, &identity.owner()).await
    }

    pub(super) async fn api_history(
        &self,
        identity: &Identity,
        params: CronHistoryParams,
    ) -> Result<CronHistory, Refusal> {
        let limit = params.limit.unwrap_or(200).clamp(1, 2_000);
        let offset = params.offset.unwrap_or(0);
        self.jobs_history(params.job_id.as_deref(), own_agents(identity), limit, offset).await
    }

    pub(super) async fn api_cancel(&self, identity: &Identity, id: &str) -> Result<CronCancelled, Refusal> {
        let (id, state, agent) = self.find_job_run(id).await?;
        check(identity, &agent, Access::Change)?;
        self.cancel_job_run(&id, &state, &identity.owner()).await
    }
}

fn chosen(identity: &Identity, agent: Option<String>) -> Result<Option<Vec<String>>, Refusal> {
    match agent {
        Some(agent) => {
            check(identity, &agent, Access::Read)?;
            Ok(Some(vec![agent]))
        }
        None => Ok(own_agents(identity).map(<[String]>::to_vec)),
    }
}

fn invalid(err: gantry_agent::SessionError) -> Refusal {
    Refusal::new(RefusalCode::InvalidInput, err.to_string())
}

macro_rules! methods_by_id {
    ($($name:ident -> $result:ty = $api:ident;)+) => {
        $(async fn $name(flow: Arc<Flow>, context: MethodContext, params: CronParams) -> Answer<$result> {
            flow.$api(&context.identity, &params.id).await.map_err(wire)
        })+
    };
}
methods_by_id! {
    show -> CronJob = api_show;
    remove -> CronRemoved = api_remove;
    run -> CronQueued = api_run;
    pause -> CronJob = api_pause;
    resume -> CronJob = api_resume;
    cancel -> CronCancelled = api_cancel;
}

async fn list(flow: Arc<Flow>, context: MethodContext, params: CronListParams) -> Answer<CronJobList> {
    flow.api_list(&context.identity, params).await.map_err(wire)
}

async fn status(flow: Arc<Flow>, context: MethodContext, params: CronStatusParams) -> Answer<CronStatus> {
    flow.api_status(&context.identity, params).await.map_err(wire)
}

async fn add(flow: Arc<Flow>, context: MethodContext, params: CronJobInput) -> Answer<CronJob> {
    flow.api_add(&context.identity, params).await.map_err(wire)
}

async fn update(flow: Arc<Flow>, context: MethodContext, params: CronUpdateParams) -> Answer<CronJob> {
    flow.api_update(&context.identity, params).await.map_err(wire)
}

async fn confirm(flow: Arc<Flow>, context: MethodContext, params: CronConfirm) -> Answer<CronJob> {
    flow.api_confirm(&context.identity, &params.id, params.seen.as_deref()).await.map_err(wire)
}

async fn history(flow: Arc<Flow>, context: MethodContext, params: CronHistoryParams) -> Answer<CronHistory> {
    flow.api_history(&context.identity, params).await.map_err(wire)
}

pub(crate) fn methods(methods: Methods, flow: &Arc<Flow>) -> Methods {
    methods
        .on(method::CRON_LIST, flow, list)
        .on(method::CRON_SHOW, flow, show)
        .on(method::CRON_STATUS, flow, status)
        .on(method::CRON_ADD, flow, add)
        .on(method::CRON_UPDATE, flow, update)
        .on(method::CRON_REMOVE, flow, remove)
        .on(method::CRON_RUN, flow, run)
        .on(method::CRON_PAUSE, flow, pause)
        .on(method::CRON_RESUME, flow, resume)
        .on(method::CRON_CONFIRM, flow, confirm)
        .on(method::CRON_HISTORY, flow, history)
        .on(method::CRON_CANCEL, flow, cancel)
}

type State = Extension<Arc<Flow>>;
type Who = Extension<Identity>;
type Context = axum::extract::State<RequestContext>;

macro_rules! routes_by_id {
    ($($name:ident = $api:ident;)+) => {
        $(async fn $name(Extension(flow): State, Extension(identity): Who, Named(id): Named) -> Response {
            answered(flow.$api(&identity, &id).await)
        })+
    };
}
routes_by_id! {
    show_route = api_show;
    remove_route = api_remove;
    run_route = api_run;
    pause_route = api_pause;
    resume_route = api_resume;
    cancel_route = api_cancel;
}

pub(crate) fn routes() -> Router<RequestContext> {
    Router::new()
        .route("/v1/cron/jobs", get(list_route).post(add_route))
        .route("/v1/cron/jobs/{id}", get(show_route).patch(update_route).delete(remove_route))
        .route("/v1/cron/jobs/{id}/run", post(run_route))
        .route("/v1/cron/jobs/{id}/pause", post(pause_route))
        .route("/v1/cron/jobs/{id}/resume", post(resume_route))
        .route("/v1/cron/jobs/{id}/confirm", post(confirm_route))
        .route("/v1/cron/runs", get(history_route))
        .route("/v1/cron/runs/{id}/cancel", post(cancel_route))
        .route("/v1/cron/status", get(status_route))
}

async fn list_route(
    Extension(flow): State,
    Extension(identity): Who,
    params: Result<Query<CronListParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(flow.api_list(&identity, params).await),
        Err(err) => bad_query(&err),
    }
}

async fn confirm_route(
    Extension(flow): State,
    Extension(identity): Who,
    Named(id): Named,
    params: Result<Query<Seen>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(Seen { seen })) => answered(flow.api_confirm(&identity, &id, seen.as_deref()).await),
        Err(err) => bad_query(&err),
    }
}

async fn status_route(
    Extension(flow): State,
    Extension(identity): Who,
    params: Result<Query<CronStatusParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(flow.api_status(&identity, params).await),
        Err(err) => bad_query(&err),
    }
}

async fn history_route(
    Extension(flow): State,
    Extension(identity): Who,
    params: Result<Query<CronHistoryParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(params)) => answered(flow.api_history(&identity, params).await),
        Err(err) => bad_query(&err),
    }
}

async fn add_route(
    Extension(flow): State,
    Extension(identity): Who,
    context: Context,
    request: Request,
) -> Response {
    match job_input(&context, &identity, request).await {
        Ok(input) => answered(flow.api_add(&identity, input).await),
        Err(response) => *response,
    }
}

async fn update_route(
    Extension(flow): State,
    Extension(identity): Who,
    Named(id): Named,
    context: Context,
    request: Request,
) -> Response {
    match job_input(&context, &identity, request).await {
        Ok(patch) => answered(flow.api_update(&identity, CronUpdateParams { id, patch }).await),
        Err(response) => *response,
    }
}

async fn job_input(
    context: &Context,
    identity: &Identity,
    request: Request,
) -> Result<CronJobInput, Box<Response>> {
    let Taken { bytes, .. } = read_body(&context.quota.of(identity), request.into_body()).await?;
    serde_json::from_slice(&bytes).map_err(|err| {
        let message = format!("invalid body: {err}");
        Box::new(problem(StatusCode::BAD_REQUEST, "invalid_input", &message, None))
    })
}
