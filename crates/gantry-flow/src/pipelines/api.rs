//! Who may see and run pipelines over HTTP and the protocol, and the answers to them.

use std::sync::Arc;
use std::time::Duration;

use gantry_domain::Identity;
use gantry_protocol::{
    PipelineAdd, PipelineInfo, PipelineList, PipelineRunList, PipelineRunParams, PipelineRunState,
    PipelineRunsParams, PipelineStatusParams,
};
use gantry_store::{PipelineRow, PipelineRunRow};
use gantry_tool::{Refusal, RefusalCode};
use uuid::Uuid;

use super::error::PipelineError;
use super::service::NewRun;
use super::{answer, costs};
use crate::access::{Named, pick};
use crate::domain::Flow;

const MAX_WAIT_MS: u64 = 120_000;
const LISTED: u32 = 50;
/// The runs among which a beginning of an id is searched.
const SEARCHED: u32 = 1_000;
const MAIN: &str = "main";

/// Checks that a caller may change and run the work of an agent. A pipeline acts with the agent's own tools.
pub(crate) fn check_change(identity: &Identity, agent: &str) -> Result<(), Refusal> {
    let Identity::Client(token) = identity else { return Ok(()) };
    identity.check_agent(agent)?;
    if token.read_only {
        let message = format!("the token \"{}\" is read-only", token.name);
        return Err(Refusal::new(RefusalCode::Denied, message));
    }
    if token.tools.is_some() {
        let message = format!(
            "the token \"{}\" is limited to some tools, and an agent would use its own tools",
            token.name
        );
        let hint = "use a token that was made without --tools";
        return Err(Refusal::new(RefusalCode::Denied, message).with_hint(hint));
    }
    Ok(())
}

impl Flow {
    /// Finds a pipeline among those of the agents that the caller may use.
    pub(crate) async fn find_pipeline(
        &self,
        id: &str,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<PipelineRow, PipelineError> {
        if let Some(row) = self.parts.database.pipeline(id).await?.filter(|row| may_use(&row.agent)) {
            return Ok(row);
        }
        let rows = self.parts.database.list_pipelines().await?;
        let own = rows.into_iter().filter(|row| may_use(&row.agent)).collect();
        pick("pipeline", id, "gantry pipelines", own, |row| Named { id: &row.id, name: Some(&row.name) })
            .map_err(PipelineError::invalid)
    }

    /// Finds a run in the same way.
    pub(crate) async fn find_run(
        &self,
        id: &str,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<PipelineRunRow, PipelineError> {
        if let Some(row) = self.parts.database.pipeline_run(id).await?.filter(|row| may_use(&row.agent)) {
            return Ok(row);
        }
        let rows = self.parts.database.list_pipeline_runs(None, SEARCHED).await?;
        let own = rows.into_iter().filter(|row| may_use(&row.agent)).collect();
        pick("run", id, "gantry pipelines runs", own, |row| Named { id: &row.id, name: None })
            .map_err(PipelineError::invalid)
    }

    async fn pipeline_info(&self, row: PipelineRow) -> Result<PipelineInfo, PipelineError> {
        let definition = Flow::definition_of(&row)?;
        let estimated_cost_usd =
            costs::estimate(&self.parts.database, &definition, self.parts.clock.now()).await?;
        Ok(PipelineInfo {
            id: row.id,
            agent: row.agent,
            definition,
            source: row.source,
            created_by: row.created_by,
            created: row.created,
            estimated_cost_usd,
        })
    }

    async fn state_of(&self, id: &str) -> Result<PipelineRunState, PipelineError> {
        let run = self.run_now(id).await?;
        Ok(answer::run_state(&run, self.run_cost(&run).await?, self.parts.clock.now()))
    }
}

pub(crate) async fn list(flow: &Flow, identity: &Identity) -> Result<PipelineList, Refusal> {
    let rows = flow.parts.database.list_pipelines().await.map_err(store)?;
    let mut pipelines = Vec::with_capacity(rows.len());
    for row in rows.into_iter().filter(|row| identity.may_act_as(&row.agent)) {
        pipelines.push(flow.pipeline_info(row).await.map_err(refused)?);
    }
    Ok(PipelineList { pipelines })
}

pub(crate) async fn get(flow: &Flow, identity: &Identity, id: &str) -> Result<PipelineInfo, Refusal> {
    let row = flow.find_pipeline(id, |agent| identity.may_act_as(agent)).await.map_err(refused)?;
    flow.pipeline_info(row).await.map_err(refused)
}

pub(crate) async fn add(
    flow: &Flow,
    identity: &Identity,
    params: PipelineAdd,
) -> Result<PipelineInfo, Refusal> {
    let agent = params.agent.as_deref().unwrap_or(MAIN);
    check_change(identity, agent)?;
    let authority = flow.parts.sessions.own_authority(agent, &identity.owner());
    let authority = authority.map_err(|err| refused(err.into()))?;
    let id = Uuid::new_v4().simple().to_string()[..16].to_owned();
    let row = flow.store_pipeline(&id, &params.definition, "person", &authority).await.map_err(refused)?;
    flow.pipeline_info(row).await.map_err(refused)
}

pub(crate) async fn remove(flow: &Flow, identity: &Identity, id: &str) -> Result<PipelineInfo, Refusal> {
    let info = get(flow, identity, id).await?;
    check_change(identity, &info.agent)?;
    flow.parts.database.remove_pipeline(&info.id).await.map_err(store)?;
    Ok(info)
}

pub(crate) async fn run(
    flow: &Arc<Flow>,
    identity: &Identity,
    params: PipelineRunParams,
) -> Result<PipelineRunState, Refusal> {
    let id = &params.pipeline_id;
    let row = flow.find_pipeline(id, |agent| identity.may_act_as(agent)).await.map_err(refused)?;
    check_change(identity, &row.agent)?;
    let authority = flow.parts.sessions.own_authority(&row.agent, &identity.owner());
    let new = NewRun {
        id: Uuid::new_v4().simple().to_string()[..16].to_owned(),
        definition: Flow::definition_of(&row).map_err(refused)?,
        pipeline: Some(row),
        context: params.context,
        params: params.params,
        on_failure: params.on_failure,
        modifications: params.modifications,
        authority: authority.map_err(|err| refused(err.into()))?,
        payer: None,
    };
    let id = flow.begin_run(new).await.map_err(refused)?;
    flow.state_of(&id).await.map_err(refused)
}

pub(crate) async fn runs(
    flow: &Flow,
    identity: &Identity,
    params: PipelineRunsParams,
) -> Result<PipelineRunList, Refusal> {
    let pipeline = match &params.pipeline_id {
        Some(id) => Some(get(flow, identity, id).await?.id),
        None => None,
    };
    let limit = usize::try_from(params.limit.unwrap_or(LISTED).clamp(1, SEARCHED)).unwrap_or(1);
    let rows = flow.parts.database.list_pipeline_runs(pipeline.as_deref(), SEARCHED).await.map_err(store)?;
    let rows = rows.into_iter().filter(|row| identity.may_act_as(&row.agent)).take(limit);
    Ok(PipelineRunList { runs: rows.map(answer::run_info).collect() })
}

pub(crate) async fn status(
    flow: &Arc<Flow>,
    identity: &Identity,
    params: PipelineStatusParams,
) -> Result<PipelineRunState, Refusal> {
    let run = flow.find_run(&params.run_id, |agent| identity.may_act_as(agent)).await.map_err(refused)?;
    if params.wait_ms > 0
        && let Some(mut state) = flow.follow_run(&run.id).await.map_err(refused)?
    {
        let limit = Duration::from_millis(params.wait_ms.min(MAX_WAIT_MS));
        // The present state is returned either way.
        let _ = tokio::time::timeout(limit, state.wait_for(|run| run.ended.is_some())).await;
    }
    flow.state_of(&run.id).await.map_err(refused)
}

pub(crate) async fn cancel(
    flow: &Arc<Flow>,
    identity: &Identity,
    id: &str,
) -> Result<PipelineRunState, Refusal> {
    let run = changed_run(flow, identity, id).await?;
    flow.cancel_run(&run, &identity.owner()).await.map_err(refused)?;
    flow.state_of(&run).await.map_err(refused)
}

pub(crate) async fn retry(
    flow: &Arc<Flow>,
    identity: &Identity,
    id: &str,
) -> Result<PipelineRunState, Refusal> {
    let run = changed_run(flow, identity, id).await?;
    flow.retry_run(&run, None, None).await.map_err(refused)?;
    flow.state_of(&run).await.map_err(refused)
}

async fn changed_run(flow: &Flow, identity: &Identity, id: &str) -> Result<String, Refusal> {
    let run = flow.find_run(id, |agent| identity.may_act_as(agent)).await.map_err(refused)?;
    check_change(identity, &run.agent)?;
    Ok(run.id)
}

pub(crate) fn refused(err: PipelineError) -> Refusal {
    err.refusal()
}

pub(crate) fn store(err: gantry_store::DatabaseError) -> Refusal {
    PipelineError::Store(err).refusal()
}
