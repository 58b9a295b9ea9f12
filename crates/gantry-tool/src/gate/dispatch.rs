//! Calls by the bare name of a node tool: on the machine that the `node` argument names, on several, or on the only one
//! that can answer. Every machine's call goes through the gate by itself.

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::fanned::Results;
use super::{Answer, Gate, Outcome};
use crate::call::{Call, Found};
use crate::error::{Refusal, RefusalCode, Violation};
use crate::nearest::nearest;
use crate::registry::{OnNode, node_and_name};
use crate::shared::NODE_ARGUMENT;
use crate::tool::{Reply, Tool, Touch};

/// Machines that work on one fanned-out call at the same time.
const FAN_OUT: usize = 16;

/// Of all machines' results together: what fits into one frame, with room for what stands around them.
const MAX_RESULTS_BYTES: usize = gantry_protocol::MAX_FRAME_BYTES - (1 << 20);

/// What the `node` argument says.
enum Selected {
    /// Nobody said.
    Implicit,
    One(String),
    Tagged(String),
    All,
}

impl Gate {
    /// As [`Gate::call`], and knows the `node` argument.
    pub async fn dispatch(&self, call: Call, name: &str, input: Value) -> Outcome {
        match self.parts.registry.nodes_with(&call.scope, name) {
            None => self.call(call, name, input).await,
            // Aside: calls of many machines take more room than others have to carry.
            Some(nodes) => Box::pin(self.dispatch_among(nodes, call, name, input)).await,
        }
    }

    async fn dispatch_among(&self, nodes: Vec<OnNode>, call: Call, name: &str, mut input: Value) -> Outcome {
        let nodes = match selected(&nodes, &mut input) {
            Err(message) => return self.refuse_node(&call, name, message),
            Ok(Selected::One(node)) => match nodes.into_iter().find(|found| found.node == node) {
                Some(found) => return self.call(call, found.tool.name(), input).await,
                None => {
                    let message = self.no_such_node(name, &node);
                    return self.refuse_node(&call, name, message);
                }
            },
            Ok(Selected::Implicit) => return self.on_the_only_one(call, name, nodes, input).await,
            Ok(Selected::Tagged(tag)) => {
                let tagged = nodes.into_iter().filter(|found| found.state.tags.contains(&tag));
                let tagged: Vec<OnNode> = tagged.collect();
                if tagged.is_empty() {
                    return self.refuse_node(
                        &call,
                        name,
                        format!("no node with {name} has the tag \"{tag}\""),
                    );
                }
                tagged
            }
            Ok(Selected::All) => nodes,
        };
        self.fan_out(call, name, nodes, input).await
    }

    /// What a call would touch on this machine, as the policy sees it; nothing for what runs elsewhere, or would be refused.
    pub async fn touches(&self, call: &Call, name: &str, input: &Value) -> Vec<Touch> {
        let mut input = input.clone();
        let mut touches = Vec::new();
        for tool in self.meant(call, name, &mut input) {
            let (input, violations) = tool.checked(input.clone()).await;
            if violations.is_empty() {
                touches.extend(tool.touched(call, &input).await.unwrap_or_default());
            }
        }
        touches
    }

    /// The machines that a call of a node's tool would run on; none for other tools.
    pub fn machines(&self, call: &Call, name: &str, input: &Value) -> Vec<String> {
        let tools = self.meant(call, name, &mut input.clone());
        let nodes = tools.iter().filter_map(|tool| node_and_name(tool));
        nodes.map(|(node, _)| node.to_owned()).collect()
    }

    /// The tools that a call may run. The `node` argument is taken out of the input.
    fn meant(&self, call: &Call, name: &str, input: &mut Value) -> Vec<Arc<Tool>> {
        let Some(nodes) = self.parts.registry.nodes_with(&call.scope, name) else {
            return self.parts.registry.resolve(&call.scope, name).into_iter().collect();
        };
        let selected = selected(&nodes, input);
        let is_meant = |found: &OnNode| match &selected {
            Ok(Selected::One(node)) => found.node == *node,
            Ok(Selected::Tagged(tag)) => found.state.tags.contains(tag),
            Ok(Selected::Implicit | Selected::All) => true,
            Err(_) => false,
        };
        nodes.into_iter().filter(is_meant).map(|found| found.tool).collect()
    }

    async fn on_the_only_one(&self, call: Call, name: &str, nodes: Vec<OnNode>, input: Value) -> Outcome {
        let ready: Vec<&OnNode> = nodes.iter().filter(|found| found.state.online).collect();
        let listed =
            |nodes: &[&OnNode]| nodes.iter().map(|found| &*found.node).collect::<Vec<_>>().join(", ");
        match *ready {
            [only] => {
                let mut outcome = self.call(call, only.tool.name(), input).await;
                if let Answer::Success(Reply::Json(Value::Object(object)))
                | Answer::ToolError(Reply::Json(Value::Object(object))) = &mut outcome.answer
                {
                    object.entry(NODE_ARGUMENT).or_insert_with(|| json!(only.node));
                }
                outcome
            }
            [] => {
                let away = listed(&nodes.iter().collect::<Vec<_>>());
                let refusal = Refusal::new(
                    RefusalCode::Unavailable,
                    format!("no node that has {name} is connected; known and offline: {away}"),
                );
                self.refused(&call, name, Some(&input), refusal, None)
            }
            _ => {
                let message = format!("several nodes can answer: {}; say which one", listed(&ready));
                self.refuse_node(&call, name, message)
            }
        }
    }

    async fn fan_out(&self, call: Call, name: &str, nodes: Vec<OnNode>, input: Value) -> Outcome {
        let call_id = call.id.clone();
        let calls = nodes.into_iter().map(|found| {
            let mut own = Call { id: uuid::Uuid::now_v7().to_string(), ..call.clone() };
            (own.cancel, own.found) = (call.cancel.child_token(), Found::default());
            let input = input.clone();
            async move { (self.call(own, found.tool.name(), input).await, found.node) }
        });
        let mut outcomes = futures_util::stream::iter(calls).buffered(FAN_OUT);
        let mut all = Outcome {
            call_id,
            tool: name.to_owned(),
            answer: Answer::Success(Reply::Json(Value::Null)),
            labels: Vec::new(),
            warnings: Vec::new(),
        };
        let mut results = Results::up_to(MAX_RESULTS_BYTES);
        // The first one's refusal, while all are refused for their input.
        let mut invalid = None;
        while let Some((outcome, node)) = outcomes.next().await {
            invalid = match &outcome.answer {
                Answer::Refused(refusal) if refusal.code == RefusalCode::InvalidInput => {
                    if results.is_empty() { Some(refusal.clone()) } else { invalid }
                }
                _ => None,
            };
            all.warnings.extend(outcome.warnings.iter().map(|warning| format!("{node}: {warning}")));
            let new = outcome.labels.into_iter().filter(|label| !all.labels.contains(label));
            let new: Vec<_> = new.collect();
            all.labels.extend(new);
            results.push(node, outcome.answer);
        }
        let results = results.into_values();
        let any_ok = results.iter().any(|result| result["ok"] == true);
        let reply = Reply::Json(json!({ "results": results }));
        all.answer = match (any_ok, invalid) {
            (true, _) => Answer::Success(reply),
            // An input that is wrong for everybody is wrong as it would be for one.
            (false, Some(refusal)) => Answer::Refused(refusal),
            (false, None) => Answer::ToolError(reply),
        };
        all
    }

    fn no_such_node(&self, name: &str, node: &str) -> String {
        let known = self.parts.registry.node_names();
        if known.iter().any(|known| known == node) {
            return format!("the node \"{node}\" has no tool {name}");
        }
        let shown: String = node.chars().take(64).collect();
        match nearest(&shown, known.iter().map(String::as_str)).first() {
            Some(near) => format!("unknown node \"{shown}\"; did you mean \"{near}\"?"),
            None => format!("unknown node \"{shown}\""),
        }
    }

    fn refuse_node(&self, call: &Call, name: &str, message: String) -> Outcome {
        let violation = Violation { path: NODE_ARGUMENT.into(), message: message.clone() };
        let refusal =
            Refusal { violations: vec![violation], ..Refusal::new(RefusalCode::InvalidInput, message) }
                .with_hint(format!(
                    "\"{NODE_ARGUMENT}\" takes a node's name, tag:NAME or *; or call NODE__{name}"
                ));
        self.refused(call, name, None, refusal, None)
    }
}

/// Takes the `node` argument out of the input, unless the tool has a field of that name itself.
fn selected(nodes: &[OnNode], input: &mut Value) -> Result<Selected, String> {
    let own_field = |found: &OnNode| found.tool.input_schema()["properties"].get(NODE_ARGUMENT).is_some();
    let Some(object) = input.as_object_mut().filter(|_| !nodes.iter().any(own_field)) else {
        return Ok(Selected::Implicit);
    };
    match object.shift_remove(NODE_ARGUMENT) {
        None | Some(Value::Null) => Ok(Selected::Implicit),
        Some(Value::String(text)) if text == "*" => Ok(Selected::All),
        Some(Value::String(text)) => Ok(match text.strip_prefix("tag:") {
            Some(tag) => Selected::Tagged(tag.to_owned()),
            None => Selected::One(text),
        }),
        Some(_) => Err(format!("\"{NODE_ARGUMENT}\" is a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::NodeState;
    use crate::testing::{self, echo_tool};
    use crate::tool::Toolset;
    use crate::{Principal, Surface, ToolScope};

    fn gate() -> Gate {
        let (gate, _) = testing::gate([echo_tool("read", Toolset::Basic)]);
        for (node, online, tags) in
            [("a", true, vec!["web"]), ("b", true, vec!["web", "db"]), ("c", false, vec![])]
        {
            let tags = tags.into_iter().map(str::to_owned).collect();
            let mut tools = vec![echo_tool("Echo", Toolset::Node).on_node(node)];
            if node == "b" {
                tools.push(echo_tool("OnlyB", Toolset::Node).on_node(node));
            }
            gate.registry().set_node(node, NodeState { online, tags }, tools);
        }
        gate
    }

    async fn ask_as(gate: &Gate, call: Call, name: &str, input: Value) -> Result<Value, String> {
        match gate.dispatch(call, name, input).await.answer {
            Answer::Success(Reply::Json(value)) => Ok(value),
            Answer::Refused(refusal) => Err(refusal.message),
            other => panic!("{other:?}"),
        }
    }

    async fn ask(gate: &Gate, name: &str, input: Value) -> Result<Value, String> {
        let call = Call::new(Principal::Operator, Surface::Cli, "/".into());
        ask_as(gate, call, name, input).await
    }

    #[tokio::test]
    async fn one_node_answers_as_if_called_by_its_full_name() {
        let gate = gate();
        let named = ask(&gate, "Echo", json!({"text": "x", "node": "a"})).await;
        assert_eq!(named, ask(&gate, "a__Echo", json!({"text": "x"})).await);
        let wrong = ask(&gate, "Echo", json!({"node": "aa"})).await.unwrap_err();
        assert!(wrong.contains("did you mean \"a\""), "{wrong}");
        assert!(ask(&gate, "OnlyB", json!({"node": "a"})).await.unwrap_err().contains("has no tool OnlyB"));
        assert!(ask(&gate, "Echo", json!({"node": 7})).await.is_err());
    }

    #[tokio::test]
    async fn several_nodes_answer_each_by_name() {
        let gate = gate();
        let all = ask(&gate, "Echo", json!({"text": "x", "node": "*"})).await.unwrap();
        let names: Vec<_> =
            all["results"].as_array().unwrap().iter().map(|one| one["node"].clone()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(all["results"][0], json!({"node": "a", "ok": true, "result": {"text": "x"}}));
        let tagged = ask(&gate, "Echo", json!({"node": "tag:db"})).await.unwrap();
        assert_eq!(tagged["results"].as_array().unwrap().len(), 1);
        assert!(ask(&gate, "Echo", json!({"node": "tag:none"})).await.is_err());
        let wrong = ask(&gate, "Echo", json!({"txt": "x", "node": "*"})).await.unwrap_err();
        assert!(wrong.contains("has 1 error"), "wrong for all is wrong as for one: {wrong}");
    }

    #[tokio::test]
    async fn a_result_that_does_not_fit_leaves_the_others() {
        let text = "x".repeat(MAX_RESULTS_BYTES / 2);
        let all = ask(&gate(), "Echo", json!({"text": text, "node": "tag:web"})).await.unwrap();
        let results = all["results"].as_array().unwrap();
        let kept: Vec<_> = results.iter().filter(|one| one["ok"] == true).collect();
        assert_eq!((results.len(), kept.len()), (2, 1));
        assert_eq!(kept[0]["result"]["text"].as_str().map(str::len), Some(text.len()));
        let error = results.iter().find_map(|one| one.get("error")).unwrap();
        assert_eq!(error["code"], "too_large", "{error}");
    }

    #[tokio::test]
    async fn nobody_is_chosen_while_two_could_answer_and_the_only_one_is_named() {
        let gate = gate();
        let two = ask(&gate, "Echo", json!({})).await.unwrap_err();
        assert!(two.contains("several nodes can answer: a, b"), "{two}");
        assert_eq!(ask(&gate, "OnlyB", json!({})).await.unwrap(), json!({"text": "", "node": "b"}));
        gate.registry().set_node_state("b", NodeState::default());
        assert_eq!(ask(&gate, "Echo", json!({})).await.unwrap()["node"], "a");
        assert!(ask(&gate, "OnlyB", json!({})).await.unwrap_err().contains("offline: b"));
        gate.registry().remove_node("b");
        assert!(ask(&gate, "OnlyB", json!({})).await.unwrap_err().contains("unknown tool"));
    }

    #[tokio::test]
    async fn a_scope_hides_nodes_too() {
        let gate = gate();
        let mut call = Call::new(Principal::Operator, Surface::Cli, "/".into());
        call.scope = ToolScope::new(Some(&["a__*".to_owned()]), &[]).unwrap();
        let all = ask_as(&gate, call.clone(), "Echo", json!({"node": "*"})).await.unwrap();
        assert_eq!(all["results"].as_array().unwrap().len(), 1);
        assert!(ask_as(&gate, call, "Echo", json!({"node": "b"})).await.is_err());
    }

    #[tokio::test]
    async fn other_tools_have_no_node_argument() {
        let refused = ask(&gate(), "read", json!({"node": "a"})).await.unwrap_err();
        assert!(refused.contains("has 1 error"), "{refused}");
    }

    #[test]
    fn shared_tools_are_listed_once_with_their_nodes() {
        let shared = gate().registry().view(&ToolScope::default()).shared();
        let rows: Vec<_> = shared.iter().map(|tool| (&*tool.name, tool.nodes.join(" "))).collect();
        assert_eq!(rows, [("Echo", "a b c".to_owned()), ("OnlyB", "b".to_owned())]);
        assert!(shared[0].input_schema()["properties"]["node"].is_object());
    }
}
