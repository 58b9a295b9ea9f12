//! Google's OAuth endpoints: consent in a browser with PKCE, devices, service accounts, refresh and revocation.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::small_http::{Answer, Request};

/// A client of the type "Desktop app".
pub const CLIENT_ID: &str = "111-desktop.apps.googleusercontent.com";
pub const CLIENT_SECRET: &str = "GOCSPX-fake-desktop-client-secret";
/// A client of the type "TVs and Limited Input devices".
pub const DEVICE_CLIENT_ID: &str = "222-device.apps.googleusercontent.com";
pub const DEVICE_CLIENT_SECRET: &str = "GOCSPX-fake-device-client-secret";

const PREFIX: &str = "https://www.googleapis.com/auth/";
/// The only scopes that Google grants to devices.
const DEVICE_SCOPES: [&str; 6] =
    ["openid", "email", "profile", "calendar", "calendar.readonly", "drive.file"];
const LIFETIME: u64 = 3599;

/// What the person does on the consent page or on the device page.
#[derive(Debug, Clone, Default)]
pub enum Consent {
    /// Grants everything that was asked for.
    #[default]
    All,
    /// Grants only these scopes, by their short names.
    Only(Vec<&'static str>),
    Deny,
}

struct Grant {
    account: String,
    scopes: BTreeSet<String>,
    client: String,
}

struct Code {
    grant: Grant,
    challenge: String,
    redirect: String,
}

struct Device {
    client: String,
    scopes: BTreeSet<String>,
}

#[derive(Default)]
pub struct OAuth {
    /// Who sits in front of the browser; `ann@example.com` when empty.
    pub person: String,
    pub consent: Consent,
    /// Errors of the token endpoint, in order, such as `slow_down` or `invalid_client`. They come before everything else.
    pub token_errors: Vec<&'static str>,
    /// Forms that the token endpoint received.
    pub token_requests: Vec<BTreeMap<String, String>>,
    /// Public keys of service accounts, as `SubjectPublicKeyInfo` bits, by address.
    pub service_keys: BTreeMap<String, Vec<u8>>,
    /// Users that a service account may act for. An account without an entry has no delegation.
    pub delegations: BTreeMap<String, Vec<String>>,
    pub revoked: Vec<String>,
    next: u64,
    tokens: BTreeMap<String, (String, BTreeSet<String>)>,
    refresh_tokens: BTreeMap<String, Grant>,
    codes: BTreeMap<String, Code>,
    devices: BTreeMap<String, Device>,
}

fn full(short: &str) -> String {
    match short {
        "openid" | "profile" => short.to_owned(),
        "email" => format!("{PREFIX}userinfo.email"),
        "mail.google.com" => "https://mail.google.com/".to_owned(),
        short if short.starts_with("https://") => short.to_owned(),
        short => format!("{PREFIX}{short}"),
    }
}

fn short(full: &str) -> &str {
    full.strip_prefix(PREFIX).unwrap_or(full)
}

impl OAuth {
    /// Returns a new access token.
    pub fn new_token(&mut self, account: &str, scopes: &[&str]) -> String {
        self.issue(account, &scopes.iter().map(|scope| full(scope)).collect())
    }

    /// Every token of the account stops working, and so does its grant.
    pub fn forget(&mut self, account: &str) {
        self.tokens.retain(|_, (owner, _)| owner != account);
        self.refresh_tokens.retain(|_, grant| grant.account != account);
    }

    /// The access tokens stop working. The grants stay.
    pub fn expire_tokens(&mut self) {
        self.tokens.clear();
    }

    /// All tokens that were issued and still work.
    pub fn live_tokens(&self) -> Vec<String> {
        self.tokens.keys().chain(self.refresh_tokens.keys()).cloned().collect()
    }

    pub(super) fn of_token(&self, token: &str) -> Option<(String, BTreeSet<String>)> {
        self.tokens.get(token).cloned()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn issue(&mut self, account: &str, scopes: &BTreeSet<String>) -> String {
        let token = format!("ya29.fake-access-token-{:06}", self.number());
        self.tokens.insert(token.clone(), (account.to_owned(), scopes.clone()));
        token
    }

    fn person(&self) -> String {
        if self.person.is_empty() { "ann@example.com".to_owned() } else { self.person.clone() }
    }

    /// What the person grants of the scopes that were asked for.
    fn granted(&self, asked: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        match &self.consent {
            Consent::All => Some(asked.clone()),
            Consent::Only(only) => {
                let always = |scope: &String| scope == "openid" || scope.contains("userinfo");
                let is_granted = |scope: &&String| always(scope) || only.contains(&short(scope));
                Some(asked.iter().filter(is_granted).cloned().collect())
            }
            Consent::Deny => None,
        }
    }

    fn tokens_of(&mut self, grant: &Grant, refresh: Option<String>) -> Answer {
        let access = self.issue(&grant.account, &grant.scopes);
        let claims =
            json!({"iss": "https://accounts.google.com", "email": grant.account, "email_verified": true});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut answer = json!({
            "access_token": access,
            "expires_in": LIFETIME,
            "token_type": "Bearer",
            "scope": grant.scopes.iter().cloned().collect::<Vec<_>>().join(" "),
        });
        if grant.scopes.contains("openid") {
            answer["id_token"] = json!(format!("{}.{}.c2ln", part(&json!({"alg": "RS256"})), part(&claims)));
        }
        if let Some(refresh) = refresh {
            answer["refresh_token"] = json!(refresh);
        }
        Answer::json(200, &answer)
    }

    fn new_grant(&mut self, grant: Grant) -> Answer {
        let refresh = format!("1//fake-refresh-token-{:06}", self.number());
        let answer = self.tokens_of(&grant, Some(refresh.clone()));
        self.refresh_tokens.insert(refresh, grant);
        answer
    }

    fn consent_page(&mut self, query: &[(String, String)]) -> Answer {
        let value = |name: &str| query.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
        let problem = match () {
            () if value("client_id") != CLIENT_ID => Some("invalid_client"),
            () if value("response_type") != "code" => Some("unsupported_response_type"),
            () if value("code_challenge_method") != "S256" || value("code_challenge").len() != 43 => {
                Some("invalid_request")
            }
            () if !value("redirect_uri").starts_with("http://127.0.0.1:") => Some("redirect_uri_mismatch"),
            () if value("access_type") != "offline" || value("prompt") != "consent" => {
                Some("no refresh token")
            }
            () if value("state").len() < 16 => Some("weak state"),
            () => None,
        };
        if let Some(problem) = problem {
            return Answer::json(400, &json!({"error": problem}));
        }
        let mut asked: BTreeSet<String> = value("scope").split(' ').map(full).collect();
        if value("include_granted_scopes") == "true" {
            let person = self.person();
            let earlier = self.refresh_tokens.values().filter(|grant| grant.account == person);
            asked.extend(earlier.flat_map(|grant| grant.scopes.clone()));
        }
        let mut back = url::Url::parse(value("redirect_uri")).unwrap();
        back.query_pairs_mut().append_pair("state", value("state"));
        match self.granted(&asked) {
            None => {
                back.query_pairs_mut().append_pair("error", "access_denied");
            }
            Some(scopes) => {
                let code = format!("4/fake-code-{:06}", self.number());
                let grant = Grant { account: self.person(), scopes, client: CLIENT_ID.to_owned() };
                let (challenge, redirect) =
                    (value("code_challenge").to_owned(), value("redirect_uri").to_owned());
                self.codes.insert(code.clone(), Code { grant, challenge, redirect });
                back.query_pairs_mut().append_pair("code", &code);
            }
        }
        let headers = vec![("Location".to_owned(), back.to_string())];
        Answer::Reply { status: 302, content_type: "text/html".to_owned(), headers, body: Vec::new() }
    }

    fn device_code(&mut self, form: &BTreeMap<String, String>) -> Answer {
        let value = |name: &str| form.get(name).map_or("", String::as_str);
        if value("client_id") != DEVICE_CLIENT_ID {
            let why = json!({"error": "invalid_client", "error_description": "Invalid client type."});
            return Answer::json(401, &why);
        }
        let asked: Vec<&str> = value("scope").split(' ').collect();
        if let Some(scope) = asked.iter().find(|scope| !DEVICE_SCOPES.contains(&short(scope))) {
            let text = format!("Invalid device flow scope: {scope}");
            return Answer::json(400, &json!({"error": "invalid_scope", "error_description": text}));
        }
        let code = format!("AH-fake-device-{:06}", self.number());
        let scopes = asked.into_iter().map(full).collect();
        self.devices.insert(code.clone(), Device { client: DEVICE_CLIENT_ID.to_owned(), scopes });
        Answer::json(
            200,
            &json!({
                "device_code": code, "user_code": "GQVQ-JKEC", "verification_url": "https://www.google.com/device",
                "expires_in": 1800, "interval": 1,
            }),
        )
    }

    fn token(&mut self, form: &BTreeMap<String, String>) -> Answer {
        self.token_requests.push(form.clone());
        let failed = |status: u16, error: &str| {
            Answer::json(
                status,
                &json!({"error": error, "error_description": format!("the server says {error}")}),
            )
        };
        if !self.token_errors.is_empty() {
            return match self.token_errors.remove(0) {
                "html" => Answer::bytes(502, "text/html", b"<html>bad gateway</html>".to_vec()),
                error => failed(if error == "invalid_client" { 401 } else { 400 }, error),
            };
        }
        let value = |name: &str| form.get(name).map_or("", String::as_str);
        let grant_type = value("grant_type");
        if grant_type == "urn:ietf:params:oauth:grant-type:jwt-bearer" {
            return match self.service_account(value("assertion")) {
                Ok((account, scopes)) => {
                    let token = self.issue(&account, &scopes);
                    Answer::json(
                        200,
                        &json!({"access_token": token, "expires_in": LIFETIME, "token_type": "Bearer"}),
                    )
                }
                Err(why) => Answer::json(400, &json!({"error": "invalid_grant", "error_description": why})),
            };
        }
        let client = (value("client_id"), value("client_secret"));
        if client != (CLIENT_ID, CLIENT_SECRET) && client != (DEVICE_CLIENT_ID, DEVICE_CLIENT_SECRET) {
            return failed(401, "invalid_client");
        }
        match grant_type {
            "authorization_code" => {
                // A code works once, whatever else is wrong with the request.
                let Some(code) = self.codes.remove(value("code")) else {
                    return failed(400, "invalid_grant");
                };
                let challenge = URL_SAFE_NO_PAD.encode(sha256(value("code_verifier").as_bytes()));
                if code.challenge != challenge
                    || code.redirect != value("redirect_uri")
                    || code.grant.client != client.0
                {
                    return failed(400, "invalid_grant");
                }
                self.new_grant(code.grant)
            }
            "refresh_token" => match self.refresh_tokens.remove_entry(value("refresh_token")) {
                Some((refresh, grant)) if grant.client == client.0 => {
                    let answer = self.tokens_of(&grant, None);
                    self.refresh_tokens.insert(refresh, grant);
                    answer
                }
                Some((refresh, grant)) => {
                    self.refresh_tokens.insert(refresh, grant);
                    failed(401, "unauthorized_client")
                }
                None => failed(400, "invalid_grant"),
            },
            "urn:ietf:params:oauth:grant-type:device_code" => {
                let Some(device) = self.devices.remove(value("device_code")) else {
                    return failed(400, "invalid_grant");
                };
                match self.granted(&device.scopes) {
                    None => failed(403, "access_denied"),
                    Some(scopes) => {
                        let grant = Grant { account: self.person(), scopes, client: device.client };
                        self.new_grant(grant)
                    }
                }
            }
            _ => failed(400, "unsupported_grant_type"),
        }
    }

    /// Checks the signature and the claims of a service account's assertion.
    fn service_account(&self, assertion: &str) -> Result<(String, BTreeSet<String>), String> {
        let parts: Vec<&str> = assertion.split('.').collect();
        let [head, claims, signature] = parts[..] else { return Err("not a JWT".to_owned()) };
        let json = |part: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let (Some(header), Some(about)) = (json(head), json(claims)) else {
            return Err("not a JWT".to_owned());
        };
        let issuer = about["iss"].as_str().unwrap_or_default();
        let key = self.service_keys.get(issuer).ok_or("Invalid grant: account not found")?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "not a JWT")?;
        let signed = format!("{head}.{claims}");
        let public = aws_lc_rs::signature::UnparsedPublicKey::new(
            &aws_lc_rs::signature::RSA_PKCS1_2048_8192_SHA256,
            key,
        );
        if header["alg"] != "RS256" || public.verify(signed.as_bytes(), &signature).is_err() {
            return Err("Invalid JWT Signature.".to_owned());
        }
        let (issued, expires) = (about["iat"].as_i64().unwrap_or(0), about["exp"].as_i64().unwrap_or(0));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let now = i64::try_from(now).unwrap();
        if expires - issued > 3600 || expires <= now || issued > now + 60 {
            return Err(
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
                    .to_owned(),
            );
        }
        if about["aud"] != "https://oauth2.googleapis.com/token" {
            return Err("Invalid JWT: wrong audience".to_owned());
        }
        let account =
            match about["sub"].as_str() {
                None => issuer,
                Some(user)
                    if self
                        .delegations
                        .get(issuer)
                        .is_some_and(|users| users.iter().any(|known| known == user)) =>
                {
                    user
                }
                Some(_) => return Err(
                    "unauthorized_client: Client is unauthorized to retrieve access tokens using this method"
                        .to_owned(),
                ),
            };
        let scopes = about["scope"].as_str().unwrap_or_default().split(' ').map(full).collect();
        Ok((account.to_owned(), scopes))
    }

    fn revoke(&mut self, form: &BTreeMap<String, String>) -> Answer {
        let token = form.get("token").cloned().unwrap_or_default();
        match self.refresh_tokens.remove(&token) {
            Some(grant) => {
                self.tokens.retain(|_, (account, _)| *account != grant.account);
                self.revoked.push(token);
                Answer::json(200, &json!({}))
            }
            None => Answer::json(400, &json!({"error": "invalid_token"})),
        }
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().to_vec()
}

/// Answers a request to the OAuth endpoints.
pub(super) fn answer(
    oauth: &mut OAuth,
    request: &Request,
    path: &str,
    query: &[(String, String)],
) -> Option<Answer> {
    let form = || {
        let form = url::form_urlencoded::parse(&request.body).into_owned();
        basic_client(request).into_iter().chain(form).collect::<BTreeMap<String, String>>()
    };
    Some(match (request.method.as_str(), path) {
        ("GET", "/o/oauth2/v2/auth") => oauth.consent_page(query),
        ("POST", "/device/code") => oauth.device_code(&form()),
        ("POST", "/token") => oauth.token(&form()),
        ("POST", "/revoke") => oauth.revoke(&form()),
        _ => return None,
    })
}

/// A client may send its id and secret in a header instead of the form.
fn basic_client(request: &Request) -> Vec<(String, String)> {
    let packed = request.header("authorization").and_then(|value| value.strip_prefix("Basic "));
    let plain = packed.and_then(|packed| base64::engine::general_purpose::STANDARD.decode(packed).ok());
    let plain = plain.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let Some((id, secret)) = plain.split_once(':') else { return Vec::new() };
    vec![("client_id".to_owned(), id.to_owned()), ("client_secret".to_owned(), secret.to_owned())]
}
