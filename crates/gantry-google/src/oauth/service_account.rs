//! Service accounts: a key signs an assertion, and Google returns a token for it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::json;

use super::{OAuth, SignInError, TOKEN_URL, Tokens, is_address};
use crate::scopes;

const LIFETIME_SECONDS: i64 = 3600;
/// Clocks differ a little.
const BACKDATED_SECONDS: i64 = 30;

#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type", default)]
    kind: String,
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: String,
}

/// A service account that can sign.
pub(crate) struct ServiceAccount {
    pub(crate) email: String,
    /// The user that it acts for.
    pub(crate) user: Option<String>,
    key_id: String,
    key: KeyPair,
}

impl ServiceAccount {
    /// Reads a key file. Its token address is ignored: keys and tokens go to Google only.
    pub(crate) fn read(text: &str, user: Option<&str>) -> Result<ServiceAccount, SignInError> {
        let invalid =
            |what: &str| SignInError::NotConfigured(format!("the key of the service account {what}"));
        let file: KeyFile = serde_json::from_str(text).map_err(|_| {
            invalid("is not the JSON file of a service account; create a new key in Google's console")
        })?;
        if file.kind != "service_account" {
            return Err(invalid("must have the type service_account"));
        }
        let user = user.map(str::to_owned);
        if !is_address(&file.client_email) || user.as_deref().is_some_and(|user| !is_address(user)) {
            return Err(invalid("or the user that it acts for is not an address"));
        }
        let key = der(&file.private_key).and_then(|der| KeyPair::from_pkcs8(&der).ok());
        let key = key.ok_or_else(|| invalid("has no valid RSA key in private_key"))?;
        Ok(ServiceAccount { email: file.client_email, user, key_id: file.private_key_id, key })
    }

    /// The account that its tokens act for.
    pub(crate) fn acts_for(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.email)
    }

    pub(crate) async fn tokens(
        &self,
        oauth: &OAuth,
        wanted: &[String],
        now: i64,
    ) -> Result<Tokens, SignInError> {
        let assertion = self.assertion(wanted, now / 1000)?;
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", assertion.as_str()),
        ];
        oauth.tokens(&form).await.map_err(|err| match err {
            SignInError::Refused { code, text } if code == "unauthorized_client" || text.contains("unauthorized_client") => {
                SignInError::NotConfigured(format!(
                    "the service account may not act for {}; an administrator of the domain has to add its client id and \
                     these scopes under domain-wide delegation: {}",
                    self.acts_for(),
                    wanted.join(", ")
                ))
            }
            other => other,
        })
    }

    fn assertion(&self, wanted: &[String], now: i64) -> Result<String, SignInError> {
        let scope: Vec<String> = wanted.iter().map(|scope| scopes::full(scope)).collect();
        let issued = now - BACKDATED_SECONDS;
        let mut claims = json!({
            "iss": self.email,
            "scope": scope.join(" "),
            "aud": TOKEN_URL,
            "iat": issued,
            "exp": issued + LIFETIME_SECONDS,
        });
        if let Some(user) = &self.user {
            claims["sub"] = json!(user);
        }
        let mut head = json!({"alg": "RS256", "typ": "JWT"});
        if !self.key_id.is_empty() {
            head["kid"] = json!(self.key_id);
        }
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(head.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| SignInError::Invalid("the key of the service account cannot sign".to_owned()))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// The bytes of a PEM block.
fn der(pem: &str) -> Option<Vec<u8>> {
    let inside =
        pem.split("-----BEGIN PRIVATE KEY-----").nth(1)?.split("-----END PRIVATE KEY-----").next()?;
    let packed: String = inside.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(packed).ok()
}
