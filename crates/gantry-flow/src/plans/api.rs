//! Plans over HTTP and the protocol: people list and answer them.

use gantry_domain::Identity;
use gantry_protocol::{PlanAnswer, PlanDecision, PlanInfo, PlanList};
use gantry_tool::{Refusal, RefusalCode};

use crate::access::{Named, pick};
use crate::domain::Flow;
use crate::pipelines::PipelineError;
use crate::pipelines::api::{check_change, refused, store};

const MAX_ANSWER_CHARS: usize = 20_000;

pub(crate) async fn list(flow: &Flow, identity: &Identity) -> Result<PlanList, Refusal> {
    let rows = flow.parts.database.open_plans().await.map_err(store)?;
    let plans = rows.into_iter().filter(|row| identity.may_act_as(&row.agent)).map(|row| PlanInfo {
        approval_id: row.id,
        agent: row.agent,
        text: row.shown,
        created_by: row.created_by,
        created: row.created,
    });
    Ok(PlanList { plans: plans.collect() })
}

/// Answers a plan. The first answer counts.
pub(crate) async fn answer(
    flow: &Flow,
    identity: &Identity,
    params: PlanAnswer,
) -> Result<PlanDecision, Refusal> {
    let text = params.answer.trim();
    if text.is_empty() || text.chars().count() > MAX_ANSWER_CHARS {
        let message = format!("an answer must have 1 to {MAX_ANSWER_CHARS} characters");
        return Err(Refusal::new(RefusalCode::InvalidInput, message));
    }
    let open = flow.parts.database.open_plans().await.map_err(store)?;
    let own = open.into_iter().filter(|row| identity.may_act_as(&row.agent)).collect();
    let row = pick("open plan", &params.approval_id, "gantry pipelines plans", own, |row| Named {
        id: &row.id,
        name: None,
    });
    let row = row.map_err(|message| refused(PipelineError::invalid(message)))?;
    check_change(identity, &row.agent)?;
    let now = flow.parts.clock.now();
    flow.parts.database.answer_plan(&row.id, text, &identity.owner(), now).await.map_err(store)?;
    let row = flow.parts.database.plan(&row.id).await.map_err(store)?.unwrap_or(row);
    let decision = flow.decision_of(&row).await.map_err(refused)?;
    if let Some(pipeline) = &decision.pipeline_id {
        flow.parts.database.set_plan_pipeline(&row.id, pipeline).await.map_err(store)?;
    }
    Ok(decision)
}
