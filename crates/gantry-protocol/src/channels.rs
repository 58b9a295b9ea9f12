//! Chat channels: parameters and results of `channels.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `result` of `channels.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelList {
    pub accounts: Vec<ChannelInfo>,
}

/// One account of a chat service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelInfo {
    /// Such as `telegram:default`.
    pub id: String,
    pub channel: String,
    pub account: String,
    pub agent: String,
    /// `connecting`, `connected`, `needs_login`, `conflict` or `refused`.
    pub state: String,
    /// The bot's name at the provider, once it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bot: String,
    /// Why it is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The time of the last event, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event: Option<i64>,
    /// Messages that are not sent yet.
    pub backlog: u64,
    /// Whether an owner is linked.
    pub linked: bool,
}

/// `params` of `channels.link`, `channels.test` and `channels.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelParams {
    /// The account, such as `telegram:default`, or the channel's name if it has one account.
    pub id: String,
}

/// `result` of `channels.link`. The owner sends the code to the bot from the account to link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelLink {
    pub id: String,
    pub code: String,
    /// The bot to send it to, if it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bot: String,
    pub expires: i64,
}

/// `result` of `channels.test`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelTest {
    pub id: String,
    pub ok: bool,
    /// The bot's name at the provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bot: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How to fix the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// `result` of `channels.people`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelPeople {
    pub people: Vec<ChannelPerson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelPerson {
    /// The account, such as `telegram:default`.
    pub account: String,
    /// The provider's stable id.
    pub id: String,
    /// For display only.
    pub name: String,
    /// `owner`, `member`, `pending` or `blocked`.
    pub role: String,
    /// The code of a pending request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub since: i64,
}

/// `params` of `channels.pair`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelPairParams {
    /// The code that the person was told.
    pub code: String,
    /// Admit the person, or block.
    pub approve: bool,
}

/// `params` of `channels.role`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelRoleParams {
    /// The account, such as `telegram:default`.
    pub account: String,
    /// The person's id.
    pub person: String,
    /// `member` or `blocked`; `none` removes the person. Owners link themselves with a code.
    pub role: String,
}

/// `params` of `channel.inbound`, which a bridge sends: a message from its chat service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgeInbound {
    /// Identifies the event, also when it is sent again.
    pub id: String,
    pub from: BridgePerson,
    pub peer: BridgePeer,
    pub text: String,
    /// The service's id of the message, for replies; `id` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The text of the message that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quoted: Option<String>,
    /// The message mentions the bot, or answers it. A chat of two needs neither.
    #[serde(default)]
    pub addressed: bool,
    /// Milliseconds since 1970; now when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgePerson {
    /// The stable id of the person.
    pub id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub bot: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgePeer {
    /// `dm`, `group`, `channel` or `thread`.
    pub kind: String,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// `result` of `channel.inbound`. The message is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeAccepted {
    /// `accepted`, `duplicate` or `ignored`.
    pub status: String,
}

/// `params` of `channel.press`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgePress {
    pub id: String,
    pub from: BridgePerson,
    pub peer: BridgePeer,
    pub message_id: String,
    /// The button's `handle`.
    pub handle: String,
}

/// `result` of `channel.press`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BridgePressed {
    /// To show to the person who pressed.
    pub text: String,
}

/// `params` of `channel.send`, which the gateway sends to a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BridgeSend {
    /// The same for every attempt to send the same message.
    pub key: String,
    pub peer: BridgePeer,
    /// Markdown.
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The id of the earlier message whose text this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<BridgeButton>,
    /// A file in base64; `text` is its caption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<BridgeFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeButton {
    pub label: String,
    pub handle: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeFile {
    pub name: String,
    pub mime: String,
    pub content: String,
}

/// `result` of `channel.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgeSent {
    /// `sent`, `retry`, `refused` or `unknown`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}
