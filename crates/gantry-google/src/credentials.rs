//! [`Credentials`] identify Gantry to Google. The binary reads them from the environment and the configuration.

use gantry_net::Url;

/// A client of an application in Google's console.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuthClient {
    pub id: String,
    pub secret: String,
}

/// What the operator configured.
#[derive(Clone, Default)]
pub struct Credentials {
    /// A client of the type "Desktop app".
    pub client: Option<OAuthClient>,
    /// A client of the type "TVs and Limited Input devices", for `--device`.
    pub device_client: Option<OAuthClient>,
    /// The key file of a service account, as JSON.
    pub service_account: Option<String>,
    /// The user that the service account acts for. Needs domain-wide delegation.
    pub service_account_user: Option<String>,
    /// Short names of the scopes to ask for; empty means those that only read.
    pub scopes: Vec<String>,
    /// One server in place of all of Google's hosts, for tests.
    pub api_url: Option<Url>,
    /// Why a configured credential cannot be used.
    pub problems: Vec<String>,
}

impl Credentials {
    /// Whether anybody can sign in.
    pub fn is_configured(&self) -> bool {
        self.client.is_some() || self.device_client.is_some() || self.service_account.is_some()
    }

    /// The client that a sign-in was made with.
    pub(crate) fn client_named(&self, id: &str) -> Option<&OAuthClient> {
        self.client.iter().chain(&self.device_client).find(|client| client.id == id)
    }

    /// The scopes to ask for.
    pub(crate) fn wanted_scopes(&self) -> Vec<String> {
        match self.scopes.is_empty() {
            true => crate::scopes::DEFAULT.iter().map(|scope| (*scope).to_owned()).collect(),
            false => self.scopes.iter().map(|scope| crate::scopes::short(scope).to_owned()).collect(),
        }
    }
}

impl std::fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("client", &self.client)
            .field("device_client", &self.device_client)
            .field("service_account", &self.service_account.is_some())
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
