//! The gateway itself: `gateway.status`, `GET /health`, and errors over HTTP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters or a result without fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// `result` of `gateway.status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The models that agents have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelsReport>,
    /// Changed keys of the configuration file that need a restart of the gateway.
    #[serde(default)]
    pub needs_restart: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelsReport {
    pub providers: Vec<ProviderReport>,
    pub models: Vec<ModelReport>,
    /// Limits on spending, for people.
    pub budgets: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderReport {
    pub name: String,
    pub base_url: String,
    /// Whether the provider was found on this machine and is not configured.
    pub found: bool,
    pub lacks_key: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelReport {
    /// As `provider/model`.
    pub name: String,
    pub provider: String,
    pub model: String,
    pub base_url: Option<String>,
    pub has_key: bool,
    pub found: bool,
    /// The tiers of the model, and `fallback`.
    pub is: Vec<String>,
    pub context_window: u64,
    pub max_output: u32,
    pub price: Option<ModelPrice>,
    pub prices_as_of: String,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelPrice {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

/// The answer of `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub status: HealthStatus,
    pub version: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    Ok,
    Stopping,
}

/// The body of an HTTP error for a request that did not reach a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpProblem {
    pub error: HttpError,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpError {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
