//! [`GoogleDomain`] plugs Google Workspace into the gateway.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_domain::{
    Domain, Finding, FindingLevel, MethodContext, Methods, OwnerCommand, Running, ToolsHandle,
};
use gantry_net::ClientOptions;
use gantry_protocol::{Empty, ErrorCode, WireError};
use gantry_store::{DataDir, Secrets};
use gantry_tool::Masker;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::accounts::{AccountStatus, Accounts};
use crate::api::{Api, Reachable, google_client};
use crate::auth_command::{GoogleCommand, begin, finish};
use crate::credentials::Credentials;
use crate::declare::Google;
use crate::sign_ins::SignIns;
use crate::tools;
use crate::workspace::WorkspaceFiles;

/// How often the gateway checks whether somebody signed in or out. The command line does both while the gateway runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the domain needs from the binary.
pub struct GoogleParts {
    pub credentials: Credentials,
    pub network: ClientOptions,
    pub data: DataDir,
    pub secrets: Secrets,
    /// The owner's zone.
    pub zone: TimeZone,
    pub files: Arc<dyn WorkspaceFiles>,
    /// Knows the stored secrets.
    pub masker: Masker,
    pub reachable: Reachable,
}

pub struct GoogleDomain {
    google: Arc<Google>,
}

impl GoogleDomain {
    pub fn new(parts: GoogleParts) -> GoogleDomain {
        let GoogleParts { credentials, network, data, secrets, zone, files, masker, reachable } = parts;
        let root = credentials.api_url.clone();
        let client = google_client(&network, root.as_ref());
        let accounts = Accounts::new(credentials, client.clone(), &data, secrets);
        let api = Api::new(SignIns::new(accounts, masker.clone()), client, root, reachable);
        GoogleDomain { google: Arc::new(Google { api, files, masker, zone }) }
    }

    fn accounts(&self) -> &Accounts {
        self.google.api.accounts()
    }
}

/// The answer to `google.status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    configured: bool,
    accounts: Vec<AccountStatus>,
}

async fn status(google: Arc<Google>, _: MethodContext, _: Empty) -> Result<Status, WireError> {
    let accounts = google.api.accounts();
    let configured = accounts.credentials().is_configured();
    let accounts = accounts.list().map_err(|err| WireError::new(ErrorCode::Internal, err))?;
    Ok(Status { configured, accounts })
}

impl Domain for GoogleDomain {
    fn name(&self) -> &'static str {
        "google"
    }

    fn methods(&self) -> Methods {
        Methods::default()
            .on_operator("google.status", &self.google, status)
            .on_operator("google.auth.begin", &self.google, begin)
            .on_operator("google.auth.finish", &self.google, finish)
    }

    fn owner_commands(&self) -> Vec<Arc<dyn OwnerCommand>> {
        match self.accounts().credentials().is_configured() {
            true => vec![Arc::new(GoogleCommand(self.google.clone()))],
            false => Vec::new(),
        }
    }

    /// Registers the tools while an account is signed in. Without credentials there is nothing to do.
    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            if !self.accounts().credentials().is_configured() {
                return Ok(());
            }
            let (google, handle) = (self.google.clone(), running.tools.clone());
            let mut is_offered = false;
            offer(&google, &handle, &mut is_offered);
            running.spawn_worker(async move {
                loop {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                    offer(&google, &handle, &mut is_offered);
                }
            });
            Ok(())
        })
    }

    fn doctor(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move { self.accounts().findings() })
    }
}

/// Adds the tools after the first sign-in, and withdraws them after the last account signed out.
fn offer(google: &Arc<Google>, handle: &ToolsHandle, is_offered: &mut bool) {
    let wanted = google.api.accounts().has_any();
    match (wanted, *is_offered) {
        (true, false) => handle.replace(tools::all(google)),
        (false, true) => handle.withdraw(tools::NAMES),
        _ => {}
    }
    *is_offered = wanted;
}

impl Accounts {
    /// What `gantry doctor` reports.
    pub fn findings(&self) -> Vec<Finding> {
        let accounts = self;
        let finding = |level: FindingLevel, message: String, fix: Option<&str>| Finding {
            level,
            message,
            fix: fix.map(str::to_owned),
        };
        let credentials = accounts.credentials();
        let problems = credentials.problems.iter().map(String::as_str).chain(accounts.service_problem());
        let mut findings: Vec<Finding> = problems
            .map(|problem| {
                finding(
                    FindingLevel::Error,
                    format!("Google: {problem}"),
                    Some("fix [google] in gantry.toml or the GOOGLE_ variables"),
                )
            })
            .collect();
        if !credentials.is_configured() {
            return findings;
        }
        match accounts.list() {
            Err(err) => findings.push(finding(FindingLevel::Error, format!("Google: {err}"), None)),
            Ok(list) if list.is_empty() => findings.push(finding(
                FindingLevel::Warning,
                "Google is configured and nobody is signed in, so its tools are not offered".to_owned(),
                Some("run `gantry google auth`"),
            )),
            Ok(list) => findings.extend(list.into_iter().map(|account| match account.ended {
                None => finding(
                    FindingLevel::Ok,
                    format!("Google: {} is signed in ({})", account.email, account.scopes.join(", ")),
                    None,
                ),
                Some(reason) => finding(
                    FindingLevel::Warning,
                    format!("Google ended the sign-in of {}: {reason}", account.email),
                    Some("run `gantry google auth`; publish the application to avoid the end after 7 days"),
                ),
            })),
        }
        findings
    }
}
