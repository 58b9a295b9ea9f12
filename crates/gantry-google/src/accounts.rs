//! [`Accounts`] knows the signed-in Google accounts and returns valid access tokens for them.

use crate::errors::GoogleError;
use crate::scopes;

/// A token that may be sent to Google.
#[derive(Clone)]
pub(crate) struct AccessToken {
    /// The account's address.
    pub(crate) account: String,
    pub(crate) value: String,
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Accounts {}

impl Accounts {
    /// Returns the name of the account that a call means: the one that is named, or the default one.
    pub(crate) fn resolve(&self, account: Option<&str>) -> Result<String, GoogleError> {
        match account {
            None => Err(GoogleError::NotSignedIn),
            Some(name) => {
                Err(GoogleError::UnknownAccount { name: name.to_owned(), known: "none".to_owned() })
            }
        }
    }

    /// Returns the short names of the scopes that an account granted.
    pub(crate) fn granted(&self, account: Option<&str>) -> Result<Vec<String>, GoogleError> {
        self.resolve(account).map(|_| Vec::new())
    }

    /// Returns a token of an account that granted one of the scopes.
    pub(crate) async fn token(
        &self,
        account: Option<&str>,
        needed: &'static [&'static str],
    ) -> Result<AccessToken, GoogleError> {
        let account = self.resolve(account)?;
        if !scopes::suffices(&self.granted(Some(&account))?, needed) {
            return Err(GoogleError::MissingScope { account, needed });
        }
        Err(GoogleError::NotSignedIn)
    }

    /// Replaces a token that Google rejected.
    pub(crate) async fn renewed(&self, rejected: &AccessToken) -> Result<AccessToken, GoogleError> {
        self.token(Some(&rejected.account), &[]).await
    }
}
