//! `policy.explain`: what would be decided on a call. Nothing runs.

use std::sync::Arc;

use gantry_domain::MethodContext;
use gantry_protocol::{PolicyDecision, PolicyExplain, PolicyExplained, PolicyRuleChecked, PolicyTouch};
use gantry_tool::{Access, Explanation, Surface};
use serde_json::json;

use super::{Answer, State, internal};
use crate::commands::policy::decision_name;

pub(super) async fn explain(
    state: Arc<State>,
    context: MethodContext,
    params: PolicyExplain,
) -> Answer<PolicyExplained> {
    let Some((gate, services)) = state.running.get() else {
        return Err(internal(&"the gateway has not started"));
    };
    let call = services.call(&context.identity, params.agent.as_deref(), Surface::Websocket);
    let call = call.map_err(|refusal| refusal.to_wire())?;
    let input = params.input.unwrap_or_else(|| json!({}));
    let explained = gate.explain(&call, &params.tool, &input).await.map_err(|refusal| refusal.to_wire())?;
    Ok(PolicyExplained { decisions: explained.into_iter().map(decision).collect() })
}

fn decision(explained: Explanation) -> PolicyDecision {
    let touches = explained.touches.into_iter().map(|touch| PolicyTouch {
        path: touch.path.display().to_string(),
        access: match touch.access {
            Access::Read => "read".to_owned(),
            Access::Write => "write".to_owned(),
        },
        sensitive: touch.sensitive,
        closed: touch.closed,
    });
    let rules = explained.rules.into_iter().map(|checked| PolicyRuleChecked {
        mismatch: checked.mismatch.as_ref().map(ToString::to_string),
        rule: checked.rule.to_string(),
    });
    PolicyDecision {
        touches: touches.collect(),
        rules: rules.collect(),
        decision: decision_name(explained.outcome).to_owned(),
        rule: explained.verdict.rule.to_string(),
        reason: explained.verdict.reason.to_string(),
        tool: explained.tool,
    }
}
