//! `[gateway]`: where the server listens, and how clients reach it.

use std::net::SocketAddr;
use std::path::PathBuf;

use gantry_domain::ConfigSection;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// The server: `gantry up` and `gantry serve`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct GatewayConfig {
    /// Address and port; port 0 picks one.
    #[serde(deserialize_with = "listen_address")]
    pub(crate) listen: SocketAddr,
    /// URL at which clients and other machines reach the gateway, such as `https://gantry.example.com`.
    pub(crate) public_url: Option<String>,
    /// Additional host names that the gateway accepts.
    pub(crate) hosts: Vec<String>,
    /// `auto`: connections are encrypted unless the gateway listens on loopback. `off` is for a TLS proxy in front.
    pub(crate) tls: TlsMode,
    /// A certificate chain and its key, as PEM files, in place of the gateway's own key.
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// How long calls under way may take to finish when it stops.
    pub(crate) drain_seconds: u64,
    /// How long a session at `/mcp` may be idle before it ends.
    #[schemars(range(min = 1, max = 1800))]
    pub(crate) mcp_idle_seconds: u64,
    /// The authorization servers that issue tokens for `/mcp`.
    pub(crate) oauth: OauthConfig,
}

/// When the gateway uses TLS. `Auto`: on every address that is not loopback, and whenever a certificate is configured.
/// `Off`: never, because a proxy in front encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TlsMode {
    Auto,
    Off,
}

impl TlsMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TlsMode::Auto => "auto",
            TlsMode::Off => "off",
        }
    }
}

/// `OauthConfig` is published at `/.well-known/oauth-protected-resource` if it names an authorization server.
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
            listen: SocketAddr::from(([127, 0, 0, 1], 7770)),
            public_url: None,
            hosts: Vec::new(),
            tls: TlsMode::Auto,
            tls_cert: None,
            tls_key: None,
            drain_seconds: 10,
            mcp_idle_seconds: 1800,
            oauth: OauthConfig::default(),
        }
    }
}

/// Parses `listen`. The error names the key, because serde reports no path.
fn listen_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!(
            "gateway.listen: {text:?} is not an address and a port, such as 127.0.0.1:7770"
        ))
    })
}

impl ConfigSection for GatewayConfig {}
