//! [`Accounts`] knows the signed-in Google accounts and returns valid access tokens for them.
//!
//! Tokens are sealed in the secrets store, and `store` keeps what is known about each account next to them. The scopes are
//! those that the person granted, not those that were asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_net::Client;
use gantry_store::{DataDir, Secrets};

use crate::credentials::{Credentials, OAuthClient};
use crate::errors::GoogleError;
use crate::oauth::browser::BrowserSignIn;
use crate::oauth::device::DeviceSignIn;
use crate::oauth::service_account::ServiceAccount;
use crate::oauth::{OAuth, SignInError, Tokens};
use crate::scopes;

pub(crate) mod store;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests read what was stored")]
mod tests;

use store::{AccountKind, AccountRecord, Store};

/// A token is renewed this long before it ends.
const RENEW_BEFORE_MS: i64 = 5 * 60 * 1000;

/// A token that may be sent to Google.
#[derive(Clone)]
pub(crate) struct AccessToken {
    /// The account's address.
    pub(crate) account: String,
    pub(crate) value: String,
}

/// An account for people, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountStatus {
    pub email: String,
    /// `browser`, `device` or `service`.
    pub kind: String,
    pub is_default: bool,
    /// Short names of the granted scopes.
    pub scopes: Vec<String>,
    /// Why the sign-in ended, if Google ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Accounts(Arc<Inner>);

struct Inner {
    credentials: Credentials,
    oauth: OAuth,
    store: Store,
    /// The service account, or why its key cannot be used.
    service: Option<Result<ServiceAccount, String>>,
    /// One lock per account, so that many callers renew a token once.
    renewing: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Accounts {
    pub fn new(credentials: Credentials, client: Client, data: &DataDir, secrets: Secrets) -> Accounts {
        let service = credentials.service_account.as_deref().map(|key| {
            ServiceAccount::read(key, credentials.service_account_user.as_deref())
                .map_err(|err| err.to_string())
        });
        let oauth = OAuth::new(client, credentials.api_url.clone());
        let store = Store::new(data, secrets);
        Accounts(Arc::new(Inner { credentials, oauth, store, service, renewing: Mutex::default() }))
    }

    pub fn credentials(&self) -> &Credentials {
        &self.0.credentials
    }

    /// Whether there is an account. One whose sign-in ended counts too: calls then say what to do.
    pub fn has_any(&self) -> bool {
        self.records().is_ok_and(|records| !records.is_empty())
    }

    /// All accounts, the default one first.
    pub fn list(&self) -> Result<Vec<AccountStatus>, String> {
        let records = self.records().map_err(|err| err.to_string())?;
        let default = self.resolve(None).ok();
        let mut accounts: Vec<AccountStatus> = records
            .into_iter()
            .map(|record| AccountStatus {
                is_default: Some(&record.email) == default.as_ref(),
                email: record.email,
                kind: record.kind.name().to_owned(),
                scopes: record.scopes,
                ended: record.ended,
            })
            .collect();
        accounts.sort_by_key(|account| !account.is_default);
        Ok(accounts)
    }

    /// Why the key of the service account cannot be used.
    pub(crate) fn service_problem(&self) -> Option<&str> {
        self.0.service.as_ref().and_then(|service| service.as_ref().err()).map(String::as_str)
    }

    /// The accounts that the present credentials can use.
    fn records(&self) -> Result<Vec<AccountRecord>, GoogleError> {
        let mut records = self.0.store.read()?.accounts;
        if let Some(Ok(service)) = &self.0.service {
            records.retain(|record| record.email != service.acts_for());
            records.push(AccountRecord {
                email: service.acts_for().to_owned(),
                kind: AccountKind::Service,
                client_id: String::new(),
                scopes: self.0.credentials.wanted_scopes(),
                expires: 0,
                ended: None,
            });
        }
        Ok(records)
    }

    pub(crate) fn record(&self, account: Option<&str>) -> Result<AccountRecord, GoogleError> {
        let email = self.resolve(account)?;
        let record = self.records()?.into_iter().find(|record| record.email == email);
        record.ok_or(GoogleError::NotSignedIn)
    }

    /// Returns the name of the account that a call means: the one that is named, or the default one.
    pub(crate) fn resolve(&self, account: Option<&str>) -> Result<String, GoogleError> {
        let records = self.records()?;
        match account {
            Some(name) => {
                let found = records.iter().find(|record| record.email.eq_ignore_ascii_case(name.trim()));
                let known: Vec<&str> = records.iter().map(|record| record.email.as_str()).collect();
                found.map(|record| record.email.clone()).ok_or_else(|| GoogleError::UnknownAccount {
                    name: crate::errors::shortened(name),
                    known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
                })
            }
            None => {
                let chosen = self.0.store.read()?.default;
                let chosen = records.iter().find(|record| Some(&record.email) == chosen.as_ref());
                let first = || records.iter().find(|record| record.ended.is_none()).or(records.first());
                chosen.or_else(first).map(|record| record.email.clone()).ok_or(GoogleError::NotSignedIn)
            }
        }
    }

    /// Checks that an account granted one of the scopes. Returns its address.
    pub(crate) fn check_scope(
        &self,
        account: Option<&str>,
        needed: &'static [&'static str],
    ) -> Result<String, GoogleError> {
        let record = self.record(account)?;
        if let Some(reason) = record.ended {
            return Err(GoogleError::SignInEnded { account: record.email, reason });
        }
        if !scopes::suffices(&record.scopes, needed) {
            return Err(GoogleError::MissingScope { account: record.email, needed });
        }
        Ok(record.email)
    }

    /// Returns a token of an account that granted one of the scopes.
    pub(crate) async fn token(
        &self,
        account: Option<&str>,
        needed: &'static [&'static str],
    ) -> Result<AccessToken, GoogleError> {
        let account = self.check_scope(account, needed)?;
        match self.0.store.access(&account, now_ms() + RENEW_BEFORE_MS)? {
            Some(value) => Ok(AccessToken { account, value }),
            None => self.renew(&account, None).await,
        }
    }

    /// Replaces a token that Google rejected.
    pub(crate) async fn renewed(&self, rejected: &AccessToken) -> Result<AccessToken, GoogleError> {
        self.renew(&rejected.account, Some(&rejected.value)).await
    }

    /// Gets a new token. Callers that wait for each other send one request together.
    async fn renew(&self, account: &str, rejected: Option<&str>) -> Result<AccessToken, GoogleError> {
        let lock = {
            let mut locks = self.0.renewing.lock().unwrap_or_else(PoisonError::into_inner);
            locks.entry(account.to_owned()).or_default().clone()
        };
        let _one = lock.lock().await;
        let inner = &self.0;
        // Another caller may have renewed it meanwhile.
        if let Some(value) = inner.store.access(account, now_ms() + RENEW_BEFORE_MS)?
            && Some(value.as_str()) != rejected
        {
            return Ok(AccessToken { account: account.to_owned(), value });
        }
        let record = self.record(Some(account))?;
        if let Some(reason) = record.ended {
            return Err(GoogleError::SignInEnded { account: record.email, reason });
        }
        let tokens = match &inner.service {
            Some(Ok(service)) if service.acts_for() == account => {
                service.tokens(&inner.oauth, &record.scopes, now_ms()).await
            }
            _ => self.refreshed(&record).await?,
        };
        match tokens {
            Ok(tokens) => {
                inner.store.renewed(account, &tokens, now_ms())?;
                Ok(AccessToken { account: account.to_owned(), value: tokens.access_token })
            }
            Err(err) => Err(self.renewal_failed(&record, err)?),
        }
    }

    async fn refreshed(&self, record: &AccountRecord) -> Result<Result<Tokens, SignInError>, GoogleError> {
        let inner = &self.0;
        let Some(client) = inner.credentials.client_named(&record.client_id) else {
            return Err(GoogleError::Credentials(format!(
                "{} signed in with another client id; run `gantry google auth` to sign in with the present one",
                record.email
            )));
        };
        let Some(refresh) = inner.store.refresh(&record.email)? else {
            let reason = "there is no refresh token".to_owned();
            return Err(GoogleError::SignInEnded { account: record.email.clone(), reason });
        };
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("client_id", &client.id),
            ("client_secret", &client.secret),
        ];
        Ok(inner.oauth.tokens(&form).await)
    }

    /// Decides what a failed renewal means for the account. Only `invalid_grant` ends a sign-in.
    fn renewal_failed(&self, record: &AccountRecord, err: SignInError) -> Result<GoogleError, GoogleError> {
        let is_service = record.kind == AccountKind::Service;
        Ok(match err.code() {
            Some("invalid_grant") if !is_service => {
                let reason = "it was revoked, or it expired (a sign-in of an application in testing ends after 7 days)";
                self.0.store.end(&record.email, reason)?;
                GoogleError::SignInEnded { account: record.email.clone(), reason: reason.to_owned() }
            }
            Some("invalid_client" | "unauthorized_client") => GoogleError::Credentials(format!(
                "Google does not accept the client id and secret of this application ({err}); the sign-in of {} is kept, so \
                 fix GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET or [google] in gantry.toml and try again",
                record.email
            )),
            Some(_) => GoogleError::Credentials(err.to_string()),
            None => match err {
                SignInError::NotConfigured(text) => GoogleError::Credentials(text),
                other => GoogleError::NoToken(other.to_string()),
            },
        })
    }

    fn desktop_client(&self) -> Result<OAuthClient, SignInError> {
        self.0.credentials.client.clone().ok_or_else(|| {
            SignInError::NotConfigured(
                "no Google client is configured; set GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET, or clientId and \
                 clientSecret in [google] (docs/google.md shows every step)"
                    .to_owned(),
            )
        })
    }

    /// Begins a sign-in with a browser on this machine. `more` are scopes besides the configured ones.
    pub async fn begin_browser(&self, more: &[String]) -> Result<BrowserSignIn, SignInError> {
        BrowserSignIn::listening(&self.0.oauth, self.desktop_client()?, self.wanted(more)).await
    }

    /// Begins a sign-in whose final address the person pastes.
    pub fn begin_paste(&self, more: &[String]) -> Result<BrowserSignIn, SignInError> {
        BrowserSignIn::pasted(&self.0.oauth, self.desktop_client()?, self.wanted(more))
    }

    /// Begins a sign-in by a code that the person types on another device.
    pub async fn begin_device(&self, more: &[String]) -> Result<DeviceSignIn, SignInError> {
        let client = self.0.credentials.device_client.clone();
        let client = client.map_or_else(|| self.desktop_client(), Ok)?;
        DeviceSignIn::begin(&self.0.oauth, client, &self.wanted(more)).await
    }

    pub async fn finish_browser(&self, sign_in: BrowserSignIn) -> Result<AccountStatus, SignInError> {
        let (client, asked) = (sign_in.client_id(), sign_in.scopes.clone());
        let tokens = sign_in.wait(&self.0.oauth).await?;
        self.keep(AccountKind::Browser, client, asked, &tokens)
    }

    /// As [`Accounts::finish_browser`], and accepts a pasted address too.
    pub(crate) async fn finish_waiting(
        &self,
        sign_in: BrowserSignIn,
        pasted: &mut tokio::sync::mpsc::Receiver<String>,
        only: Option<&str>,
    ) -> Result<AccountStatus, SignInError> {
        let tokens = tokio::select! {
            tokens = sign_in.wait(&self.0.oauth) => tokens?,
            Some(address) = pasted.recv() => sign_in.finish(&self.0.oauth, &address).await?,
        };
        if let (Some(only), Some(email)) = (only, tokens.email())
            && email != only
        {
            return Err(SignInError::Invalid(format!(
                "{email} signed in instead of {only}; nothing was stored"
            )));
        }
        self.keep(AccountKind::Browser, sign_in.client_id(), sign_in.scopes, &tokens)
    }

    pub async fn finish_paste(
        &self,
        sign_in: BrowserSignIn,
        address: &str,
    ) -> Result<AccountStatus, SignInError> {
        let (client, asked) = (sign_in.client_id(), sign_in.scopes.clone());
        let tokens = sign_in.finish(&self.0.oauth, address).await?;
        self.keep(AccountKind::Browser, client, asked, &tokens)
    }

    pub async fn finish_device(&self, sign_in: DeviceSignIn) -> Result<AccountStatus, SignInError> {
        let asked = sign_in.scopes.clone();
        let (tokens, client) = sign_in.wait(&self.0.oauth).await?;
        self.keep(AccountKind::Device, client, asked, &tokens)
    }

    /// The configured scopes and some more, each once.
    fn wanted(&self, more: &[String]) -> Vec<String> {
        let mut wanted = self.0.credentials.wanted_scopes();
        for scope in more {
            let scope = scopes::short(scope).to_owned();
            if !wanted.contains(&scope) {
                wanted.push(scope);
            }
        }
        wanted
    }

    fn keep(
        &self,
        kind: AccountKind,
        client_id: String,
        asked: Vec<String>,
        tokens: &Tokens,
    ) -> Result<AccountStatus, SignInError> {
        let email = tokens.email().ok_or_else(|| {
            SignInError::Invalid(
                "Google did not say which account signed in; allow Gantry to see the address".to_owned(),
            )
        })?;
        if tokens.refresh_token.is_none() {
            return Err(SignInError::Invalid(
                "Google returned no refresh token; remove Gantry at https://myaccount.google.com/permissions and sign in again"
                    .to_owned(),
            ));
        }
        // Only what was granted counts. Identity scopes are of no use to tools.
        let granted = tokens.scopes().unwrap_or(asked);
        let is_identity =
            |scope: &String| matches!(scope.as_str(), "openid" | "userinfo.email" | "userinfo.profile");
        let scopes: Vec<String> = granted.into_iter().filter(|scope| !is_identity(scope)).collect();
        let record = AccountRecord { email: email.clone(), kind, client_id, scopes, expires: 0, ended: None };
        let failed = |err: GoogleError| SignInError::Store(err.to_string());
        self.0.store.add(record, tokens, now_ms()).map_err(failed)?;
        let accounts = self.list().map_err(SignInError::Store)?;
        let added = accounts.into_iter().find(|account| account.email == email);
        added.ok_or_else(|| SignInError::Store(format!("{email} was not stored")))
    }

    /// Stores an account with a token that is valid for an hour.
    #[cfg(test)]
    pub(crate) fn add_for_test(&self, email: &str, token: &str, scopes: &[&str]) {
        let tokens = serde_json::json!({"access_token": token, "refresh_token": "never-used-here", "expires_in": 3600});
        let record = AccountRecord {
            email: email.to_owned(),
            kind: AccountKind::Browser,
            client_id: String::new(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            expires: 0,
            ended: None,
        };
        self.0.store.add(record, &serde_json::from_value(tokens).unwrap(), now_ms()).unwrap();
    }

    /// Signs an account out, at Google and here. Returns its address and why Google could not be asked, if so.
    pub async fn sign_out(&self, account: Option<&str>) -> Result<(String, Option<String>), String> {
        let record = self.record(account).map_err(|err| err.to_string())?;
        if record.kind == AccountKind::Service {
            return Err(format!(
                "{} is the service account of the configuration; remove GOOGLE_SERVICE_ACCOUNT_KEY to stop using it",
                record.email
            ));
        }
        let refresh = self.0.store.refresh(&record.email).map_err(|err| err.to_string())?;
        let revoked = match refresh {
            Some(refresh) => self.0.oauth.revoke(&refresh).await.err().map(|err| err.to_string()),
            None => None,
        };
        self.0.store.remove(&record.email).map_err(|err| err.to_string())?;
        Ok((record.email, revoked))
    }

    /// Chooses the account of calls that name none.
    pub fn choose(&self, account: &str) -> Result<String, String> {
        let email = self.resolve(Some(account)).map_err(|err| err.to_string())?;
        self.0.store.choose(&email).map_err(|err| err.to_string())?;
        Ok(email)
    }
}

pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
