//! `gantry policy explain` shows what would be decided on a call, and why.

use anyhow::Result;
use gantry_tool::{Access, Call, Explanation, Principal, Refusal, RefusalCode, Surface};
use serde_json::{Value, json};

use super::{Caller, ExplainArgs, decision_name, decision_shown, node_tools};
use crate::client::runtime;
use crate::commands::call::read_input;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::local::{Local, MAIN_AGENT};
use crate::output::Output;

pub(super) fn run(environment: Environment, output: &Output, args: ExplainArgs) -> Result<Exit> {
    let text = read_input(&environment, &args.input)?;
    let input: Value = match serde_json::from_str(&text) {
        Ok(input) => input,
        Err(err) => {
            let message = format!("the input is not valid JSON: {err}");
            output.refusal(&Refusal::new(RefusalCode::InvalidInput, message));
            return Ok(Exit::Usage);
        }
    };
    let local = Local::open(environment)?;
    let mut call = local.call(args.agent.as_deref(), args.workspace)?;
    args.agent.as_deref().unwrap_or(MAIN_AGENT).clone_into(&mut call.agent);
    (call.principal, call.surface) = caller(args.caller, args.agent.as_deref());
    node_tools::add_node_of(&local, &args.name);
    if let Some(node) = input.get("node").and_then(Value::as_str).filter(|node| *node != "*") {
        node_tools::add_node_of(&local, &format!("{node}__{}", args.name));
    }
    match runtime()?.block_on(local.gate.explain(&call, &args.name, &input)) {
        Ok(explanations) => {
            if output.json {
                output.value(&explanations.iter().map(|one| as_json(&call, one)).collect::<Vec<_>>());
            } else {
                explanations.iter().for_each(|one| print(output, &call, one));
            }
            Ok(Exit::Success)
        }
        Err(refusal) => {
            output.refusal(&refusal);
            Ok(refusal.code.into())
        }
    }
}

fn caller(caller: Option<Caller>, agent: Option<&str>) -> (Principal, Surface) {
    let default = if agent.is_some() { Caller::Agent } else { Caller::Operator };
    match caller.unwrap_or(default) {
        Caller::Operator => (Principal::Operator, Surface::Cli),
        Caller::Client => (Principal::Client { token: "any".into() }, Surface::Http),
        Caller::Mcp => (Principal::Mcp { client: "any".into() }, Surface::Mcp),
        Caller::Agent => (Principal::Agent { id: agent.unwrap_or(MAIN_AGENT).to_owned() }, Surface::Agent),
    }
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}

fn as_json(call: &Call, explained: &Explanation) -> Value {
    let touches: Vec<Value> = explained
        .touches
        .iter()
        .map(|touch| {
            json!({
                "path": touch.path, "access": access_name(touch.access),
                "sensitive": touch.sensitive, "closed": touch.closed,
            })
        })
        .collect();
    let rules: Vec<Value> = explained
        .rules
        .iter()
        .map(|checked| {
            json!({
                "rule": checked.rule, "agent": checked.agent, "matches": checked.mismatch.is_none(),
                "reason": checked.mismatch.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    json!({
        "tool": explained.tool, "decision": decision_name(explained.outcome),
        "policyDecision": decision_name(explained.verdict.decision),
        "rule": explained.verdict.rule, "reason": explained.verdict.reason,
        "principal": call.principal.name(), "agent": call.agent, "autonomy": call.autonomy.name(),
        "workspace": call.workspace, "touches": touches, "rules": rules,
    })
}

fn print(output: &Output, call: &Call, explained: &Explanation) {
    let decision = decision_shown(output, explained.outcome);
    output.line(&format!("{}: {decision}", output.bold(&explained.tool)));
    let fact = |name: &str, text: &str| output.prose(&format!("  {name:<9} {text}"), 12);
    fact("rule", &explained.verdict.rule);
    fact("reason", &explained.verdict.reason);
    if explained.outcome != explained.verdict.decision {
        fact("", "policy asks, but an autonomous agent asks nobody");
    }
    let caller = match call.principal.is_own_agent() {
        true => format!("{}, autonomy {}", call.principal, call.autonomy.name()),
        false => format!("{} as agent {}", call.principal, call.agent),
    };
    fact("caller", &caller);
    for touch in &explained.touches {
        let notes = [(touch.sensitive, " (sensitive)"), (touch.closed, " (closed to every tool)")];
        let notes: String = notes.iter().filter(|(is, _)| *is).map(|(_, note)| *note).collect();
        fact("touches", &format!("{} {}{notes}", access_name(touch.access), touch.path.display()));
    }
    let several = !call.policy_agents.is_empty();
    for checked in &explained.rules {
        let agent = if several { format!(" for agent {}", checked.agent) } else { String::new() };
        let result = checked.mismatch.as_ref().map_or("applies".to_owned(), ToString::to_string);
        fact("checked", &format!("{}{agent}: {result}", checked.rule));
    }
}
