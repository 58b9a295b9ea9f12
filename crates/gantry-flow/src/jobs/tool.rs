//! `gsv__Cron` manages scheduled jobs.

use std::sync::Arc;
use std::time::Instant;

use gantry_agent::{Authority, SessionError};
use gantry_protocol::{AskedAction, CronHistory, CronJob, CronJobInput, CronJobList, CronQueued, CronStatus};
use gantry_tool::{
    Approval, Autonomy, Call, Consent, Done, Effect, Label, Principal, Refusal, RefusalCode, Tool, ToolError,
    Toolset, UNATTENDED_RULE, done,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::info::Job;
use super::service::Agents;
use crate::domain::Flow;
use crate::tools::FlowTools;

type Ctx = gantry_tool::Ctx<FlowTools>;

pub(crate) const NAME: &str = "gsv__Cron";

/// Manage scheduled jobs: an agent's turn or message at a time, at an interval or by a cron expression. A job that an agent adds
/// runs after a person has allowed it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// What to do: status, list, add, update, remove, run or runs.
    action: Action,
    /// The job's id, or a unique beginning of it. Required for update, remove and run with mode force.
    id: Option<String>,
    /// For run: "due" starts due jobs (default), "force" starts the job `id` now. Neither moves its schedule.
    mode: Option<Mode>,
    /// For list and status: only the jobs of this agent. For add: the agent that runs the job (default: yourself).
    agent_id: Option<String>,
    /// For list: whether disabled jobs are included (default true).
    include_disabled: Option<bool>,
    /// For list (1 to 500, default 200) and runs (1 to 2,000, default 200).
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<u32>,
    /// For list and runs: how many to leave out.
    #[schemars(range(max = 1_000_000))]
    offset: Option<u32>,
    /// For add: the job.
    job: Option<CronJobInput>,
    /// For update: the fields to change.
    patch: Option<CronJobInput>,
    /// For runs: only this job.
    job_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    Status,
    List,
    Add,
    Update,
    Remove,
    Run,
    Runs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Due,
    Force,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Output {
    Status(CronStatus),
    List(CronJobList),
    Changed(Changed),
    Removed(Removed),
    Started(Started),
    Runs(CronHistory),
}

#[derive(Debug, Serialize, JsonSchema)]
struct Changed {
    ok: bool,
    job: Box<CronJob>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Removed {
    ok: bool,
    /// False if there is no such job.
    removed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Started {
    ok: bool,
    /// The number of runs that were queued.
    ran: usize,
    results: Vec<CronQueued>,
}

pub(crate) fn tool(state: &Arc<FlowTools>) -> Tool {
    // A person allows each job of an agent, and the calls of its runs go through the gate one by one.
    Tool::new(NAME, Toolset::Native, state, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .works_without_machine()
        .offered_to_agents()
        .labels(&[Label::Private])
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let (flow, call) = (ctx.state.flow()?, &ctx.call);
    let caller = Caller::of(call)?;
    let output = match input.action {
        Action::Status => {
            let chosen = caller.chosen(input.agent_id.as_deref())?;
            Output::Status(flow.jobs_status(chosen.as_deref()).await.map_err(tool_error)?)
        }
        Action::List => {
            let chosen = caller.chosen(input.agent_id.as_deref())?;
            let limit = input.limit.unwrap_or(200).clamp(1, 500);
            let with_disabled = input.include_disabled.unwrap_or(true);
            let listed = flow.list_jobs(chosen.as_deref(), with_disabled, limit, input.offset.unwrap_or(0));
            let listed = listed.await.map_err(tool_error)?;
            let labels = flow.labels_of_jobs(chosen.as_deref()).await.map_err(tool_error)?;
            labels.into_iter().for_each(|label| call.findings.add(label));
            Output::List(listed)
        }
        Action::Add => Output::Changed(add(flow, call, &caller, input).await?),
        Action::Update => Output::Changed(update(flow, call, &caller, input).await?),
        Action::Remove => Output::Removed(remove(flow, call, &caller, input).await?),
        Action::Run => Output::Started(start(flow, &caller, input).await?),
        Action::Runs => {
            let limit = input.limit.unwrap_or(200).clamp(1, 2_000);
            let offset = input.offset.unwrap_or(0);
            let history = flow.jobs_history(input.job_id.as_deref(), caller.agents(), limit, offset);
            let history = history.await.map_err(tool_error)?;
            // An answer may repeat what its run has read.
            if history.runs.iter().any(|run| run.summary.is_some() || run.error.is_some()) {
                call.findings.add(Label::Untrusted);
            }
            Output::Runs(history)
        }
    };
    Ok(done(output))
}

/// Who calls, and whose jobs it sees.
struct Caller {
    /// `None` means all agents.
    own: Option<Vec<String>>,
    agent: String,
    is_agent: bool,
    by: String,
}

impl Caller {
    fn of(call: &Call) -> Result<Caller, ToolError> {
        let by = call.session.clone().unwrap_or_else(|| call.principal.to_string());
        let is_agent = call.session.is_some();
        match call.principal {
            Principal::Operator if !is_agent => {
                Ok(Caller { own: None, agent: call.agent.clone(), is_agent, by })
            }
            Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => Ok(Caller {
                own: Some(vec![call.agent.clone()]),
                agent: call.agent.clone(),
                is_agent: true,
                by,
            }),
            Principal::Client { .. } | Principal::Mcp { .. } => {
                let message = "only agents and their owner can use schedules as a tool";
                Err(ToolError::denied(message)
                    .with_hint("programs use /v1/cron/jobs with a token that names the agents"))
            }
        }
    }

    fn agents(&self) -> Agents<'_> {
        self.own.as_deref()
    }

    /// Checks a chosen agent. An agent may choose only itself.
    fn check(&self, agent: Option<&str>) -> Result<(), ToolError> {
        match (agent, &self.own) {
            (Some(agent), Some(own)) if !own.iter().any(|own| own == agent) => {
                let message = format!("agentId {agent:?} is not yours");
                Err(ToolError::denied(message).with_hint(format!("you are {:?}", self.agent)))
            }
            _ => Ok(()),
        }
    }

    fn chosen(&self, agent: Option<&str>) -> Result<Option<Vec<String>>, ToolError> {
        self.check(agent)?;
        Ok(agent.map(|agent| vec![agent.to_owned()]).or_else(|| self.own.clone()))
    }
}

/// The rights of a job that this call creates for an agent.
async fn authority(flow: &Flow, call: &Call, caller: &Caller, agent: &str) -> Result<Authority, ToolError> {
    let sessions = &flow.parts.sessions;
    match caller.is_agent {
        true => sessions.authority(call).await.map_err(session_error),
        false => sessions.own_authority(agent, &caller.by).map_err(session_error),
    }
}

async fn add(flow: &Arc<Flow>, call: &Call, caller: &Caller, input: Input) -> Result<Changed, ToolError> {
    let job = input.job.ok_or_else(|| ToolError::input("add needs a job with name, schedule and spec"))?;
    let agent = job.agent_id.clone().or(input.agent_id).unwrap_or_else(|| caller.agent.clone());
    caller.check(Some(&agent))?;
    let authority = authority(flow, call, caller, &agent).await?;
    let checked = check(flow, job.clone(), None, agent.clone()).await?;
    let confirmed = match caller.is_agent {
        true => ask(flow, call, &checked.definition, &agent).await?,
        false => Some(caller.by.clone()),
    };
    let stored = flow.store_job(checked, authority, job.enabled.unwrap_or(true), confirmed).await;
    Ok(Changed { ok: true, job: Box::new(stored.map_err(tool_error)?) })
}

async fn update(flow: &Arc<Flow>, call: &Call, caller: &Caller, input: Input) -> Result<Changed, ToolError> {
    let id = input.id.ok_or_else(|| ToolError::input("update needs the id of a job"))?;
    let patch =
        input.patch.ok_or_else(|| ToolError::input("update needs a patch with the fields to change"))?;
    let job = flow.find_job(&id, caller.agents()).await.map_err(tool_error)?;
    let agent = patch.agent_id.clone().unwrap_or_else(|| job.row.agent.clone());
    caller.check(Some(&agent))?;
    let checked = check(flow, patch.clone(), Some(job.definition.clone()), agent.clone()).await?;
    // The name is part of what the agent reads. An agent asks before every change of a job that is not its own.
    let changes_work = checked.definition != job.definition
        || agent != job.row.agent
        || patch.schedule.is_some()
        || patch.enabled == Some(true)
        || (caller.is_agent && !job.authority.by_agent);
    let (authority, confirmed) = match (caller.is_agent, changes_work) {
        // The work gets the rights of whoever changed it.
        (true, true) => {
            let confirmed = ask(flow, call, &checked.definition, &agent).await?;
            (authority(flow, call, caller, &agent).await?, Some(confirmed))
        }
        (false, true) if agent != job.row.agent => {
            (authority(flow, call, caller, &agent).await?, Some(Some(caller.by.clone())))
        }
        (false, _) => (job.authority.clone(), Some(Some(caller.by.clone()))),
        (true, false) => (job.authority.clone(), None),
    };
    let stored = flow.store_job_change(job, &patch, checked, authority, confirmed).await;
    Ok(Changed { ok: true, job: Box::new(stored.map_err(tool_error)?) })
}

/// Checks an input on a thread of its own, because an impossible expression takes long.
async fn check(
    flow: &Arc<Flow>,
    input: CronJobInput,
    old: Option<super::JobDefinition>,
    agent: String,
) -> Result<super::input::CheckedJob, ToolError> {
    flow.checked_job(input, old, agent).await.map_err(tool_error)
}

async fn remove(flow: &Flow, call: &Call, caller: &Caller, input: Input) -> Result<Removed, ToolError> {
    let id = input.id.ok_or_else(|| ToolError::input("remove needs the id of a job"))?;
    let Ok(job) = flow.find_job(&id, caller.agents()).await else {
        return Ok(Removed { ok: true, removed: false });
    };
    if caller.is_agent && (call.autonomy == Autonomy::Supervised || !job.authority.by_agent) {
        approve_removal(flow, call, &job).await?;
    }
    Ok(Removed { ok: true, removed: flow.remove_job(&job).await.map_err(tool_error)? })
}

async fn start(flow: &Flow, caller: &Caller, input: Input) -> Result<Started, ToolError> {
    let job = match &input.id {
        Some(id) => Some(flow.find_job(id, caller.agents()).await.map_err(tool_error)?),
        None => None,
    };
    let results = match (input.mode.unwrap_or(Mode::Due), job) {
        (Mode::Force, None) => return Err(ToolError::input("mode force needs the id of a job")),
        (Mode::Force, Some(job)) => vec![flow.start_job(&job).await.map_err(tool_error)?],
        (Mode::Due, job) => {
            let only = job.as_ref().map(|job| job.row.id.as_str());
            let admitted = flow
                .admit_due(caller.agents(), only)
                .await
                .map_err(|err| ToolError::failed(err.to_string()))?;
            flow.jobs.wake.notify_one();
            admitted.into_iter().flatten().collect()
        }
    };
    Ok(Started { ok: true, ran: results.len(), results })
}

/// Asks a person whether a job may run unattended. Returns who allowed it, or `None` if nobody can be asked now.
async fn ask(
    flow: &Flow,
    call: &Call,
    definition: &super::JobDefinition,
    agent: &str,
) -> Result<Option<String>, ToolError> {
    if call.autonomy == Autonomy::Autonomous || call.approver.is_none() {
        return Ok(None);
    }
    let when = definition.schedule.describe(&flow.parts.zone);
    let channel = match &definition.spec {
        super::JobSpec::Task { deliver: true, to, .. } if to.channel != crate::outbox::SESSION => {
            format!(", which sends its answers to {}", to.channel)
        }
        _ => String::new(),
    };
    let action = AskedAction::Schedule {
        what: format!("{:?} of the agent {agent}{channel}", definition.name),
        when,
        text: definition.spec.text().to_owned(),
        not_shown: 0,
    };
    let input = serde_json::to_value(definition).unwrap_or_default();
    consent(flow, call, action, &input, "an agent plans work that runs without a person").await?;
    Ok(Some("a person's yes to the call".to_owned()))
}

/// Asks a person whether an agent may remove a job.
async fn approve_removal(flow: &Flow, call: &Call, job: &Job) -> Result<(), ToolError> {
    if call.approver.is_none() || call.autonomy == Autonomy::Autonomous {
        return Err(ToolError::denied("removing a job needs a person's yes, and nobody can be asked"));
    }
    let input = json!({"action": "remove", "job": job.row.id, "name": job.definition.name});
    let action = AskedAction::Other { tool: NAME.to_owned(), input: input.clone(), not_shown: 0 };
    consent(flow, call, action, &input, "an agent wants to remove a job").await
}

async fn consent(
    flow: &Flow,
    call: &Call,
    action: AskedAction,
    input: &serde_json::Value,
    reason: &str,
) -> Result<(), ToolError> {
    let Some(approver) = &call.approver else { return Err(ToolError::denied("nobody can be asked")) };
    let masker = flow.parts.masker.clone();
    let approval = Approval::new(&masker, call, NAME, UNATTENDED_RULE, reason, input).about(&masker, action);
    let left = call.deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let limit = left.unwrap_or(approver.limit()).min(approver.limit());
    let answer = tokio::select! {
        () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
        answer = tokio::time::timeout(limit, approver.ask(approval)) => answer,
    };
    match answer {
        Ok(Consent::Allowed | Consent::Granted(_)) => Ok(()),
        Ok(Consent::Denied(why)) => Err(ToolError::denied(why)),
        Err(_) => Err(ToolError::denied("the user did not answer in time")),
    }
}

fn session_error(err: SessionError) -> ToolError {
    match err {
        SessionError::Stopping | SessionError::Store(_) => ToolError::failed(err.to_string()),
        SessionError::Denied(reason) => ToolError::denied(reason),
        other => ToolError::input(other.to_string()),
    }
}

fn tool_error(refusal: Refusal) -> ToolError {
    match refusal.code {
        RefusalCode::InvalidInput => ToolError::input(refusal.to_string()),
        RefusalCode::Denied => ToolError::denied(refusal.to_string()),
        _ => ToolError::failed(refusal.to_string()),
    }
}
