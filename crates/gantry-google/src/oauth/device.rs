//! Sign-in on a machine without a browser: the person types a code on another device. Google grants only a few scopes this
//! way.

use std::time::Duration;

use serde::Deserialize;

use super::{DEVICE_URL, OAuth, SignInError, Tokens};
use crate::credentials::OAuthClient;
use crate::scopes;

/// The scopes that Google accepts from devices. A request with any other scope is rejected as a whole.
const ACCEPTED: [&str; 3] = ["calendar", "calendar.readonly", "drive.file"];
/// Added to the interval when Google asks for it.
const SLOWER: Duration = Duration::from_secs(5);
/// Google's codes live for 30 minutes.
const LONGEST: Duration = Duration::from_secs(3600);

/// Splits the wanted scopes into those that a device can get and those that it cannot.
pub(crate) fn accepted(wanted: &[String]) -> (Vec<String>, Vec<String>) {
    wanted.iter().cloned().partition(|scope| ACCEPTED.contains(&scope.as_str()))
}

/// A sign-in that waits for the code to be typed.
pub struct DeviceSignIn {
    device_code: String,
    client: OAuthClient,
    /// The code that the person types.
    pub user_code: String,
    /// Where the person types it.
    pub verification_url: String,
    pub expires: Duration,
    /// The pause between two questions to Google.
    pub(crate) interval: Duration,
    /// What `slow_down` adds to it.
    pub(crate) slower: Duration,
    pub(crate) scopes: Vec<String>,
    /// The wanted scopes that Google does not grant to devices.
    pub left_out: Vec<String>,
}

#[derive(Deserialize)]
struct Started {
    device_code: String,
    user_code: String,
    // Google's name for it differs from the standard's.
    #[serde(alias = "verification_uri")]
    verification_url: String,
    #[serde(default)]
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceSignIn {
    pub(crate) async fn begin(
        oauth: &OAuth,
        client: OAuthClient,
        wanted: &[String],
    ) -> Result<DeviceSignIn, SignInError> {
        let (accepted, left_out) = accepted(wanted);
        if accepted.is_empty() {
            return Err(SignInError::NotConfigured(format!(
                "Google grants none of these scopes to devices: {}; use `gantry google auth --paste` instead",
                left_out.join(", ")
            )));
        }
        let scope: Vec<String> = ["openid", "email"]
            .iter()
            .map(|scope| (*scope).to_owned())
            .chain(accepted.iter().map(|scope| scopes::full(scope)))
            .collect();
        let form = [("client_id", client.id.as_str()), ("scope", &scope.join(" "))];
        let answer = oauth.post(DEVICE_URL, &form).await.map_err(explained)?;
        let started: Started = serde_json::from_value(answer)
            .map_err(|_| SignInError::Invalid("Google's answer has no device code".to_owned()))?;
        Ok(DeviceSignIn {
            device_code: started.device_code,
            client,
            user_code: started.user_code,
            verification_url: started.verification_url,
            expires: Duration::from_secs(started.expires_in).min(LONGEST),
            interval: Duration::from_secs(started.interval.unwrap_or(5).clamp(1, 60)),
            slower: SLOWER,
            scopes: accepted,
            left_out,
        })
    }

    /// Asks until the person has decided.
    pub(crate) async fn wait(self, oauth: &OAuth) -> Result<(Tokens, String), SignInError> {
        let end = tokio::time::Instant::now() + self.expires;
        let mut interval = self.interval;
        loop {
            tokio::time::sleep(interval).await;
            if tokio::time::Instant::now() >= end {
                return Err(SignInError::TimedOut(self.expires));
            }
            let form = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", &self.device_code),
                ("client_id", &self.client.id),
                ("client_secret", &self.client.secret),
            ];
            match oauth.tokens(&form).await {
                Ok(tokens) => return Ok((tokens, self.client.id)),
                Err(err) => match err.code() {
                    Some("authorization_pending") => {}
                    Some("slow_down") => interval += self.slower,
                    Some("access_denied") => return Err(SignInError::Denied("access_denied".to_owned())),
                    Some("expired_token") => return Err(SignInError::TimedOut(self.expires)),
                    Some(_) => return Err(err),
                    // A lost answer is asked for again.
                    None => {}
                },
            }
        }
    }
}

/// Adds what to do about errors that only devices get.
fn explained(err: SignInError) -> SignInError {
    match err.code() {
        Some("invalid_client") => SignInError::NotConfigured(
            "Google accepts only clients of the type \"TVs and Limited Input devices\" here; set google.deviceClientId \
             and google.deviceClientSecret"
                .to_owned(),
        ),
        Some("invalid_scope") => SignInError::NotConfigured(
            "Google does not grant one of the scopes to devices; use `gantry google auth --paste` instead".to_owned(),
        ),
        _ => err,
    }
}
