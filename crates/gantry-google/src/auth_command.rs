//! Signing in from a conversation or the page: the command `/google` and the methods `google.auth.begin` and
//! `google.auth.finish`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_domain::{MethodContext, OwnerCommand};
use gantry_protocol::{ErrorCode, WireError};
use serde::{Deserialize, Serialize};

use crate::accounts::AccountStatus;
use crate::declare::Google;
use crate::oauth::browser::BROWSER_LIMIT;
use crate::scopes;

/// `/google status` and `/google auth`, for the owner.
pub(crate) struct GoogleCommand(pub(crate) Arc<Google>);

impl OwnerCommand for GoogleCommand {
    fn name(&self) -> &'static str {
        "google"
    }

    fn help(&self) -> (&'static str, &'static str, &'static str) {
        ("google", "[auth SCOPE…]", "Show the Google accounts, or sign in")
    }

    fn run<'a>(&'a self, argument: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            let mut words = argument.split_whitespace();
            match (words.next(), words.collect::<Vec<_>>().as_slice()) {
                (None | Some("status"), []) => self.status(),
                (Some("auth"), [address]) if address.contains("://") => self.paste(address).await,
                (Some("auth"), scopes) => self.begin(scopes).await,
                _ => Err("use /google, /google auth, /google auth SCOPE, or /google auth ADDRESS".to_owned()),
            }
        })
    }
}

impl GoogleCommand {
    fn status(&self) -> Result<String, String> {
        let accounts = self.0.api.accounts().list()?;
        if accounts.is_empty() {
            return Ok("Nobody is signed in at Google. /google auth begins a sign-in.".to_owned());
        }
        let line = |account: AccountStatus| {
            let default = if account.is_default { ", the default" } else { "" };
            match account.ended {
                None => format!("{}{default}: {}", account.email, account.scopes.join(", ")),
                Some(reason) => format!("{}: Google ended the sign-in ({reason})", account.email),
            }
        };
        Ok(accounts.into_iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    async fn begin(&self, scopes: &[&str]) -> Result<String, String> {
        let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let url = begin_sign_in(&self.0, &scopes).await.map_err(|err| err.message)?;
        Ok(format!(
            "Open this page within {} minutes and agree: {url}\nIf the browser ends at an error page, send its whole address here: /google auth ADDRESS",
            BROWSER_LIMIT.as_secs() / 60
        ))
    }

    async fn paste(&self, address: &str) -> Result<String, String> {
        let account = self.0.api.sign_ins().paste(address).await?;
        Ok(format!("Signed in {}. Scopes: {}", account.email, account.scopes.join(", ")))
    }
}

/// The parameters of `google.auth.begin`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BeginParams {
    /// Scopes to ask for besides the configured ones, such as `gmail.send`.
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BegunSignIn {
    /// The page that the person opens.
    url: String,
    expires_in_seconds: u64,
}

/// The parameters of `google.auth.finish`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FinishParams {
    /// The address that the browser ended at.
    address: String,
}

pub(crate) async fn begin(
    google: Arc<Google>,
    _: MethodContext,
    params: BeginParams,
) -> Result<BegunSignIn, WireError> {
    let url = begin_sign_in(&google, &params.scopes).await?;
    Ok(BegunSignIn { url, expires_in_seconds: BROWSER_LIMIT.as_secs() })
}

pub(crate) async fn finish(
    google: Arc<Google>,
    _: MethodContext,
    params: FinishParams,
) -> Result<AccountStatus, WireError> {
    let finished = google.api.sign_ins().paste(&params.address).await;
    finished.map_err(|err| WireError::new(ErrorCode::BadParams, err))
}

/// Begins a sign-in that keeps the scopes of the default account. Returns the page to open.
async fn begin_sign_in(google: &Google, scopes: &[String]) -> Result<String, WireError> {
    let bad = |text: String| WireError::new(ErrorCode::BadParams, text);
    let accounts = google.api.accounts().list().map_err(bad)?;
    let held = accounts.into_iter().find(|account| account.is_default && account.kind != "service");
    let mut wanted = held.map(|account| account.scopes).unwrap_or_default();
    for scope in scopes {
        wanted.push(scopes::check(scope).map_err(bad)?.to_owned());
    }
    let begun = google.api.sign_ins().begin(&wanted).await.map_err(|err| bad(err.to_string()))?;
    Ok(begun.url.to_string())
}
