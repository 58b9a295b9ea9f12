//! Sign-in with a browser: the consent page sends the browser to a port of this machine, or the person pastes the address.

use std::time::Duration;

use gantry_net::{LoginPage, LoginSecrets, Returned, Url};

use super::{CONSENT_URL, OAuth, SignInError, Tokens};
use crate::credentials::OAuthClient;
use crate::errors::shortened;
use crate::scopes;

/// The time for the person in the browser.
pub(crate) const BROWSER_LIMIT: Duration = Duration::from_secs(600);
/// A port that nothing listens on: the browser shows an error page, whose address the person pastes.
const PASTE_REDIRECT: &str = "http://127.0.0.1:1/";

/// A sign-in that waits for the person.
pub struct BrowserSignIn {
    page: Option<LoginPage>,
    secrets: LoginSecrets,
    redirect: String,
    client: OAuthClient,
    /// The page to open.
    pub url: Url,
    pub(crate) scopes: Vec<String>,
}

impl BrowserSignIn {
    /// Waits for the browser on a port of this machine.
    pub(crate) async fn listening(
        oauth: &OAuth,
        client: OAuthClient,
        scopes: Vec<String>,
    ) -> Result<BrowserSignIn, SignInError> {
        let page = LoginPage::open("/").await?;
        let redirect = page.address();
        BrowserSignIn::begin(oauth, client, scopes, Some(page), redirect)
    }

    /// Listens nowhere: the person pastes the address of the page that the browser ends at.
    pub(crate) fn pasted(
        oauth: &OAuth,
        client: OAuthClient,
        scopes: Vec<String>,
    ) -> Result<BrowserSignIn, SignInError> {
        BrowserSignIn::begin(oauth, client, scopes, None, PASTE_REDIRECT.to_owned())
    }

    fn begin(
        oauth: &OAuth,
        client: OAuthClient,
        wanted: Vec<String>,
        page: Option<LoginPage>,
        redirect: String,
    ) -> Result<BrowserSignIn, SignInError> {
        let secrets = LoginSecrets::new();
        let mut url = oauth.url(CONSENT_URL)?;
        // The address of the account comes with the tokens.
        let scope: Vec<String> = ["openid", "email"]
            .iter()
            .map(|scope| (*scope).to_owned())
            .chain(wanted.iter().map(|scope| scopes::full(scope)))
            .collect();
        url.query_pairs_mut()
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", &redirect)
            .append_pair("response_type", "code")
            .append_pair("scope", &scope.join(" "))
            .append_pair("code_challenge", &secrets.challenge())
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", &secrets.state)
            .append_pair("access_type", "offline")
            .append_pair("prompt", "consent")
            .append_pair("include_granted_scopes", "true");
        Ok(BrowserSignIn { page, secrets, redirect, client, url, scopes: wanted })
    }

    /// The port that the browser returns to, for `ssh -L`.
    pub fn port(&self) -> Option<u16> {
        self.page.as_ref().map(LoginPage::port)
    }

    /// Identifies this sign-in in the address that the browser ends at.
    pub(crate) fn state(&self) -> &str {
        &self.secrets.state
    }

    /// Waits for the browser and exchanges the code.
    pub(crate) async fn wait(&self, oauth: &OAuth) -> Result<Tokens, SignInError> {
        let Some(page) = &self.page else {
            return Err(SignInError::Pasted("this sign-in waits for an address"));
        };
        let waiting = tokio::time::timeout(BROWSER_LIMIT, page.wait(&self.secrets.state, code));
        let code = waiting.await.map_err(|_| SignInError::TimedOut(BROWSER_LIMIT))???;
        self.exchange(oauth, &code).await
    }

    /// Exchanges the code of a pasted address.
    pub(crate) async fn finish(&self, oauth: &OAuth, pasted: &str) -> Result<Tokens, SignInError> {
        let returned = Returned::read(pasted.trim(), &self.secrets.state)
            .ok_or(SignInError::Pasted("paste the whole address that the browser shows after you agreed"))?;
        let code = code(&returned)?;
        self.exchange(oauth, &code).await
    }

    async fn exchange(&self, oauth: &OAuth, code: &str) -> Result<Tokens, SignInError> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &self.secrets.verifier),
            ("client_id", &self.client.id),
            ("client_secret", &self.client.secret),
        ];
        oauth.tokens(&form).await
    }

    pub(crate) fn client_id(&self) -> String {
        self.client.id.clone()
    }
}

fn code(returned: &Returned) -> Result<String, SignInError> {
    if let Some(error) = returned.parameter("error") {
        return Err(SignInError::Denied(shortened(&error)));
    }
    returned.parameter("code").ok_or(SignInError::Pasted("it has no code"))
}
