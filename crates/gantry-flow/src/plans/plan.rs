//! [`Plan`]: its checks, its text for people, and the pipeline that runs its agent phases.

use std::collections::BTreeSet;
use std::fmt::Write;

use gantry_protocol::{PipelineDefinition, PipelineStep};
use gantry_tool::nearest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{name_problem, text_problem};
use crate::pipelines::definition::{self, KnownNames, MAX_STEPS};
use crate::pipelines::{costs, template};

/// The longest plan: a person has to read all of it.
const MAX_CHARS: usize = 12_000;
const MAX_NAME_CHARS: usize = 50;

/// A plan as the model writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// What will be done, in plain language.
    pub(crate) summary: String,
    /// What you found out before you made the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<PlanContext>,
    /// The phases, at most 20. The agent's phases become a workflow for run_pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phases: Option<Vec<Phase>>,
    /// A flat list of steps, in place of phases. It becomes no workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanContext {
    pub(crate) summary: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Phase {
    /// A short, unique name.
    pub(crate) name: String,
    /// What is done in this phase.
    pub(crate) steps: Vec<String>,
    /// How to check that the phase succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verification: Option<String>,
    /// The names of the phases that have to be finished before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<String>,
    /// agent (default), or user for what only the user can do.
    #[serde(default)]
    pub(crate) assignee: Assignee,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Assignee {
    #[default]
    Agent,
    User,
}

impl Plan {
    /// Returns everything that is wrong with the plan.
    pub(crate) fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.summary.trim().is_empty() {
            errors.push("the summary is empty".to_owned());
        }
        match (&self.phases, &self.steps) {
            (None, None) => errors.push(
                "give phases, each with a name and steps, or steps: a plan without them cannot be approved"
                    .to_owned(),
            ),
            (Some(_), Some(_)) => errors.push("give phases or steps, not both".to_owned()),
            (Some(phases), None) => errors.extend(phase_errors(phases)),
            (None, Some(steps)) if steps.iter().all(|step| step.trim().is_empty()) => {
                errors.push("the steps are empty".to_owned());
            }
            (None, Some(_)) => {}
        }
        errors.extend(self.hidden());
        if self.text(None).chars().count() > MAX_CHARS {
            errors.push(format!(
                "a plan may have at most {MAX_CHARS} characters, so that a person can read it"
            ));
        }
        if errors.is_empty()
            && let Some(definition) = self.definition()
        {
            errors.extend(definition::errors(&definition, KnownNames::default()));
        }
        errors
    }

    /// Finds text that a person would not see, or that could imitate other parts of the plan.
    fn hidden(&self) -> Vec<String> {
        let phases = self.phases.iter().flatten();
        let names = phases.clone().map(|phase| ("the name of a phase", &phase.name));
        let lines = phases.clone().flat_map(|phase| phase.steps.iter().chain(&phase.verification));
        let lines = lines.chain(self.steps.iter().flatten()).map(|line| ("a step", line));
        let findings =
            self.context.iter().flat_map(|context| &context.findings).map(|line| ("a finding", line));
        let mut errors: Vec<String> =
            names.chain(lines).chain(findings).filter_map(|(what, text)| name_problem(what, text)).collect();
        errors.extend(text_problem("the summary", &self.summary));
        errors
            .extend(self.context.as_ref().and_then(|context| text_problem("the context", &context.summary)));
        errors.dedup();
        errors
    }

    /// The plan as a person reads it.
    pub(crate) fn text(&self, estimated_cost: Option<f64>) -> String {
        let mut text = format!("{}\n", self.summary.trim());
        if let Some(context) = &self.context {
            let _ = writeln!(text, "\n{}", context.summary.trim());
            for finding in &context.findings {
                let _ = writeln!(text, "- {finding}");
            }
        }
        text.push('\n');
        for (number, phase) in self.phases.iter().flatten().enumerate() {
            let mark = if phase.assignee == Assignee::User { " [your input needed]" } else { "" };
            let _ = writeln!(text, "{}. {}{mark}", number + 1, phase.name);
            for step in &phase.steps {
                let _ = writeln!(text, "   - {step}");
            }
            if let Some(verification) = &phase.verification {
                let _ = writeln!(text, "   Check: {verification}");
            }
        }
        for (number, step) in self.steps.iter().flatten().enumerate() {
            let _ = writeln!(text, "{}. {step}", number + 1);
        }
        if let Some(cost) = estimated_cost {
            let _ = writeln!(text, "\nEstimated cost: {}", costs::dollars(cost));
        }
        text
    }

    /// The names of the user's phases.
    pub(crate) fn user_steps(&self) -> Vec<String> {
        let phases = self.phases.iter().flatten().filter(|phase| phase.assignee == Assignee::User);
        phases.map(|phase| phase.name.clone()).collect()
    }

    /// The pipeline of the agent's phases, if there are any.
    pub(crate) fn definition(&self) -> Option<PipelineDefinition> {
        let phases = self.phases.as_deref()?;
        let slugs = slugs(phases);
        let steps: Vec<PipelineStep> = phases
            .iter()
            .enumerate()
            .filter(|(_, phase)| phase.assignee == Assignee::Agent)
            .map(|(index, phase)| {
                let before = agents_before(index, phases);
                PipelineStep {
                    id: slugs[index].clone(),
                    task: Some(template::escaped(&self.task(phase, phases))),
                    input_from: before.into_iter().map(|index| slugs[index].clone()).collect(),
                    ..PipelineStep::default()
                }
            })
            .collect();
        let name: String = slug(&self.summary).chars().take(MAX_NAME_CHARS).collect();
        let name = name.trim_end_matches('-').to_owned();
        (!steps.is_empty()).then(|| PipelineDefinition { name, steps, ..PipelineDefinition::default() })
    }

    fn task(&self, phase: &Phase, phases: &[Phase]) -> String {
        let mut task = format!("{}\n\nThis is a phase of the plan: {}\n", phase.name, self.summary.trim());
        for step in &phase.steps {
            let _ = writeln!(task, "- {step}");
        }
        let is_users = |name: &&String| {
            phases.iter().any(|other| other.name == **name && other.assignee == Assignee::User)
        };
        for name in phase.depends_on.iter().filter(is_users) {
            let _ = writeln!(task, "\nThis phase needs the user's phase {name:?} to be finished.");
        }
        if let Some(verification) = &phase.verification {
            let _ = writeln!(task, "\nVerification: {verification}");
        }
        task
    }
}

fn phase_errors(phases: &[Phase]) -> Vec<String> {
    let mut errors = Vec::new();
    if phases.is_empty() || phases.len() > MAX_STEPS {
        errors.push(format!("a plan must have 1 to {MAX_STEPS} phases, not {}", phases.len()));
    }
    let mut seen = BTreeSet::new();
    for phase in phases {
        let name = &phase.name;
        if name.trim().is_empty() {
            errors.push("a phase has no name".to_owned());
        } else if !seen.insert(name) {
            errors.push(format!("the phase {name:?} is not unique"));
        }
        if phase.steps.iter().all(|step| step.trim().is_empty()) {
            errors.push(format!("the phase {name:?} has no steps"));
        }
        for needed in &phase.depends_on {
            if needed == name {
                errors.push(format!("the phase {name:?} depends on itself"));
            } else if !phases.iter().any(|other| other.name == *needed) {
                let near = nearest(needed, phases.iter().map(|other| other.name.as_str()));
                let near = near.first().map_or(String::new(), |near| format!("; did you mean {near:?}?"));
                errors.push(format!("the phase {name:?} depends on the unknown phase {needed:?}{near}"));
            }
        }
    }
    errors
}

/// The agent phases that a phase waits for, also those behind phases of the user.
fn agents_before(index: usize, phases: &[Phase]) -> BTreeSet<usize> {
    let (mut found, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![index]);
    while let Some(at) = open.pop() {
        for needed in &phases[at].depends_on {
            let Some(before) = phases.iter().position(|phase| phase.name == *needed) else { continue };
            match phases[before].assignee {
                Assignee::Agent => drop(found.insert(before)),
                Assignee::User if seen.insert(before) => open.push(before),
                Assignee::User => {}
            }
        }
    }
    found.remove(&index);
    found
}

/// Unique ids of the phases.
fn slugs(phases: &[Phase]) -> Vec<String> {
    let mut used = BTreeSet::new();
    let mut unique = |phase: &Phase| {
        let slug = slug(&phase.name);
        let numbered = (2..).map(|number| format!("{slug}-{number}"));
        let free =
            std::iter::once(slug.clone()).chain(numbered).find(|id| !used.contains(id)).unwrap_or_default();
        used.insert(free.clone());
        free
    };
    phases.iter().map(&mut unique).collect()
}

fn slug(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-").to_lowercase();
    let slug: String = slug.chars().take(MAX_NAME_CHARS).collect();
    match slug.trim_end_matches('-') {
        "" => "phase".to_owned(),
        reserved @ ("params" | "context") => format!("{reserved}-phase"),
        slug => slug.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(value: Value) -> Plan {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn text_that_a_person_would_not_see_is_rejected() {
        let wrong = plan(
            json!({"summary": "ok\u{1b}[8m", "context": {"summary": "x", "findings": ["a\u{200b}"]}, "phases": [
                {"name": "a\nb", "steps": ["fine\n2. [your input needed]"], "verification": "\u{202e}"},
            ]}),
        );
        let errors = wrong.errors();
        for what in ["the summary", "a finding", "the name of a phase", "a step"] {
            assert!(
                errors.iter().any(|error| error.starts_with(&format!("{what}: must not"))),
                "{what}: {errors:?}"
            );
        }
    }

    #[test]
    fn agent_phases_become_steps_and_user_phases_notes() {
        let plan = plan(json!({"summary": "Move the {{site}}!", "phases": [
            {"name": "Back up", "steps": ["dump it"], "verification": "the dump has rows"},
            {"name": "Change DNS", "steps": ["log in"], "assignee": "user", "depends_on": ["Back up"]},
            {"name": "back-up", "steps": ["again"], "depends_on": ["Change DNS"]},
        ]}));
        assert_eq!(plan.errors(), [""; 0]);
        let definition = plan.definition().unwrap();
        assert_eq!(definition.name, "move-the-site");
        let ids: Vec<_> =
            definition.steps.iter().map(|step| (step.id.as_str(), step.input_from.clone())).collect();
        assert_eq!(ids, [("back-up", vec![]), ("back-up-2", vec!["back-up".to_owned()])]);
        let task = definition.steps[0].task.as_deref().unwrap();
        assert!(task.contains("Verification: the dump has rows") && task.contains("\\{{site}}"), "{task}");
        let noted = definition.steps[1].task.as_deref().unwrap();
        assert!(noted.contains("the user's phase \"Change DNS\""), "{noted}");
        assert_eq!(plan.user_steps(), ["Change DNS"]);
        let text = plan.text(Some(0.16));
        for part in [
            "1. Back up\n   - dump it\n   Check: the dump has rows",
            "2. Change DNS [your input needed]",
            "Estimated cost: $0.16",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn everything_wrong_is_listed_at_once() {
        assert!(plan(json!({"summary": "x"})).errors()[0].contains("give phases"));
        assert!(plan(json!({"summary": "x", "steps": ["a"], "phases": []})).errors()[0].contains("not both"));
        let found = plan(json!({"summary": " ", "phases": [
            {"name": "a", "steps": ["x"], "depends_on": ["bb", "a"]},
            {"name": "b", "steps": []},
            {"name": "b", "steps": ["x"]},
        ]}))
        .errors();
        assert_eq!(found.len(), 5, "{found:#?}");
        assert!(found.iter().any(|error| error.contains("unknown phase \"bb\"; did you mean")), "{found:#?}");
        let cycle = plan(json!({"summary": "x", "phases": [
            {"name": "a", "steps": ["x"], "depends_on": ["b"]}, {"name": "b", "steps": ["x"], "depends_on": ["a"]},
        ]}));
        assert!(cycle.errors()[0].contains("a → b → a"), "{:?}", cycle.errors());
        let long = plan(json!({"summary": "x", "steps": ["y".repeat(MAX_CHARS)]}));
        assert!(long.errors()[0].contains("12000 characters"));
    }
}
