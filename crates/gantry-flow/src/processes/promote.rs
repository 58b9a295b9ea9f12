//! Makes a pipeline of a process. Its steps are the recorded calls.

use std::collections::BTreeMap;

use gantry_agent::Authority;
use gantry_protocol::{ParameterSource, PipelineDefinition, PipelineStep, PromotedProcess};
use gantry_store::ProcessRow;
use gantry_tool::Label;
use serde_json::Value;

use super::capture::Recording;
use crate::access::{Named, pick};
use crate::domain::Flow;
use crate::pipelines::{PipelineError, costs, state};

impl Flow {
    /// Finds a process among those of the agents that the caller may use.
    pub(super) async fn find_process(
        &self,
        id: &str,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<ProcessRow, PipelineError> {
        let rows = self.parts.database.list_processes().await?;
        let own = rows.into_iter().filter(|row| may_use(&row.agent)).collect();
        pick("process", id, "gantry processes", own, |row| Named { id: &row.id, name: Some(&row.name) })
            .map_err(PipelineError::invalid)
    }

    /// Stores the pipeline of a process. A process that was promoted before keeps its pipeline.
    pub(super) async fn promote(
        &self,
        row: &ProcessRow,
        values: &BTreeMap<String, Value>,
        mut authority: Authority,
    ) -> Result<PromotedProcess, PipelineError> {
        let id = format!("{}w", row.id);
        if let Some(known) = self.parts.database.pipeline(&id).await? {
            let definition = Flow::definition_of(&known)?;
            let next = format!("It was promoted before. Call run_pipeline with pipeline_id {id:?}.");
            return self.promoted(id, &definition, next).await;
        }
        let definition = definition(row, values)?;
        for label in row.labels.iter().filter_map(|name| Label::from_name(name)) {
            if !authority.labels.contains(&label) {
                authority.labels.push(label);
            }
        }
        self.store_pipeline(&id, &definition, "process", &authority).await?;
        self.parts.database.promote_process(&row.id, &id).await?;
        let needed: Vec<&str> = definition
            .parameters
            .iter()
            .filter(|parameter| parameter.default.is_none())
            .map(|parameter| parameter.name.as_str())
            .collect();
        let next = match needed.as_slice() {
            [] => format!("Call run_pipeline with pipeline_id {id:?}; params changes parameters."),
            needed => {
                format!("Call run_pipeline with pipeline_id {id:?} and params for {}.", needed.join(", "))
            }
        };
        self.promoted(id, &definition, next).await
    }

    async fn promoted(
        &self,
        pipeline_id: String,
        definition: &PipelineDefinition,
        next: String,
    ) -> Result<PromotedProcess, PipelineError> {
        let cost = costs::estimate(&self.parts.database, definition, self.parts.clock.now()).await?;
        Ok(PromotedProcess {
            pipeline_id,
            name: definition.name.clone(),
            steps: definition.steps.len(),
            parameters: definition.parameters.iter().map(|parameter| parameter.name.clone()).collect(),
            estimated_cost: costs::dollars(cost),
            next,
        })
    }
}

/// The pipeline of a process, with new defaults of its parameters.
fn definition(
    row: &ProcessRow,
    values: &BTreeMap<String, Value>,
) -> Result<PipelineDefinition, PipelineError> {
    let Recording { steps, mut parameters } = state::parse(&row.record)?;
    let unknown = values.keys().filter(|name| !parameters.iter().any(|known| known.name == **name));
    let errors: Vec<String> = unknown
        .map(|name| {
            let known: Vec<&str> = parameters.iter().map(|known| known.name.as_str()).collect();
            format!("unknown parameter {name:?}; parameters: {}", known.join(", "))
        })
        .collect();
    if !errors.is_empty() {
        return Err(PipelineError::Invalid(errors));
    }
    for parameter in &mut parameters {
        if let Some(value) = values.get(&parameter.name) {
            parameter.default = Some(value.clone());
            // A number of days stays relative, and a date is fixed.
            if parameter.source == ParameterSource::RelativeDate && !value.is_i64() {
                parameter.source = ParameterSource::UserInput;
            }
        }
    }
    let steps = steps.into_iter().map(|step| PipelineStep {
        id: format!("step-{}", step.order),
        tool: Some(step.tool),
        input: Some(step.input),
        input_from: step.depends_on.iter().map(|order| format!("step-{order}")).collect(),
        ..PipelineStep::default()
    });
    let name = row.name.clone();
    Ok(PipelineDefinition { name, steps: steps.collect(), parameters, ..PipelineDefinition::default() })
}
