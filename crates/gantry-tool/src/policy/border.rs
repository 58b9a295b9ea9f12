//! The border around an agent's sandbox. What crosses it is asked: an unknown host, a write outside the workspace, a tool
//! whose effects are unknown. While a run holds untrusted and private content, every crossing is asked.

use super::{Decision, Policy, Request, Verdict};
use crate::call::Call;
use crate::gate::approval::{BORDER_RULE, FLOW_RULE};
use crate::tool::Crossing;

/// Whether the border applies to the caller: an agent of this gateway. A node does not ask again.
pub(super) fn applies(call: &Call) -> bool {
    call.principal.is_own_agent() && !call.autonomy_judged
}

/// The question about a crossing, if one has to be asked whatever the run has read.
pub(super) fn verdict(request: &Request<'_>) -> Option<Verdict> {
    if !applies(request.call) {
        return None;
    }
    let reason = crossings(request).find_map(|crossing| match crossing {
        Crossing::Host { known: true, .. } | Crossing::Network => None,
        Crossing::Host { host, .. } => {
            Some(format!("{} has not been allowed to connect to {host} yet", request.call.agent))
        }
        Crossing::Foreign => {
            Some(format!("{} is not Gantry's own tool, so its effects are not known", request.subject.name))
        }
        Crossing::Write(path) => {
            let workspace = request.call.workspace.display();
            Some(format!("{} is outside the workspace ({workspace})", path.display()))
        }
        Crossing::Change { what } => {
            Some(format!("{} has not been allowed to {what} yet", request.call.agent))
        }
        Crossing::Message { to } => {
            Some(format!("{} has not been allowed to write to {to} yet", request.call.agent))
        }
    })?;
    Some(Verdict::new(Decision::Ask, BORDER_RULE, reason))
}

/// Makes a question of a verdict that would let a labelled run cross the border. Only a rule for exact hosts or paths that
/// says so lets it pass.
pub(super) fn labelled(policy: &Policy, request: &Request<'_>, verdict: Verdict, sensitive: bool) -> Verdict {
    let call = request.call;
    let Some(both) = call.holds_both.as_ref().filter(|_| applies(call)) else { return verdict };
    let Some(crossing) = crossings(request).next().filter(|_| verdict.decision != Decision::Deny) else {
        return verdict;
    };
    let is_source = |crossing: &Crossing| match crossing {
        Crossing::Host { host, .. } => call.private_from.as_ref() == Some(host),
        Crossing::Network
        | Crossing::Foreign
        | Crossing::Write(_)
        | Crossing::Change { .. }
        | Crossing::Message { .. } => false,
    };
    if crossings(request).all(is_source) {
        return verdict;
    }
    let agents = || std::iter::once(&call.agent).chain(&call.policy_agents);
    let passes = |agent| {
        policy
            .matching(request, agent, sensitive)
            .is_some_and(|rule| rule.decision == Decision::Allow && rule.counts_even_labelled())
    };
    if agents().all(passes) {
        return verdict;
    }
    let what = match crossing {
        Crossing::Host { host, .. } => format!("the call connects to {host}"),
        Crossing::Write(path) => format!("the call writes {}, outside the workspace", path.display()),
        Crossing::Change { what } => format!("the call would {what}"),
        Crossing::Message { to } => format!("the call sends a message to {to}"),
        Crossing::Network | Crossing::Foreign => "the call has network access".to_owned(),
    };
    Verdict::new(Decision::Ask, FLOW_RULE, format!("{what}, and {both}; it could leak them"))
}

/// The crossings of a call. A path as it was written may be inside the workspace after all.
fn crossings<'a>(request: &'a Request<'_>) -> impl Iterator<Item = &'a Crossing> {
    let is_inside = |crossing: &&Crossing| match crossing {
        Crossing::Write(path) => path.starts_with(&request.call.workspace) && !has_parent(path),
        _ => false,
    };
    request.crossings.iter().filter(move |crossing| !is_inside(crossing))
}

fn has_parent(path: &std::path::Path) -> bool {
    path.components().any(|part| part == std::path::Component::ParentDir)
}
