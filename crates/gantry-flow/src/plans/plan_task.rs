//! `plan_task` presents a plan to a person and waits for the answer.

use std::sync::Arc;
use std::time::Duration;

use gantry_agent::Authority;
use gantry_protocol::{PlanDecision, PlannedStep};
use gantry_store::PlanRow;
use gantry_tool::{Call, Label, Text, Tool, ToolError, Toolset, UserQuestion};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::plan::{Phase, Plan, PlanContext};
use crate::domain::Flow;
use crate::pipelines::run_pipeline::{check_caller, id_of, to_text};
use crate::pipelines::{PipelineError, costs};
use crate::tools::FlowTools;

type Ctx = gantry_tool::Ctx<FlowTools>;

const OPTIONS: [&str; 3] = ["Proceed", "Adjust", "Cancel"];
const QUESTION: &str = "Proceed with this plan?";
/// The answer comes this long before the deadline of the call.
const BEFORE_DEADLINE: Duration = Duration::from_secs(5);

/// Present a plan to the user before a complex task, and wait for the answer. Give phases (with name and steps) or steps. When
/// the user approves phases, the answer has a pipeline_id for run_pipeline. If the answer is pending, do not act on the plan;
/// call again with approval_id later.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// What will be done, in plain language.
    summary: Option<String>,
    /// What you found out before you made the plan.
    context: Option<PlanContext>,
    /// The phases, at most 20. The agent's phases become a workflow for run_pipeline.
    phases: Option<Vec<Phase>>,
    /// A flat list of steps, in place of phases. It becomes no workflow.
    steps: Option<Vec<String>>,
    /// Reads the answer to an earlier plan, in place of presenting one.
    approval_id: Option<String>,
}

pub(super) const NAME: &str = "plan_task";

pub(super) fn tool(state: &Arc<FlowTools>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, state, run)
        .additive()
        .effects(&[])
        .resumable()
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let (flow, call) = (ctx.state.flow()?, &ctx.call);
    check_caller(call)?;
    if let Some(id) = &input.approval_id {
        if input.summary.is_some() || input.phases.is_some() || input.steps.is_some() {
            return Err(ToolError::input("approval_id reads an answer; leave out summary, phases and steps"));
        }
        let decision = earlier(flow, call, id).await?;
        note_feedback(call, &decision);
        return to_text(&decision);
    }
    let plan = Plan {
        summary: input.summary.unwrap_or_default(),
        context: input.context,
        phases: input.phases,
        steps: input.steps,
    };
    let errors = plan.errors();
    if !errors.is_empty() {
        return Err(PipelineError::Invalid(errors).into());
    }
    let authority = flow.parts.sessions.authority(call).await.map_err(PipelineError::from)?;
    let id = id_of(call, NAME);
    let decision = match ask(flow, call, &plan).await? {
        Some(answer) => flow.decide_plan(&id, &plan, &answer, &authority).await?,
        None => flow.keep_plan(&id, &plan, &authority).await?,
    };
    note_feedback(call, &decision);
    to_text(&decision)
}

/// An untrusted page may have prompted the agent to ask, so the person's own text is private.
fn note_feedback(call: &Call, decision: &PlanDecision) {
    if decision.feedback.is_some() {
        call.findings.add(Label::Private);
    }
}

/// Asks the person. `None` if nobody can be asked or nobody answered.
async fn ask(flow: &Flow, call: &Call, plan: &Plan) -> Result<Option<String>, ToolError> {
    let Some(asker) = &call.asker else { return Ok(None) };
    let text = plan.text(flow.plan_cost(plan).await?);
    let question = UserQuestion {
        question: format!("{text}\n{QUESTION}"),
        heading: None,
        header: None,
        options: OPTIONS.map(str::to_owned).to_vec(),
    };
    let deadline = call.deadline.and_then(|deadline| deadline.checked_sub(BEFORE_DEADLINE));
    let until = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(Instant::from_std(deadline)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        answers = asker.ask(vec![question]) => Ok(answers.map(|answers| answers.join("\n"))),
        () = call.cancel.cancelled() => Err(ToolError::Cancelled),
        () = until => Ok(None),
    }
}

/// Returns the answer to a plan of the caller's agent.
async fn earlier(flow: &Flow, call: &Call, id: &str) -> Result<PlanDecision, PipelineError> {
    let known = flow.parts.database.plan(id).await?.filter(|row| row.agent == call.agent);
    let row = known.ok_or_else(|| PipelineError::invalid(format!("unknown approval_id {id:?}")))?;
    flow.decision_of(&row).await
}

impl Flow {
    /// The estimated cost of the agent's phases.
    async fn plan_cost(&self, plan: &Plan) -> Result<Option<f64>, PipelineError> {
        let Some(definition) = plan.definition() else { return Ok(None) };
        Ok(Some(costs::estimate(&self.parts.database, &definition, self.parts.clock.now()).await?))
    }

    /// Stores a plan for an answer that comes later.
    async fn keep_plan(
        &self,
        id: &str,
        plan: &Plan,
        authority: &Authority,
    ) -> Result<PlanDecision, PipelineError> {
        let row = PlanRow {
            id: id.to_owned(),
            agent: authority.agent.clone(),
            plan: crate::pipelines::state::text(plan)?,
            shown: plan.text(self.plan_cost(plan).await?),
            labels: authority.labels.iter().map(|label| label.name().to_owned()).collect(),
            created_by: authority.created_by.clone(),
            created: self.parts.clock.now(),
            answer: None,
            answered_by: None,
            pipeline: None,
        };
        self.parts.database.add_plan(&row).await?;
        Ok(pending(id))
    }

    /// Returns the decision on a stored plan.
    pub(super) async fn decision_of(&self, row: &PlanRow) -> Result<PlanDecision, PipelineError> {
        let Some(answer) = &row.answer else { return Ok(pending(&row.id)) };
        let plan: Plan = crate::pipelines::state::parse(&row.plan)?;
        let mut authority = self.parts.sessions.own_authority(&row.agent, &row.created_by)?;
        authority.labels = row.labels.iter().filter_map(|name| Label::from_name(name)).collect();
        self.decide_plan(&row.id, &plan, answer, &authority).await
    }

    /// Turns a person's answer into the decision. A yes stores the pipeline.
    async fn decide_plan(
        &self,
        id: &str,
        plan: &Plan,
        answer: &str,
        authority: &Authority,
    ) -> Result<PlanDecision, PipelineError> {
        if let Some(feedback) = feedback(answer) {
            return Ok(PlanDecision { feedback: Some(feedback), ..PlanDecision::default() });
        }
        // Flat steps become no pipeline.
        if plan.phases.is_none() {
            return Ok(PlanDecision { approved: true, ..PlanDecision::default() });
        }
        let user_steps = Some(plan.user_steps()).filter(|steps| !steps.is_empty());
        let Some(definition) = plan.definition() else {
            return Ok(PlanDecision { approved: true, user_steps, ..PlanDecision::default() });
        };
        let estimated_cost_usd = self.plan_cost(plan).await?;
        let pipeline = format!("{id}p");
        if self.parts.database.pipeline(&pipeline).await?.is_none() {
            self.store_pipeline(&pipeline, &definition, "plan", authority).await?;
        }
        let steps = definition.steps.into_iter();
        let steps = steps.map(|step| PlannedStep { id: step.id, task: step.task.unwrap_or_default() });
        Ok(PlanDecision {
            approved: true,
            pipeline_id: Some(pipeline),
            steps: Some(steps.collect()),
            user_steps,
            estimated_cost_usd,
            ..PlanDecision::default()
        })
    }
}

fn pending(id: &str) -> PlanDecision {
    PlanDecision { pending: true, approval_id: Some(id.to_owned()), ..PlanDecision::default() }
}

/// Returns what to tell the agent if the answer is not yes.
fn feedback(answer: &str) -> Option<String> {
    match answer.trim().to_lowercase().as_str() {
        "proceed" | "yes" | "y" => None,
        "cancel" | "no" | "n" => Some("The user cancelled the plan.".to_owned()),
        "adjust" => Some("The user wants changes. Ask the user what to change.".to_owned()),
        _ => Some(answer.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_approves() {
        for yes in ["Proceed", " yes ", "Y", "PROCEED"] {
            assert_eq!(feedback(yes), None, "{yes}");
        }
        for no in ["", "ok", "proceed, but later", "no", "Cancel", "Adjust", "yes and no"] {
            assert!(feedback(no).is_some(), "{no}");
        }
        assert_eq!(feedback("use Postgres").as_deref(), Some("use Postgres"));
    }
}
