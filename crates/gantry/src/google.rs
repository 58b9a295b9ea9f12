//! Reads the credentials of Google from the environment and the configuration, and makes the parts of the domain.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use gantry_google::{
    Accounts, Credentials, FileFuture, GoogleConfig, GoogleParts, OAuthClient, WorkspaceFiles, google_client,
};
use gantry_net::Url;
use gantry_tool::{Call, Masker, ToolError};
use gantry_toolsets::{Machine, Native};

use crate::agent_sessions::zone;
use crate::config::Config;
use crate::environment::Environment;
use crate::models::stored_secret;

/// The host that secrets of the configuration are stored for.
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// Returns the credentials. Those that cannot be used are named in `problems`, and do not prevent the start.
pub(crate) fn credentials(environment: &Environment, config: &Config) -> Credentials {
    let google = &config.google;
    let mut problems = Vec::new();
    let variable = |name: &str| {
        let value = environment.variable(name)?.to_str()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let opened = |value: &str| -> Result<String, String> {
        let Some(name) = GoogleConfig::secret_name(value) else { return Ok(value.to_owned()) };
        let url = Url::parse(TOKEN_URL).map_err(|err| err.to_string())?;
        stored_secret(environment)(name, &url)
    };
    let mut secret = |value: Option<String>| match value.as_deref().map(opened).transpose() {
        Ok(secret) => secret,
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    let client = |id: Option<String>, secret: Option<String>| Some(OAuthClient { id: id?, secret: secret? });
    let id = google.client_id.clone().or_else(|| variable("GOOGLE_CLIENT_ID"));
    let client_secret = secret(google.client_secret.clone().or_else(|| variable("GOOGLE_CLIENT_SECRET")));
    let device_secret = secret(google.device_client_secret.clone());
    let key = google.service_account_key.clone().or_else(|| variable("GOOGLE_SERVICE_ACCOUNT_KEY"));
    let key = match key {
        // A key is given as JSON, as a secret, or as the path of its file.
        Some(key) if key.starts_with('{') || GoogleConfig::secret_name(&key).is_some() => secret(Some(key)),
        Some(path) => match read_key(environment, Path::new(&path)) {
            Ok(key) => Some(key),
            Err(problem) => {
                problems.push(format!("cannot read the key of the service account: {problem}"));
                None
            }
        },
        None => None,
    };
    if id.is_some() && client_secret.is_none() && problems.is_empty() {
        problems.push("there is a client id and no client secret; set GOOGLE_CLIENT_SECRET".to_owned());
    }
    Credentials {
        client: client(id, client_secret),
        device_client: client(google.device_client_id.clone(), device_secret),
        service_account: key,
        service_account_user: google.service_account_user.clone(),
        scopes: google.scopes.clone(),
        api_url: google.api_url.as_deref().and_then(|url| Url::parse(url).ok()),
        problems,
    }
}

fn read_key(environment: &Environment, path: &Path) -> Result<String> {
    let bytes = environment.read_own(&environment.resolve(path))?;
    Ok(String::from_utf8(bytes)?)
}

/// Returns the accounts, for commands that work without a gateway.
pub(crate) fn accounts(environment: &Environment, config: &Config) -> Result<Accounts> {
    let credentials = credentials(environment, config);
    let network = config.web.network(environment.trust()?);
    let client = google_client(&network, credentials.api_url.as_ref());
    Ok(Accounts::new(credentials, client, &environment.data, environment.secrets()))
}

pub(crate) fn parts(
    environment: &Environment,
    config: &Config,
    machine: &Arc<Machine>,
    native: &Arc<Native>,
    masker: &Masker,
) -> Result<GoogleParts> {
    let own = machine.clone();
    Ok(GoogleParts {
        credentials: credentials(environment, config),
        network: config.web.network(environment.trust()?),
        data: environment.data.clone(),
        secrets: environment.secrets(),
        zone: zone(config)?,
        files: Arc::new(CallerFiles { machine: machine.clone(), native: native.clone() }),
        masker: masker.clone(),
        reachable: Arc::new(move |call| {
            let agents = std::iter::once(&call.agent).chain(&call.policy_agents);
            let policies = agents.map(|agent| own.reachable_by(agent));
            policies.reduce(|one, other| one.within(&other)).unwrap_or_default()
        }),
    })
}

/// The workspace and the storage of a caller, as the file tools see them.
struct CallerFiles {
    machine: Arc<Machine>,
    native: Arc<Native>,
}

impl WorkspaceFiles for CallerFiles {
    fn touched(&self, call: &Call, path: &str) -> PathBuf {
        self.machine.workspace_path(call, path)
    }

    fn read(&self, call: &Call, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.machine.read_workspace_file(call, path, max)
    }

    fn create(&self, call: &Call, path: &str, content: &[u8]) -> Result<(), ToolError> {
        self.machine.create_workspace_file(call, path, content)
    }

    fn read_stored<'a>(&'a self, call: &'a Call, path: &'a str, max: u64) -> FileFuture<'a, Vec<u8>> {
        Box::pin(self.native.read_stored_file(call, path, max))
    }

    fn create_stored<'a>(&'a self, call: &'a Call, path: &'a str, content: Vec<u8>) -> FileFuture<'a, ()> {
        Box::pin(self.native.create_stored_file(call, path, content))
    }
}
