//! `[gateway]`: where the server listens, and how clients reach it.

use std::path::PathBuf;

use gantry_domain::ConfigSection;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Reads `gateway.listen`. The error of the standard parser does not name the key.
fn listen_address<'de, D: Deserializer<'de>>(from: D) -> Result<std::net::SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| {
        D::Error::custom(format!(
            "gateway.listen must be an IP address and a port, such as 127.0.0.1:7770, not \"{text}\""
        ))
    })
}

/// The server: `gantry up` and `gantry serve`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct GatewayConfig {
    /// Address and port; port 0 picks one.
    #[serde(deserialize_with = "listen_address")]
    pub(crate) listen: std::net::SocketAddr,
    /// How clients and other machines reach it, such as `https://gantry.example.com`.
    pub(crate) public_url: Option<String>,
    /// Names it answers to beside its own.
    pub(crate) hosts: Vec<String>,
    /// A certificate chain and its key, as PEM files.
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// How long calls under way may take to finish when it stops.
    pub(crate) drain_seconds: u64,
    /// How long a session at `/mcp` may be idle before it ends.
    #[schemars(range(min = 1, max = 1800))]
    pub(crate) mcp_idle_seconds: u64,
    /// Who gives out tokens for `/mcp`, for clients to find.
    pub(crate) oauth: OauthConfig,
}

/// Told at `/.well-known/oauth-protected-resource`, if there is an authorization server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct OauthConfig {
    /// Addresses of authorization servers.
    pub(crate) authorization_servers: Vec<String>,
    /// Scopes a client may ask for.
    pub(crate) scopes: Vec<String>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        GatewayConfig {
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7770)),
            public_url: None,
            hosts: Vec::new(),
            tls_cert: None,
            tls_key: None,
            drain_seconds: 10,
            mcp_idle_seconds: 1800,
            oauth: OauthConfig::default(),
        }
    }
}

impl ConfigSection for GatewayConfig {}
