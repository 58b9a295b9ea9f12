//! The inbox: everything that waits for a person, over all sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pipelines::PlanInfo;
use crate::sessions::{Question, UserAsked};

/// `result` of `inbox.list`, and data of `inbox.changed`: the oldest item first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InboxList {
    pub items: Vec<InboxItem>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboxItem {
    pub agent: String,
    /// The session that answers with `sessions.answer`; plans have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The title of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The model has read such content: `untrusted`, `private`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(flatten)]
    pub subject: InboxSubject,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InboxSubject {
    /// May this call run? Answered with `sessions.answer`.
    Approval { question: Box<Question> },
    /// A question of an agent to its user. Answered with `sessions.answer`.
    Question { asked: UserAsked },
    /// May this plan run? Answered with `plans.answer`.
    Plan { plan: PlanInfo },
}
