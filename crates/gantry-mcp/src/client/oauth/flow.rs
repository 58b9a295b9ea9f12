//! Performs a login: discovers the authorization server, registers, opens the browser and waits for the redirect.

use std::time::Duration;

use gantry_net::{Client, HeaderValue, LoginPage, LoginSecrets, Method, Returned, Url, header};
use serde::Deserialize;
use serde_json::json;

use super::discovery::{Issuer, Resource, issuer, resource};
use super::{ClientAuth, Login, LoginError, LoginRecord, address, asking, parsed, token_request};
use crate::client::sanitize::shown;

/// Timeout of the login in the browser.
pub const BROWSER_LIMIT: Duration = Duration::from_secs(300);
/// A client that the operator has registered manually.
#[derive(Debug, Clone, Default)]
pub struct Registered {
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    pub scope: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Registration {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

impl Login {
    /// Logs in. `challenge` is the server's answer without a token; `show` gets the URL to open.
    pub async fn log_in(
        &self,
        challenge: &str,
        registered: Registered,
        show: impl FnOnce(&Url),
    ) -> Result<(), LoginError> {
        address(self.url.as_str())?;
        let about = resource(&self.client, &self.url, challenge).await?;
        let issuer = issuer(&self.client, &self.url, &about).await?;
        let page = LoginPage::open("/callback").await?;
        let redirect = page.address();
        let before = self.record()?.filter(|before| before.issuer == issuer.issuer);
        let before = before.and_then(|before| before.scope);
        let scope = scope(challenge, &registered, &about, &issuer).map(|scope| joined(before, &scope));
        let client = match registered.client_id {
            Some(client_id) => Registration {
                client_id,
                client_secret: registered.client_secret,
                token_endpoint_auth_method: None,
            },
            None => register(&self.client, &issuer, &redirect, scope.as_deref()).await?,
        };
        let record = LoginRecord {
            issuer: issuer.issuer.clone(),
            token_endpoint: issuer.token_endpoint.clone(),
            client_auth: client_auth(&client, &issuer),
            client_id: client.client_id,
            resource: about.resource.clone().unwrap_or_else(|| self.url.as_str().to_owned()),
            scope,
            expires: None,
        };
        let secrets = LoginSecrets::new();
        let visit = visit(&issuer, &record, &redirect, &secrets)?;
        show(&visit);
        let back = page.wait(&secrets.state, |back| returned(back, &issuer));
        let back = tokio::time::timeout(BROWSER_LIMIT, back)
            .await
            .map_err(|_| LoginError::TimedOut(BROWSER_LIMIT))???;
        let form = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", back),
            ("redirect_uri", redirect),
            ("code_verifier", secrets.verifier),
            ("resource", record.resource.clone()),
        ];
        let tokens = token_request(&self.client, &record, client.client_secret.as_deref(), form).await?;
        self.keep(record, tokens, client.client_secret.as_deref())
    }
}

/// Chooses the narrowest scope that is named.
fn scope(challenge: &str, registered: &Registered, about: &Resource, issuer: &Issuer) -> Option<String> {
    let listed = |scopes: &[String]| (!scopes.is_empty()).then(|| scopes.join(" "));
    let wanted = registered
        .scope
        .clone()
        .or_else(|| super::parameter(challenge, "scope"))
        .or_else(|| listed(&about.scopes_supported));
    // Without this scope there is no refresh token.
    let offline = "offline_access";
    let offered = issuer.scopes_supported.iter().any(|scope| scope == offline);
    wanted.map(|wanted| {
        let has = wanted.split(' ').any(|scope| scope == offline);
        if offered && !has { format!("{wanted} {offline}") } else { wanted }
    })
}

/// Adds the scopes of an earlier login, so that a new login does not lose any.
fn joined(before: Option<String>, wanted: &str) -> String {
    let before = before.unwrap_or_default();
    let mut scopes: Vec<&str> = Vec::new();
    for scope in before.split(' ').chain(wanted.split(' ')).filter(|scope| !scope.is_empty()) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes.join(" ")
}

async fn register(
    client: &Client,
    issuer: &Issuer,
    redirect: &str,
    scope: Option<&str>,
) -> Result<Registration, LoginError> {
    let Some(endpoint) = &issuer.registration_endpoint else {
        return Err(LoginError::Metadata(format!(
            "{} does not support automatic registration; register Gantry there and use --client-id",
            issuer.issuer
        )));
    };
    let mut about = json!({
        "client_name": "Gantry",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    });
    if let Some(scope) = scope {
        about["scope"] = json!(scope);
    }
    let mut request = asking(Method::POST, address(endpoint)?);
    request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.body = about.to_string().into();
    parsed(client, request).await
}

fn client_auth(client: &Registration, issuer: &Issuer) -> ClientAuth {
    if client.client_secret.is_none() {
        return ClientAuth::None;
    }
    let supported = &issuer.token_endpoint_auth_methods_supported;
    let named = client.token_endpoint_auth_method.as_deref();
    match named.or_else(|| supported.iter().map(String::as_str).find(|method| *method != "none")) {
        Some("client_secret_post") => ClientAuth::ClientSecretPost,
        Some("none") => ClientAuth::None,
        _ => ClientAuth::ClientSecretBasic,
    }
}

fn visit(
    issuer: &Issuer,
    record: &LoginRecord,
    redirect: &str,
    secrets: &LoginSecrets,
) -> Result<Url, LoginError> {
    let mut url = address(&issuer.authorization_endpoint)?;
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &record.client_id)
        .append_pair("redirect_uri", redirect)
        .append_pair("code_challenge", &secrets.challenge())
        .append_pair("code_challenge_method", "S256")
        .append_pair("state", &secrets.state)
        .append_pair("resource", &record.resource);
    if let Some(scope) = &record.scope {
        url.query_pairs_mut().append_pair("scope", scope);
    }
    Ok(url)
}

/// Reads the authorization code that the browser returned with.
fn returned(returned: &Returned, issuer: &Issuer) -> Result<String, LoginError> {
    match returned.parameter("iss") {
        Some(iss) if iss != issuer.issuer => {
            return Err(LoginError::Denied(format!("the answer comes from another issuer, {}", shown(&iss))));
        }
        None if issuer.authorization_response_iss_parameter_supported => {
            return Err(LoginError::Denied("the answer does not name its issuer".to_owned()));
        }
        _ => {}
    }
    if let Some(error) = returned.parameter("error") {
        let described = returned.parameter("error_description").map(|text| format!("{error}: {text}"));
        return Err(LoginError::Denied(shown(&described.unwrap_or(error))));
    }
    let code = returned.parameter("code");
    code.ok_or_else(|| LoginError::Denied("the answer has no authorization code".to_owned()))
}
