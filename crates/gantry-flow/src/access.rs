//! Who may see and change background work, and how surfaces answer. The operator may do everything. A client token may read
//! and change the work of its agents, unless it is read-only or limited to some tools.

use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::Response;
use gantry_domain::Identity;
use gantry_domain::http::{json_response, problem, refusal_response};
use gantry_protocol::WireError;
use gantry_store::DatabaseError;
use gantry_tool::{Refusal, RefusalCode};
use serde::Serialize;

pub(crate) type Answer<T> = Result<T, WireError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Change,
}

/// Checks that the caller may use the work of an agent.
pub(crate) fn check(identity: &Identity, agent: &str, access: Access) -> Result<(), Refusal> {
    let Identity::Client(token) = identity else { return Ok(()) };
    identity.check_agent(agent)?;
    if access == Access::Read {
        return Ok(());
    }
    if token.read_only {
        let message = format!("the token \"{}\" is read-only", token.name);
        return Err(Refusal::new(RefusalCode::Denied, message));
    }
    if token.tools.is_some() {
        let message = format!(
            "the token \"{}\" is limited to some tools, and an agent would use its own tools",
            token.name
        );
        let hint = "use a token that was made without --tools";
        return Err(Refusal::new(RefusalCode::Denied, message).with_hint(hint));
    }
    Ok(())
}

/// Returns the agents whose work the caller may see. `None` means all.
pub(crate) fn own_agents(identity: &Identity) -> Option<&[String]> {
    match identity {
        Identity::Client(token) if !token.agents.iter().any(|agent| agent == "*") => Some(&token.agents),
        Identity::Client(_) | Identity::Operator => None,
    }
}

pub(crate) fn check_operator(identity: &Identity, what: &str) -> Result<(), Refusal> {
    match identity.is_operator() {
        true => Ok(()),
        false => {
            let refusal = Refusal::new(RefusalCode::Denied, format!("only the operator can {what}"));
            Err(refusal.with_hint("use the operator's token"))
        }
    }
}

/// Rejects an id that names nothing, or several things.
pub(crate) fn unknown_id(what: &str, id: &str, is_ambiguous: bool, lists: &str) -> Refusal {
    let shown: String = id.chars().take(80).collect();
    let text = match is_ambiguous {
        true => format!("several {what}s have ids that start with {shown:?}; write more of the id"),
        false => format!("unknown {what} {shown:?}; `{lists}` lists them"),
    };
    Refusal::new(RefusalCode::InvalidInput, text)
}

pub(crate) fn store_refusal(err: DatabaseError) -> Refusal {
    let code = match &err {
        DatabaseError::Refused(_) => RefusalCode::InvalidInput,
        _ => RefusalCode::Unavailable,
    };
    Refusal::new(code, err.to_string())
}

pub(crate) fn wire(refusal: Refusal) -> WireError {
    refusal.to_wire()
}

pub(crate) fn answered<T: Serialize>(answer: Result<T, Refusal>) -> Response {
    match answer {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(refusal) => refusal_response(&refusal),
    }
}

pub(crate) fn bad_query(err: &QueryRejection) -> Response {
    problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None)
}
