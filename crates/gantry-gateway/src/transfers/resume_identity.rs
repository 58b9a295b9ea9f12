//! As what a transfer is judged while it goes on, and with which token it ends: the caller as its call came, also after a
//! restart of the gateway.

use gantry_protocol::{Caller, WireError};
use gantry_tool::{Call, ImpliedQuestion, Principal};
use serde::{Deserialize, Serialize};

/// What of a call matters to its judge, and to its end, and is not in its [`Caller`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResumeIdentity {
    /// The client token that it was begun with.
    token: Option<String>,
    /// The database holds it under its first name.
    #[serde(rename = "alsoAs")]
    policy_agents: Vec<String>,
    approved: Vec<ImpliedQuestion>,
}

impl ResumeIdentity {
    pub(super) fn of(call: &Call) -> ResumeIdentity {
        ResumeIdentity {
            token: call.token.clone(),
            policy_agents: call.policy_agents.clone(),
            approved: call.approved.clone(),
        }
    }

    /// Of most transfers there is nothing to say.
    pub(super) fn to_text(&self) -> Option<String> {
        if *self == ResumeIdentity::default() { None } else { serde_json::to_string(self).ok() }
    }

    pub(super) fn from_text(text: Option<&str>) -> Result<ResumeIdentity, String> {
        let Some(text) = text else { return Ok(ResumeIdentity::default()) };
        serde_json::from_str(text).map_err(|err| format!("it is not known how to judge it: {err}"))
    }

    /// With the token that the principal is named after, where none was written down.
    pub(super) fn of_token(mut self, principal: &str) -> ResumeIdentity {
        self.token = self.token.or_else(|| match principal.parse().ok()? {
            Principal::Client { token } => Some(token),
            Principal::Mcp { client } => Some(client.split_once('/')?.0.to_owned()),
            Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => None,
        });
        self
    }

    /// The call that rules are asked about.
    pub(super) fn call(self, caller: &Caller) -> Result<Call, WireError> {
        let call = Call::on_behalf(caller, "/".into())?;
        Ok(Call { token: self.token, policy_agents: self.policy_agents, approved: self.approved, ..call })
    }
}
