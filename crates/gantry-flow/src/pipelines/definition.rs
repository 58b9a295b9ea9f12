//! Checks of definitions: limits, names, references, cycles and templates. Everything wrong is listed at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gantry_protocol::{ModificationAction, PipelineDefinition, PipelineStep, StepModification};
use gantry_tool::nearest;
use serde_json::Value;

use super::template::{self, Piece};

pub(crate) const MAX_STEPS: usize = 20;
pub(crate) const MAX_TIMEOUT_MS: u64 = 2 * 3600 * 1000;
const MAX_ID_CHARS: usize = 64;
const MAX_NAME_CHARS: usize = 100;
const MAX_TASK_BYTES: usize = 32 * 1024;
const MAX_INPUT_BYTES: usize = 256 * 1024;
const MAX_PARAMETERS: usize = 100;
/// Names that templates use for themselves.
const RESERVED: [&str; 2] = ["params", "context"];
const PARAMS: &str = "params";
const RESULT: &str = "result";
/// The kinds of parameters.
const KINDS: [&str; 6] = ["string", "number", "boolean", "date", "object", "array"];

/// The names that templates may use. `None` while they are not known, because the pipeline is only stored.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KnownNames<'a> {
    pub(crate) context: Option<&'a BTreeMap<String, Value>>,
    pub(crate) params: Option<&'a BTreeMap<String, Value>>,
}

/// Returns everything that is wrong with a definition.
pub(crate) fn errors(definition: &PipelineDefinition, known: KnownNames<'_>) -> Vec<String> {
    let steps = &definition.steps;
    let mut errors = Vec::new();
    if steps.is_empty() || steps.len() > MAX_STEPS {
        errors.push(format!("a pipeline must have 1 to {MAX_STEPS} steps, not {}", steps.len()));
    }
    if definition.name.chars().count() > MAX_NAME_CHARS || definition.name.chars().any(char::is_control) {
        errors.push(format!("the name must have at most {MAX_NAME_CHARS} characters on one line"));
    }
    // A longer list would only repeat the first error.
    let steps = &steps[..steps.len().min(MAX_STEPS)];
    check_ids(steps, &mut errors);
    check_parameters(definition, &mut errors);
    for step in steps {
        let at = |error: String| format!("step {:?}: {error}", shown(&step.id));
        errors.extend(step_errors(step, steps).into_iter().map(at));
        errors.extend(template_errors(step, definition, known).into_iter().map(at));
    }
    if let Some(path) = cycle(steps) {
        errors.push(format!("the steps depend on each other in a cycle: {}", path.join(" → ")));
    }
    for key in known.context.into_iter().flat_map(BTreeMap::keys) {
        if steps.iter().any(|step| step.id == *key) || RESERVED.contains(&key.as_str()) {
            errors.push(format!("context.{}: a step or a reserved name has this name", shown(key)));
        }
    }
    errors
}

fn check_ids(steps: &[PipelineStep], errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, step) in steps.iter().enumerate() {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let starts = step.id.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        if !starts || step.id.chars().count() > MAX_ID_CHARS || !step.id.chars().all(fits) {
            errors.push(format!(
                "step {}: the id {:?} must have 1 to {MAX_ID_CHARS} letters, digits, - and _",
                index + 1,
                shown(&step.id)
            ));
        } else if RESERVED.contains(&step.id.as_str()) {
            errors.push(format!("step {}: the id {:?} is reserved", index + 1, step.id));
        } else if !seen.insert(session_part(&step.id)) {
            errors.push(format!("step {}: the id {:?} is not unique", index + 1, step.id));
        }
    }
}

fn check_parameters(definition: &PipelineDefinition, errors: &mut Vec<String>) {
    if definition.parameters.len() > MAX_PARAMETERS {
        errors.push(format!("a pipeline may have at most {MAX_PARAMETERS} parameters"));
    }
    let mut seen = BTreeSet::new();
    for parameter in definition.parameters.iter().take(MAX_PARAMETERS) {
        let name = shown(&parameter.name);
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if parameter.name.is_empty()
            || parameter.name.len() > MAX_ID_CHARS
            || !parameter.name.chars().all(fits)
        {
            errors.push(format!("parameter {name:?}: the name must have letters, digits, - and _"));
        }
        if !seen.insert(&parameter.name) {
            errors.push(format!("parameter {name:?} is not unique"));
        }
        if !KINDS.contains(&parameter.kind.as_str()) {
            errors.push(format!("parameter {name:?}: the type must be one of {}", KINDS.join(", ")));
        }
    }
}

fn step_errors(step: &PipelineStep, steps: &[PipelineStep]) -> Vec<String> {
    let mut errors = Vec::new();
    match (&step.task, &step.tool) {
        (Some(_), Some(_)) => errors.push("give a task or a tool, not both".to_owned()),
        (None, None) => errors.push("give a task for an agent, or a tool to call".to_owned()),
        (Some(task), None) if task.trim().is_empty() => errors.push("the task is empty".to_owned()),
        (Some(task), None) if task.len() > MAX_TASK_BYTES => {
            errors.push(format!("the task may have at most {MAX_TASK_BYTES} bytes"));
        }
        _ => {}
    }
    if step.tool.is_none() && step.input.is_some() {
        errors.push("input needs a tool; a task gets its input through input_from".to_owned());
    }
    if step.tool.is_some() && (step.role.is_some() || step.model.is_some()) {
        errors.push("a tool call has no role and no model".to_owned());
    }
    if step.input.as_ref().is_some_and(|input| !input.is_object()) {
        errors.push("the input of a tool must be an object".to_owned());
    }
    if step.input.as_ref().is_some_and(|input| input.to_string().len() > MAX_INPUT_BYTES) {
        errors.push(format!("the input may have at most {MAX_INPUT_BYTES} bytes"));
    }
    if step.timeout_ms.is_some_and(|ms| !(1..=MAX_TIMEOUT_MS).contains(&ms)) {
        errors.push(format!("timeout_ms must be 1 to {MAX_TIMEOUT_MS}"));
    }
    let mut seen = BTreeSet::new();
    for from in &step.input_from {
        if *from == step.id {
            errors.push("input_from must not name the step itself".to_owned());
        } else if !steps.iter().any(|other| other.id == *from) {
            errors.push(format!("input_from names the unknown step {:?}{}", shown(from), near(from, steps)));
        } else if !seen.insert(from) {
            errors.push(format!("input_from names {from:?} twice"));
        }
    }
    errors
}

fn near(name: &str, steps: &[PipelineStep]) -> String {
    match nearest(name, steps.iter().map(|step| step.id.as_str())).first() {
        Some(near) => format!("; did you mean {near:?}?"),
        None => String::new(),
    }
}

/// Returns the names in a step's texts, or what is wrong with its templates.
fn names(step: &PipelineStep) -> (Vec<Vec<String>>, Vec<String>) {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    let mut visit = |text: &str| match template::parse(text) {
        Ok(pieces) => names.extend(pieces.into_iter().filter_map(|piece| match piece {
            Piece::Name(name) => Some(name),
            Piece::Text(_) => None,
        })),
        Err(error) => {
            names.extend(template::names_in(text));
            errors.push(error);
        }
    };
    step.task.iter().for_each(|task| visit(task));
    step.input.iter().for_each(|input| template::visit_texts(input, &mut visit));
    (names, errors)
}

fn template_errors(
    step: &PipelineStep,
    definition: &PipelineDefinition,
    known: KnownNames<'_>,
) -> Vec<String> {
    let (names, mut errors) = names(step);
    for name in names {
        if let Some(error) = name_error(&name, step, definition, known)
            && !errors.contains(&error)
        {
            errors.push(error);
        }
    }
    errors
}

fn name_error(
    name: &[String],
    step: &PipelineStep,
    definition: &PipelineDefinition,
    known: KnownNames<'_>,
) -> Option<String> {
    let written = format!("{{{{{}}}}}", name.join("."));
    let (first, second) = (name.first()?, name.get(1));
    if first == PARAMS {
        let declared = definition.parameters.iter().map(|parameter| parameter.name.as_str());
        let given = known.params.into_iter().flat_map(BTreeMap::keys).map(String::as_str);
        let params: BTreeSet<&str> = declared.chain(given).collect();
        return match second {
            None => None,
            Some(second) if params.contains(second.as_str()) => None,
            // The parameters of a stored pipeline without declarations are known when it runs.
            Some(_) if known.params.is_none() && definition.parameters.is_empty() => None,
            Some(_) => Some(format!("unknown parameter {written}; {}", listed("parameters", &params))),
        };
    }
    if let Some(other) = definition.steps.iter().find(|other| other.id == *first) {
        return match second.map(String::as_str) {
            _ if !step.input_from.contains(&other.id) => {
                Some(format!("{written} needs {:?} in input_from", other.id))
            }
            Some(RESULT) => None,
            _ => Some(format!("{written} must be {{{{{}.result}}}}", other.id)),
        };
    }
    let context = known.context?;
    if context.contains_key(first) {
        return None;
    }
    let mut names: BTreeSet<&str> = context.keys().map(String::as_str).collect();
    names.insert(PARAMS);
    let results: Vec<String> = step.input_from.iter().map(|from| format!("{from}.result")).collect();
    names.extend(results.iter().map(String::as_str));
    Some(format!("unknown name {written}; {}", listed("known names", &names)))
}

fn listed(what: &str, names: &BTreeSet<&str>) -> String {
    match names.is_empty() {
        true => format!("there are no {what}"),
        false => format!("{what}: {}", names.iter().take(50).copied().collect::<Vec<_>>().join(", ")),
    }
}

/// Returns a path of steps that ends where it began, if there is one.
fn cycle(steps: &[PipelineStep]) -> Option<Vec<String>> {
    let by_id: HashMap<&str, &PipelineStep> = steps.iter().map(|step| (step.id.as_str(), step)).collect();
    let mut done = BTreeSet::new();
    steps.iter().find_map(|step| visit(step, &by_id, &mut Vec::new(), &mut done))
}

fn visit<'a>(
    step: &'a PipelineStep,
    by_id: &HashMap<&str, &'a PipelineStep>,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|id| *id == step.id) {
        let mut found: Vec<String> = path[start..].iter().map(|&id| id.to_owned()).collect();
        found.push(step.id.clone());
        return Some(found);
    }
    if done.contains(step.id.as_str()) {
        return None;
    }
    path.push(&step.id);
    let other = |from: &String| by_id.get(from.as_str()).copied().filter(|other| other.id != step.id);
    let found = step.input_from.iter().filter_map(other).find_map(|next| visit(next, by_id, path, done));
    path.pop();
    done.insert(&step.id);
    found
}

/// Changes a definition for one run. Returns everything that is wrong with the changes.
pub(crate) fn modify(
    definition: &mut PipelineDefinition,
    changes: &[StepModification],
) -> Result<(), Vec<String>> {
    let mut errors = Vec::new();
    for change in changes {
        let id = &change.step_id;
        let Some(index) = definition.steps.iter().position(|step| step.id == *id) else {
            let near = near(id, &definition.steps);
            errors.push(format!("modifications name the unknown step {:?}{near}", shown(id)));
            continue;
        };
        match (change.action, &change.value) {
            (ModificationAction::Remove, _) => {
                definition.steps.remove(index);
                for step in &mut definition.steps {
                    step.input_from.retain(|from| from != id);
                }
            }
            (ModificationAction::UpdateTask, Some(task)) if definition.steps[index].task.is_some() => {
                definition.steps[index].task = Some(task.clone());
            }
            (ModificationAction::UpdateTask, Some(_)) => {
                errors.push(format!("step {id:?} calls a tool, so it has no task to update"));
            }
            (ModificationAction::UpdateTask, None) => {
                errors.push(format!("update_task of {id:?} needs a value: the new task"));
            }
        }
    }
    if definition.steps.is_empty() && errors.is_empty() {
        errors.push("the modifications remove all steps".to_owned());
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The id of a step in the key of its session. The key of a direct message means another session, so `dm` is changed.
pub(crate) fn session_part(id: &str) -> String {
    let part: String =
        id.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if part == "dm" { "dm-step".to_owned() } else { part }
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(steps: Value) -> PipelineDefinition {
        serde_json::from_value(json!({"steps": steps})).unwrap()
    }

    fn check(steps: Value) -> Vec<String> {
        let (context, params) = (BTreeMap::from([("topic".to_owned(), json!("x"))]), BTreeMap::new());
        errors(&definition(steps), KnownNames { context: Some(&context), params: Some(&params) })
    }

    #[test]
    fn everything_wrong_is_listed_at_once() {
        let found = check(json!([
            {"id": "a", "task": "x", "tool": "y"},
            {"id": "A", "task": " "},
            {"id": "b c"},
            {"id": "params", "task": "x"},
            {"id": "d", "task": "{{nope}} {{params.q}} {{a.result}} {{", "input_from": ["aa", "d"]},
            {"id": "e", "tool": "t", "input": [1], "role": "researcher", "timeout_ms": 7_200_001},
            {"id": "f", "task": "x", "input": {}},
        ]));
        for part in [
            "step \"a\": give a task or a tool, not both",
            "step 2: the id \"A\" is not unique",
            "step \"A\": the task is empty",
            "step 3: the id \"b c\" must have",
            "step \"b c\": give a task for an agent, or a tool",
            "the id \"params\" is reserved",
            "input_from names the unknown step \"aa\"; did you mean",
            "input_from must not name the step itself",
            "has no }}",
            "unknown name {{nope}}",
            "unknown parameter {{params.q}}",
            "{{a.result}} needs \"a\" in input_from",
            "input of a tool must be an object",
            "a tool call has no role",
            "timeout_ms must be 1 to 7200000",
            "input needs a tool",
        ] {
            assert!(found.iter().any(|error| error.contains(part)), "{part} in {found:#?}");
        }
        let names = check(json!([
            {"id": "a", "task": "x"},
            {"id": "b", "task": "{{nope}} {{params.q}} {{a.result}} {{topic}} {{ topic.deep }}"},
            {"id": "c", "task": "{{a.cost}} {{a}} {{a.result.title}}", "input_from": ["a"]},
        ]));
        assert_eq!(
            names,
            [
                "step \"b\": unknown name {{nope}}; known names: params, topic",
                "step \"b\": unknown parameter {{params.q}}; there are no parameters",
                "step \"b\": {{a.result}} needs \"a\" in input_from",
                "step \"c\": {{a.cost}} must be {{a.result}}",
                "step \"c\": {{a}} must be {{a.result}}",
            ]
        );
    }

    #[test]
    fn cycles_are_reported_with_their_path() {
        let found = check(json!([
            {"id": "a", "task": "x", "input_from": ["c"]},
            {"id": "b", "task": "x", "input_from": ["a"]},
            {"id": "c", "task": "x", "input_from": ["b"]},
            {"id": "d", "task": "x", "input_from": ["a"]},
        ]));
        assert_eq!(found, ["the steps depend on each other in a cycle: a → c → b → a"]);
    }

    #[test]
    fn steps_are_limited_to_20() {
        let steps = |count: usize| {
            let steps: Vec<Value> = (0..count).map(|n| json!({"id": format!("s{n}"), "task": "x"})).collect();
            check(Value::Array(steps))
        };
        assert!(steps(20).is_empty() && steps(1).is_empty());
        assert_eq!(steps(21), ["a pipeline must have 1 to 20 steps, not 21"]);
        assert_eq!(steps(0), ["a pipeline must have 1 to 20 steps, not 0"]);
    }

    #[test]
    fn context_and_params_are_checked_when_they_are_known() {
        let stored = definition(json!([{"id": "a", "task": "{{topic}} {{params.x}}"}]));
        assert!(errors(&stored, KnownNames::default()).is_empty());
        let context = BTreeMap::from([("a".to_owned(), json!(1)), ("topic".to_owned(), json!(1))]);
        let params = BTreeMap::from([("y".to_owned(), json!(1))]);
        let found = errors(&stored, KnownNames { context: Some(&context), params: Some(&params) });
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("unknown parameter {{params.x}}; parameters: y"), "{found:?}");
        assert!(found[1].contains("context.a"), "{found:?}");
    }

    #[test]
    fn modifications_change_a_copy_or_nothing() {
        let stored = definition(json!([
            {"id": "a", "task": "x"}, {"id": "b", "task": "y", "input_from": ["a"]}, {"id": "t", "tool": "z"},
        ]));
        let changes = |value: Value| serde_json::from_value::<Vec<StepModification>>(value).unwrap();
        let mut copy = stored.clone();
        let wanted = changes(json!([
            {"step_id": "a", "action": "remove"}, {"step_id": "b", "action": "update_task", "value": "new"},
        ]));
        modify(&mut copy, &wanted).unwrap();
        assert_eq!(copy.steps.len(), 2);
        assert_eq!((copy.steps[0].task.as_deref(), copy.steps[0].input_from.len()), (Some("new"), 0));
        let wrong = changes(json!([
            {"step_id": "bb", "action": "remove"}, {"step_id": "b", "action": "update_task"},
            {"step_id": "t", "action": "update_task", "value": "x"},
        ]));
        let found = modify(&mut stored.clone(), &wrong).unwrap_err();
        assert_eq!(found.len(), 3, "{found:?}");
        let all = changes(json!([
            {"step_id": "a", "action": "remove"}, {"step_id": "b", "action": "remove"}, {"step_id": "t", "action": "remove"},
        ]));
        assert_eq!(modify(&mut stored.clone(), &all).unwrap_err(), ["the modifications remove all steps"]);
    }

    #[test]
    fn no_step_shares_its_session_with_a_direct_message() {
        assert_eq!(
            (session_part("dm"), session_part("DM"), session_part("a_B-1")),
            ("dm-step".into(), "dm-step".into(), "a-b-1".into())
        );
    }
}
