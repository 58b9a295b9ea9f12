//! Calls by the bare name of a node tool. The `node` argument selects one node, several, or the caller's default node.
//! The call of each node passes the gate separately.

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::fan_out::Results;
use super::{Answer, Gate, Outcome};
use crate::call::{Call, Findings};
use crate::error::{Refusal, RefusalCode, Violation};
use crate::registry::multi_node::NODE_ARGUMENT;
use crate::registry::{NodeState, OnNode, default_among, never_connected, node_and_name};
use crate::text::nearest::nearest;
use crate::tool::{Reply, Tool, Toolset, Touch};

/// How many nodes work on one fanned-out call at the same time.
const FAN_OUT: usize = 16;

/// The limit for the results of all nodes together: one frame, with room for its other fields.
const MAX_RESULTS_BYTES: usize = gantry_protocol::MAX_FRAME_BYTES - (1 << 20);

/// How many nodes without the tool are named in warnings.
const MAX_NAMED: usize = 16;

/// The value of the `node` argument.
enum Selected {
    /// The argument is absent.
    Implicit,
    One(String),
    Tagged(String),
    All,
}

/// The nodes that a fanned-out call is for.
struct Targets {
    having: Vec<OnNode>,
    /// Nodes that never connected. They may have the tool.
    never_here: Vec<(String, NodeState)>,
    /// Selected nodes without the tool.
    lacking: Vec<String>,
}

impl Targets {
    fn is_empty(&self) -> bool {
        self.having.is_empty() && self.never_here.is_empty()
    }

    fn names(&self, node: &str) -> bool {
        self.having.iter().any(|found| found.node == node) || self.never_here.iter().any(|(id, _)| id == node)
    }
}

fn without(node: &str, name: &str) -> String {
    format!("{node}: skipped, because it has no {name} that this call may use")
}

impl Gate {
    /// As [`Gate::call`], and handles the `node` argument.
    pub async fn dispatch(&self, call: Call, name: &str, input: Value) -> Outcome {
        match self.parts.registry.nodes_with(&call.scope, name) {
            None => self.call(call, name, input).await,
            // Boxed, because fanning out would enlarge the future of every call.
            Some(nodes) => Box::pin(self.dispatch_among(nodes, call, name, input)).await,
        }
    }

    async fn dispatch_among(&self, nodes: Vec<OnNode>, call: Call, name: &str, mut input: Value) -> Outcome {
        let nodes = match selected(&nodes, &mut input) {
            Err(message) => return self.refuse_node(&call, name, message),
            Ok(Selected::One(node)) => match nodes.into_iter().find(|found| found.node == node) {
                Some(found) => return self.call(call, found.tool.name(), input).await,
                None => return self.not_on(&call, name, &node, &input),
            },
            Ok(Selected::Implicit) => return self.on_the_default(call, name, nodes, input).await,
            Ok(Selected::Tagged(tag)) => {
                let tagged = nodes.into_iter().filter(|found| found.state.tags.contains(&tag));
                let mut targets = self.targets(&call, name, tagged.collect());
                targets.never_here.retain(|(_, state)| state.tags.contains(&tag));
                let lacking =
                    self.parts.registry.tagged(&tag).into_iter().filter(|node| !targets.names(node));
                targets.lacking = lacking.collect();
                if targets.is_empty() {
                    let message = match targets.lacking.as_slice() {
                        [] => format!("no node with {name} has the tag \"{tag}\""),
                        lacking => {
                            let lacking = lacking.join(", ");
                            format!(
                                "no node with the tag \"{tag}\" ({lacking}) has {name} as a tool that this call may use"
                            )
                        }
                    };
                    return self.refuse_node(&call, name, message);
                }
                targets
            }
            Ok(Selected::All) => self.targets(&call, name, nodes),
        };
        self.fan_out(call, name, nodes, input).await
    }

    fn targets(&self, call: &Call, name: &str, having: Vec<OnNode>) -> Targets {
        let never_here = self.parts.registry.never_here(&call.scope, name);
        Targets { having, never_here, lacking: Vec::new() }
    }

    /// Refuses a call for a node that has no such tool.
    fn not_on(&self, call: &Call, name: &str, node: &str, input: &Value) -> Outcome {
        let never_here = self.parts.registry.never_here(&call.scope, name);
        if never_here.iter().any(|(never, _)| never == node) {
            return self.refused(call, name, Some(input), never_connected(node), None);
        }
        self.refuse_node(call, name, self.no_such_node(name, node))
    }

    /// The paths that a call would touch on this machine, as policy sees them. Empty for calls that run elsewhere or would
    /// be refused. For a tool that walks a tree, this is where the walk begins.
    pub async fn touches(&self, call: &Call, name: &str, input: &Value) -> Vec<Touch> {
        let mut input = input.clone();
        let mut touches = Vec::new();
        for tool in self.meant(call, name, &mut input) {
            let (input, violations) = tool.checked(input.clone()).await;
            if violations.is_empty() {
                touches.extend(tool.touched(call, &input).unwrap_or_default());
            }
        }
        touches
    }

    /// The nodes that a call would run on. Empty for tools that are not node tools.
    pub fn machines(&self, call: &Call, name: &str, input: &Value) -> Vec<String> {
        let tools = self.tools_meant(call, name, input);
        let nodes = tools.iter().filter_map(|tool| node_and_name(tool));
        nodes.map(|(node, _)| node.to_owned()).collect()
    }

    /// The tools that a call would run, one for each node. Empty for an unknown name.
    pub fn tools_meant(&self, call: &Call, name: &str, input: &Value) -> Vec<Arc<Tool>> {
        self.meant(call, name, &mut input.clone())
    }

    /// As [`Gate::tools_meant`]. Removes the `node` argument from the input.
    pub(super) fn meant(&self, call: &Call, name: &str, input: &mut Value) -> Vec<Arc<Tool>> {
        let Some(nodes) = self.parts.registry.nodes_with(&call.scope, name) else {
            return self.parts.registry.resolve_for(call, name).into_iter().collect();
        };
        let selected = selected(&nodes, input);
        let default = default_among(&nodes, call.default_node.as_deref());
        let default = default.map(|index| nodes[index].node.clone());
        let is_meant = |found: &OnNode| match &selected {
            Ok(Selected::One(node)) => found.node == *node,
            Ok(Selected::Tagged(tag)) => found.state.tags.contains(tag),
            Ok(Selected::Implicit) => default.as_ref() == Some(&found.node),
            Ok(Selected::All) => true,
            Err(_) => false,
        };
        nodes.into_iter().filter(is_meant).map(|found| found.tool).collect()
    }

    /// Runs on the caller's default node, and names that node in the result.
    async fn on_the_default(&self, call: Call, name: &str, nodes: Vec<OnNode>, input: Value) -> Outcome {
        let default_node = call.default_node.as_deref();
        if let Some(index) = default_among(&nodes, default_node) {
            let found = &nodes[index];
            let mut outcome = self.call(call, found.tool.name(), input).await;
            if let Answer::Success(Reply::Json(Value::Object(object)))
            | Answer::ToolError(Reply::Json(Value::Object(object))) = &mut outcome.answer
            {
                object.entry(NODE_ARGUMENT).or_insert_with(|| json!(found.node));
            }
            return outcome;
        }
        // No other node may run a call for the node that the operator configured.
        if let Some(node) = default_node {
            return self.not_on(&call, name, node, &input);
        }
        let listed = |nodes: &mut dyn Iterator<Item = &OnNode>| {
            nodes.map(|found| &*found.node).collect::<Vec<_>>().join(", ")
        };
        let online = listed(&mut nodes.iter().filter(|found| found.state.online));
        if online.is_empty() {
            let away = listed(&mut nodes.iter());
            let message = format!("no node with {name} is connected; offline: {away}");
            let refusal = Refusal::new(RefusalCode::Unavailable, message);
            return self.refused(&call, name, Some(&input), refusal, None);
        }
        // Such an input is wrong on every node.
        if !input.is_object() {
            let message = format!("the input of {name} must be an object");
            let refusal = Refusal::new(RefusalCode::InvalidInput, message)
                .with_hint(format!("`gantry tools {name}` shows the schema"));
            return self.refused(&call, name, Some(&input), refusal, None);
        }
        self.refuse_node(
            &call,
            name,
            format!("several nodes have {name}: {online}; select one with \"{NODE_ARGUMENT}\""),
        )
    }

    async fn fan_out(&self, call: Call, name: &str, targets: Targets, input: Value) -> Outcome {
        let call_id = call.id.clone();
        let calls = targets.having.into_iter().map(|found| {
            let mut own = Call { id: uuid::Uuid::now_v7().to_string(), ..call.clone() };
            (own.cancel, own.findings) = (call.cancel.child_token(), Findings::default());
            // The caller's own limit is for all results together.
            own.max_result_chars = None;
            let input = input.clone();
            async move { (self.call(own, found.tool.name(), input).await, found.node) }
        });
        let mut outcomes = futures_util::stream::iter(calls).buffered(FAN_OUT);
        let mut all = Outcome {
            call_id,
            tool: name.to_owned(),
            answer: Answer::Success(Reply::Json(Value::Null)),
            labels: Vec::new(),
            warnings: targets.lacking.iter().take(MAX_NAMED).map(|node| without(node, name)).collect(),
        };
        if targets.lacking.len() > MAX_NAMED {
            all.warnings.push(format!(
                "{} more nodes were skipped, because they have no {name}",
                targets.lacking.len() - MAX_NAMED
            ));
        }
        let mut results = Results::up_to(MAX_RESULTS_BYTES);
        // The first refusal, while every node so far has refused the input as invalid.
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
        // If the input is invalid on every connected node, the nodes that never connected are not listed.
        if invalid.is_none() {
            for (node, _) in targets.never_here {
                let tool = format!("{node}__{name}");
                let outcome = self.refused(&call, &tool, Some(&input), never_connected(&node), None);
                all.warnings.extend(outcome.warnings);
                results.push(node, outcome.answer);
            }
        }
        let results = results.into_values();
        let any_ok = results.iter().any(|result| result["ok"] == true);
        let reply = Reply::Json(json!({ "results": results }));
        all.answer = match (any_ok, invalid) {
            (true, _) => Answer::Success(reply),
            // An input that is invalid on every node is refused as it would be on one.
            (false, Some(refusal)) => Answer::Refused(refusal),
            (false, None) => Answer::ToolError(reply),
        };
        if let Some(limit) = call.max_result_chars.filter(|_| call.surface.is_model_facing()) {
            let (answer, warnings) = self.bound_to(&call, name, Toolset::Node, all.answer, limit).await;
            all.answer = answer;
            all.warnings.extend(warnings);
        }
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

/// Removes the `node` argument from the input, unless the tool has its own field of that name.
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
        Some(_) => Err(format!("\"{NODE_ARGUMENT}\" must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    async fn nodes_that_never_connected_or_lack_the_tool_are_named() {
        let gate = gate();
        let tags = vec!["web".to_owned()];
        gate.registry().set_node("new", NodeState { online: false, tags: tags.clone() }, Vec::new());
        let tools = vec![echo_tool("Other", Toolset::Node).on_node("rd")];
        gate.registry().set_node("rd", NodeState { online: true, tags }, tools);
        let call = || Call::new(Principal::Operator, Surface::Cli, "/".into());
        for input in [json!({"node": "new"}), json!({"node": "new", "nonsense": 1})] {
            let Answer::Refused(refusal) = gate.dispatch(call(), "Echo", input).await.answer else {
                panic!()
            };
            assert_eq!(refusal.code, RefusalCode::Unavailable);
            assert!(refusal.message.contains("never connected"), "{refusal:?}");
        }
        let named = |value: &Value| -> Vec<String> {
            let results = value["results"].as_array().unwrap().iter();
            results.map(|one| format!("{} {}", one["node"].as_str().unwrap(), one["ok"])).collect()
        };
        let all = ask(&gate, "Echo", json!({"text": "x", "node": "*"})).await.unwrap();
        assert_eq!(named(&all), ["a true", "b true", "c true", "new false"]);
        assert_eq!(all["results"][3]["error"]["code"], "unavailable");
        let outcome = gate.dispatch(call(), "Echo", json!({"text": "x", "node": "tag:web"})).await;
        let Answer::Success(Reply::Json(tagged)) = outcome.answer else { panic!() };
        assert_eq!(named(&tagged), ["a true", "b true", "new false"]);
        assert_eq!(outcome.warnings, ["rd: skipped, because it has no Echo that this call may use"]);
        // Invalid on every connected node.
        let wrong = ask(&gate, "Echo", json!({"txt": "x", "node": "tag:web"})).await.unwrap_err();
        assert!(wrong.contains("has 1 error"), "{wrong}");
        gate.registry().set_node_state("rd", NodeState { online: true, tags: vec!["ro".into()] });
        let none = ask(&gate, "Echo", json!({"node": "tag:ro"})).await.unwrap_err();
        assert!(none.contains("no node with the tag \"ro\" (rd) has Echo"), "{none}");
        let mut scoped = call();
        scoped.scope = ToolScope::new(Some(&["a__*".to_owned()]), &[]).unwrap();
        let all = ask_as(&gate, scoped, "Echo", json!({"node": "*"})).await.unwrap();
        assert_eq!(named(&all), ["a true"]);
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
    async fn ambiguous_bare_name_is_refused_and_the_default_node_is_named() {
        let gate = gate();
        let two = ask(&gate, "Echo", json!({})).await.unwrap_err();
        assert!(two.contains("several nodes have Echo: a, b"), "{two}");
        for odd in [json!([]), json!("x"), json!(null)] {
            let wrong = ask(&gate, "Echo", odd.clone()).await.unwrap_err();
            assert!(wrong.contains("the input of Echo must be an object"), "{odd}: {wrong}");
        }
        assert_eq!(ask(&gate, "OnlyB", json!({})).await.unwrap(), json!({"text": "", "node": "b"}));
        gate.registry().set_node_state("b", NodeState::default());
        assert_eq!(ask(&gate, "Echo", json!({})).await.unwrap()["node"], "a");
        assert!(ask(&gate, "OnlyB", json!({})).await.unwrap_err().contains("offline: b"));
        gate.registry().remove_node("b");
        assert!(ask(&gate, "OnlyB", json!({})).await.unwrap_err().contains("unknown tool"));
    }

    #[tokio::test]
    async fn bare_name_means_local_if_local_has_the_tool() {
        let gate = gate();
        let tools = vec![echo_tool("Echo", Toolset::Node).on_node("local")];
        gate.registry().set_node("local", NodeState { online: true, tags: Vec::new() }, tools);
        assert_eq!(
            ask(&gate, "Echo", json!({"text": "x"})).await.unwrap(),
            json!({"text": "x", "node": "local"})
        );
        let call = Call::new(Principal::Operator, Surface::Cli, "/".into());
        assert_eq!(gate.machines(&call, "Echo", &json!({})), ["local"], "judged by the node that it runs on");
        let wrong = ask(&gate, "Echo", json!({"txt": "x"})).await.unwrap_err();
        assert!(wrong.contains("local__Echo has 1 error"), "{wrong}");
        assert_eq!(ask(&gate, "OnlyB", json!({})).await.unwrap()["node"], "b", "local does not have it");
    }

    #[tokio::test]
    async fn bare_name_means_only_the_default_node_of_the_agent() {
        let gate = gate();
        let tools = vec![echo_tool("Echo", Toolset::Node).on_node("local")];
        gate.registry().set_node("local", NodeState { online: true, tags: Vec::new() }, tools);
        gate.registry().set_node("new", NodeState::default(), Vec::new());
        let on = |node: &str| {
            let mut call = Call::new(Principal::Operator, Surface::Cli, "/".into());
            call.default_node = Some(node.to_owned());
            call
        };
        assert_eq!(ask_as(&gate, on("b"), "Echo", json!({})).await.unwrap()["node"], "b");
        assert_eq!(gate.machines(&on("b"), "Echo", &json!({})), ["b"]);
        assert_eq!(
            ask_as(&gate, on("b"), "Echo", json!({"node": "a"})).await,
            ask(&gate, "a__Echo", json!({})).await
        );
        for (node, name, reason) in [
            ("a", "OnlyB", "the node \"a\" has no tool OnlyB"),
            ("new", "Echo", "never connected"),
            ("gone", "Echo", "unknown node \"gone\""),
        ] {
            let refused = ask_as(&gate, on(node), name, json!({})).await.unwrap_err();
            assert!(refused.contains(reason), "{node}: {refused}");
            assert!(gate.machines(&on(node), name, &json!({})).is_empty());
        }
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
