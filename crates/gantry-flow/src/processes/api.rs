//! Processes over HTTP and the protocol.

use gantry_domain::Identity;
use gantry_protocol::{CapturedProcess, CapturedProcessList, ProcessPromote, PromotedProcess};
use gantry_store::ProcessRow;
use gantry_tool::Refusal;

use super::capture::Recording;
use crate::domain::Flow;
use crate::pipelines::PipelineError;
use crate::pipelines::api::{check_change, refused, store};
use crate::pipelines::state;

pub(crate) async fn list(flow: &Flow, identity: &Identity) -> Result<CapturedProcessList, Refusal> {
    let rows = flow.parts.database.list_processes().await.map_err(store)?;
    let own = rows.into_iter().filter(|row| identity.may_act_as(&row.agent));
    Ok(CapturedProcessList { processes: own.map(shown).collect::<Result<_, _>>()? })
}

pub(crate) async fn get(flow: &Flow, identity: &Identity, id: &str) -> Result<CapturedProcess, Refusal> {
    shown(found(flow, identity, id).await?)
}

pub(crate) async fn promote(
    flow: &Flow,
    identity: &Identity,
    params: ProcessPromote,
) -> Result<PromotedProcess, Refusal> {
    let row = found(flow, identity, &params.id).await?;
    check_change(identity, &row.agent)?;
    let authority = flow.parts.sessions.own_authority(&row.agent, &identity.owner());
    let authority = authority.map_err(|err| refused(err.into()))?;
    flow.promote(&row, &params.parameter_values, authority).await.map_err(refused)
}

pub(crate) async fn remove(flow: &Flow, identity: &Identity, id: &str) -> Result<CapturedProcess, Refusal> {
    let row = found(flow, identity, id).await?;
    check_change(identity, &row.agent)?;
    flow.parts.database.remove_process(&row.id).await.map_err(store)?;
    shown(row)
}

async fn found(flow: &Flow, identity: &Identity, id: &str) -> Result<ProcessRow, Refusal> {
    flow.find_process(id, |agent| identity.may_act_as(agent)).await.map_err(refused)
}

fn shown(row: ProcessRow) -> Result<CapturedProcess, Refusal> {
    let Recording { steps, parameters } =
        state::parse(&row.record).map_err(|err| refused(PipelineError::Store(err)))?;
    Ok(CapturedProcess {
        id: row.id,
        agent: row.agent,
        name: row.name,
        description: row.description,
        steps,
        parameters,
        session_key: row.session,
        created: row.created,
        pipeline_id: row.pipeline,
    })
}
