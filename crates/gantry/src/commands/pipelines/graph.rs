//! The graph of a pipeline as text: one block per level, with an arrow from the steps that each step waits for.

use gantry_protocol::{PipelineDefinition, PipelineStep};

/// Draws the steps by levels. `mark` returns the state of a step, if a run is shown.
pub(super) fn draw(definition: &PipelineDefinition, mark: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let levels = levels(&definition.steps);
    let last = levels.iter().copied().max().unwrap_or(0);
    let mut lines = Vec::new();
    for level in 0..=last {
        if level > 0 {
            lines.push("  ↓".to_owned());
        }
        let here = definition.steps.iter().zip(&levels).filter(|(_, of)| **of == level);
        for (step, _) in here {
            let from = match step.input_from.as_slice() {
                [] => String::new(),
                from => format!("{} → ", from.join(", ")),
            };
            let kind = step.tool.as_ref().map_or("task".to_owned(), |tool| format!("tool {tool}"));
            let state = mark(&step.id).map_or(String::new(), |state| format!("  {state}"));
            lines.push(format!("  {from}[{}] {kind}{state}", step.id));
        }
    }
    lines
}

/// The length of the longest way to each step.
fn levels(steps: &[PipelineStep]) -> Vec<usize> {
    let mut levels = vec![0; steps.len()];
    // A way has at most as many steps as the pipeline.
    for _ in steps {
        for (index, step) in steps.iter().enumerate() {
            let before =
                step.input_from.iter().filter_map(|from| steps.iter().position(|other| other.id == *from));
            levels[index] = before.map(|before| levels[before] + 1).max().unwrap_or(0).min(steps.len());
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_are_drawn_below_the_steps_that_they_wait_for() {
        let definition: PipelineDefinition = serde_json::from_value(json!({"steps": [
            {"id": "report", "task": "x", "input_from": ["fetch", "sum"]},
            {"id": "fetch", "tool": "Read", "input": {}},
            {"id": "list", "task": "x"},
            {"id": "sum", "task": "x", "input_from": ["list"]},
        ]}))
        .unwrap();
        let plain = draw(&definition, |_| None);
        assert_eq!(
            plain,
            [
                "  [fetch] tool Read",
                "  [list] task",
                "  ↓",
                "  list → [sum] task",
                "  ↓",
                "  fetch, sum → [report] task",
            ]
        );
        let marked = draw(&definition, |id| (id == "sum").then(|| "failed".to_owned()));
        assert!(marked.contains(&"  list → [sum] task  failed".to_owned()), "{marked:?}");
    }
}
