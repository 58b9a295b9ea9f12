//! As what a transfer is judged while it goes on, and with which token it ends: the caller as its call came, also after a
//! restart of the gateway.

use gantry_protocol::{Caller, WireError};
use gantry_tool::{Asked, Call, Principal};
use serde::{Deserialize, Serialize};

/// What of a call matters to its judge, and to its end, and is not in its [`Caller`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Standing {
    /// The client token that it was begun with.
    token: Option<String>,
    also_as: Vec<String>,
    approved: Vec<Asked>,
}

impl Standing {
    pub(super) fn of(call: &Call) -> Standing {
        Standing { token: call.token.clone(), also_as: call.also_as.clone(), approved: call.approved.clone() }
    }

    /// Of most transfers there is nothing to say.
    pub(super) fn to_text(&self) -> Option<String> {
        if *self == Standing::default() { None } else { serde_json::to_string(self).ok() }
    }

    pub(super) fn from_text(text: Option<&str>) -> Result<Standing, String> {
        let Some(text) = text else { return Ok(Standing::default()) };
        serde_json::from_str(text).map_err(|err| format!("it is not known how to judge it: {err}"))
    }

    /// With the token that the principal is named after, where none was written down.
    pub(super) fn of_token(mut self, principal: &str) -> Standing {
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
        Ok(Call { token: self.token, also_as: self.also_as, approved: self.approved, ..call })
    }
}
