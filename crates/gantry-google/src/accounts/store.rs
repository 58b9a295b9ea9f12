//! Where accounts are kept: tokens as sealed secrets, and a private file with what is not secret.

use std::io::Read;

use gantry_store::{DataDir, PrivateFolder, Secrets};
use serde::{Deserialize, Serialize};

use crate::errors::GoogleError;
use crate::oauth::Tokens;

const FOLDER: &str = "google";
const FILE: &str = "accounts.json";
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_ACCOUNTS: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccountKind {
    Browser,
    Device,
    Service,
}

impl AccountKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            AccountKind::Browser => "browser",
            AccountKind::Device => "device",
            AccountKind::Service => "service",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccountRecord {
    pub(crate) email: String,
    pub(crate) kind: AccountKind,
    pub(crate) client_id: String,
    /// Short names of the scopes that were granted.
    pub(crate) scopes: Vec<String>,
    /// When the access token ends, in milliseconds since 1970.
    pub(crate) expires: i64,
    /// Why Google ended the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Records {
    pub(super) accounts: Vec<AccountRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<String>,
    /// When the tokens of service accounts end, which have no record.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    service_expires: std::collections::BTreeMap<String, i64>,
}

pub(super) struct Store {
    folder: PrivateFolder,
    secrets: Secrets,
}

#[derive(Clone, Copy)]
enum Kind {
    Access,
    Refresh,
}

fn failed(err: impl std::fmt::Display) -> GoogleError {
    GoogleError::Store(err.to_string())
}

/// The name of a secret. Addresses have characters that names may not have, so a hash keeps names apart.
fn secret_name(email: &str, kind: Kind) -> String {
    let plain: String =
        email.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(32).collect();
    let hash = &blake3::hash(email.as_bytes()).to_hex()[..8];
    let kind = match kind {
        Kind::Access => "access",
        Kind::Refresh => "refresh",
    };
    format!("google-{plain}-{hash}-{kind}")
}

/// What a secret is bound to. It is not a valid host name, so that no other tool can send the secret.
fn bound_to(email: &str) -> Vec<String> {
    vec![format!("google:{email}@googleapis.com")]
}

impl Store {
    pub(super) fn new(data: &DataDir, secrets: Secrets) -> Store {
        Store { folder: data.private_folder(FOLDER), secrets }
    }

    pub(super) fn read(&self) -> Result<Records, GoogleError> {
        let file = match self.folder.open(FILE) {
            Ok(file) => file,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Records::default()),
            Err(err) => return Err(failed(err)),
        };
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        serde_json::from_str(&text).map_err(|err| failed(format!("{FOLDER}/{FILE} is damaged: {err}")))
    }

    fn change(&self, change: impl FnOnce(&mut Records)) -> Result<(), GoogleError> {
        self.folder.create().map_err(failed)?;
        let _lock = self.folder.lock().map_err(failed)?;
        let mut records = self.read()?;
        let before = records.clone();
        change(&mut records);
        if records == before {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&records).map_err(failed)?;
        self.folder.replace(FILE, &text).map_err(failed)
    }

    fn secret(&self, email: &str, kind: Kind) -> Result<Option<String>, GoogleError> {
        let secret = self.secrets.get(&secret_name(email, kind)).map_err(failed)?;
        let own = secret.filter(|secret| secret.hosts == bound_to(email));
        Ok(own.map(|secret| secret.expose().to_owned()))
    }

    fn set(&self, email: &str, kind: Kind, value: &str, now: i64) -> Result<(), GoogleError> {
        self.secrets.set(&secret_name(email, kind), value, &bound_to(email), now).map(drop).map_err(failed)
    }

    /// The access token, if it is valid at `until`.
    pub(super) fn access(&self, email: &str, until: i64) -> Result<Option<String>, GoogleError> {
        let records = self.read()?;
        let expires =
            records.accounts.iter().find(|record| record.email == email).map(|record| record.expires);
        let expires = expires.or_else(|| records.service_expires.get(email).copied());
        match expires.is_some_and(|expires| expires > until) {
            true => self.secret(email, Kind::Access),
            false => Ok(None),
        }
    }

    pub(super) fn refresh(&self, email: &str) -> Result<Option<String>, GoogleError> {
        self.secret(email, Kind::Refresh)
    }

    /// Stores a new sign-in in place of an earlier one of the same account.
    pub(super) fn add(&self, record: AccountRecord, tokens: &Tokens, now: i64) -> Result<(), GoogleError> {
        let others = self.read()?.accounts.iter().filter(|known| known.email != record.email).count();
        if others >= MAX_ACCOUNTS {
            return Err(failed(format!("there are {MAX_ACCOUNTS} accounts already; sign one out first")));
        }
        self.keep_tokens(&record.email, tokens, now)?;
        let record = AccountRecord { expires: ends(tokens, now), ..record };
        self.change(|records| {
            // In its place: without a choice, the first account is the default.
            match records.accounts.iter_mut().find(|known| known.email == record.email) {
                Some(known) => *known = record,
                None => records.accounts.push(record),
            }
        })
    }

    /// Stores a renewed token.
    pub(super) fn renewed(&self, email: &str, tokens: &Tokens, now: i64) -> Result<(), GoogleError> {
        self.keep_tokens(email, tokens, now)?;
        let expires = ends(tokens, now);
        self.change(|records| match records.accounts.iter_mut().find(|record| record.email == email) {
            Some(record) => record.expires = expires,
            None => {
                records.service_expires.insert(email.to_owned(), expires);
            }
        })
    }

    fn keep_tokens(&self, email: &str, tokens: &Tokens, now: i64) -> Result<(), GoogleError> {
        if let Some(refresh) = &tokens.refresh_token {
            self.set(email, Kind::Refresh, refresh, now)?;
        }
        self.set(email, Kind::Access, &tokens.access_token, now)
    }

    fn remove_tokens(&self, email: &str) -> Result<(), GoogleError> {
        for kind in [Kind::Access, Kind::Refresh] {
            self.secrets.remove(&secret_name(email, kind)).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the tokens of a sign-in that Google ended. The account stays known, so that the reason can be shown.
    pub(super) fn end(&self, email: &str, reason: &str) -> Result<(), GoogleError> {
        self.remove_tokens(email)?;
        self.change(|records| {
            for record in records.accounts.iter_mut().filter(|record| record.email == email) {
                record.ended = Some(reason.to_owned());
            }
        })
    }

    pub(super) fn remove(&self, email: &str) -> Result<(), GoogleError> {
        self.remove_tokens(email)?;
        self.change(|records| {
            records.accounts.retain(|record| record.email != email);
            records.default.take_if(|default| default == email);
        })
    }

    pub(super) fn choose(&self, email: &str) -> Result<(), GoogleError> {
        self.change(|records| records.default = Some(email.to_owned()))
    }
}

fn ends(tokens: &Tokens, now: i64) -> i64 {
    now.saturating_add((tokens.expires_in.clamp(0.0, 1e7) * 1000.0) as i64)
}
