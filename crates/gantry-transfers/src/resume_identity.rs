//! [`ResumeIdentity`] restores the caller of a transfer after a restart of the gateway: its approvals, its policy
//! agents and its token.

use gantry_protocol::{Caller, WireError};
use gantry_tool::{Call, ImpliedQuestion, Principal};
use serde::{Deserialize, Serialize};

/// What policy and the end of a transfer depend on, besides the [`Caller`]. It is saved in the database.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResumeIdentity {
    /// The client token that started the transfer.
    token: Option<String>,
    /// Saved under its first name, so that older records stay readable.
    #[serde(rename = "alsoAs")]
    policy_agents: Vec<String>,
    approved: Vec<ImpliedQuestion>,
}

impl ResumeIdentity {
    pub(crate) fn of(call: &Call) -> ResumeIdentity {
        ResumeIdentity {
            token: call.token.clone(),
            policy_agents: call.policy_agents.clone(),
            approved: call.approved.clone(),
        }
    }

    /// Returns `None` for the default, which most transfers have.
    pub(crate) fn to_text(&self) -> Option<String> {
        if *self == ResumeIdentity::default() { None } else { serde_json::to_string(self).ok() }
    }

    pub(crate) fn from_text(text: Option<&str>) -> Result<ResumeIdentity, String> {
        let Some(text) = text else { return Ok(ResumeIdentity::default()) };
        serde_json::from_str(text).map_err(|err| format!("cannot restore the caller of the transfer: {err}"))
    }

    /// Adds the token that the principal is named after, if no token was saved.
    pub(crate) fn with_token_of(mut self, principal: &str) -> ResumeIdentity {
        self.token = self.token.or_else(|| match principal.parse().ok()? {
            Principal::Client { token } => Some(token),
            Principal::Mcp { client } => Some(client.split_once('/')?.0.to_owned()),
            Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => None,
        });
        self
    }

    /// Returns the call that policy decides about.
    pub(crate) fn call(self, caller: &Caller) -> Result<Call, WireError> {
        let call = Call::on_behalf(caller, "/".into())?;
        Ok(Call { token: self.token, policy_agents: self.policy_agents, approved: self.approved, ..call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those of records that earlier versions saved, so they must not change.
    #[test]
    fn saved_identity_of_an_earlier_version_is_restored() {
        let saved = r#"{"token":"ci","alsoAs":["persona"],"approved":[{"tool":"local__Read","rule":"r"}]}"#;
        let identity = ResumeIdentity::from_text(Some(saved)).unwrap();
        assert_eq!(identity.to_text().as_deref(), Some(saved));
        let caller = Caller {
            principal: "operator".into(),
            agent: "main".into(),
            autonomy: "guided".into(),
            surface: "cli".into(),
            session: None,
            labels: Vec::new(),
            escalated: false,
            asks: false,
        };
        let call = identity.call(&caller).unwrap();
        assert_eq!(call.token.as_deref(), Some("ci"));
        assert_eq!(call.policy_agents, ["persona"]);
        assert_eq!(call.approved, [ImpliedQuestion { tool: "local__Read".into(), rule: "r".into() }]);
    }

    #[test]
    fn token_is_taken_from_the_principal_if_none_was_saved() {
        let token_of = |principal: &str| ResumeIdentity::default().with_token_of(principal).token;
        assert_eq!(token_of("client:ci").as_deref(), Some("ci"));
        assert_eq!(token_of("operator"), None);
        let saved = ResumeIdentity { token: Some("first".into()), ..ResumeIdentity::default() };
        assert_eq!(saved.with_token_of("client:ci").token.as_deref(), Some("first"));
    }
}
