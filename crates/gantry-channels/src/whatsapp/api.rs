//! Calls of the Graph API, and what its error codes mean for a message.

use std::time::Duration;

use bytes::Bytes;
use gantry_net::{HeaderMap, HeaderValue, Method, NetError, Redirects, Request, StatusCode, Url, header};
use serde_json::Value;
use tokio::time::Instant;

use super::WhatsApp;
use crate::adapter::{ListenError, SendOutcome};
use crate::connection::{REQUEST_LIMIT, failed};

/// The limit for an answer.
const MAX_ANSWER: usize = 1 << 20;
/// The wait after a rate limit without a time.
const PAUSE: Duration = Duration::from_secs(30);
/// The person has not written for 24 hours.
pub(super) const OUTSIDE_WINDOW: u64 = 131_047;
const TOKEN: u64 = 190;
const INVALID_PARAMETER: u64 = 100;
/// Calls of the app, of the account, of the number, of the number to one person, and messages that people reported.
const LIMITS: [u64; 6] = [4, 80_007, 130_429, 131_048, 131_056, 133_016];
/// Meta does not say whether a message with these errors was sent.
const SERVER: [u64; 5] = [1, 2, 131_000, 131_016, 131_057];

/// Why a call failed.
#[derive(Debug, Clone)]
pub(super) enum CallError {
    /// The token cannot be used here.
    Secret(String),
    Net(NetError),
    Limited {
        after: Duration,
        text: String,
    },
    /// Meta failed, perhaps after it did what was asked.
    Server(String),
    Refused {
        code: u64,
        text: String,
    },
}

impl WhatsApp {
    pub(super) fn api(&self) -> Result<&Url, CallError> {
        self.api.as_ref().ok_or_else(|| CallError::Secret("apiUrl is not a URL".to_owned()))
    }

    /// Opens the access token for the host of a URL. A value that cannot be one is not sent.
    pub(super) fn token(&self, url: &Url) -> Result<String, CallError> {
        let token = self.connection.secret(&self.token, url).map_err(CallError::Secret)?;
        let token = token.trim();
        if token.len() < 20 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let text = "the secret of token is not an access token; one begins with EAA";
            return Err(CallError::Secret(text.to_owned()));
        }
        Ok(token.to_owned())
    }

    /// Makes a request with the token to an address that was checked.
    pub(super) fn request(&self, url: Url, limit: Duration) -> Result<Request, CallError> {
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", self.token(&url)?))
            .map_err(|_| CallError::Secret("the secret of token is not an access token".to_owned()))?;
        bearer.set_sensitive(true);
        let mut request = Request::get(url, Instant::now() + limit);
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request.secret_headers.insert(header::AUTHORIZATION, bearer);
        Ok(request)
    }

    pub(super) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, CallError> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.request(url, REQUEST_LIMIT)?;
        self.call(request).await
    }

    /// Posts to the phone number.
    pub(super) async fn post(
        &self,
        path: &str,
        content_type: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Value, CallError> {
        let mut request = self.request(self.url(&[&self.phone_number_id, path])?, limit)?;
        request.method = Method::POST;
        request.body = body;
        if let Ok(value) = HeaderValue::try_from(content_type) {
            request.headers.insert(header::CONTENT_TYPE, value);
        }
        self.call(request).await
    }

    /// Segments are escaped.
    fn url(&self, path: &[&str]) -> Result<Url, CallError> {
        let mut url = self.api()?.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
            Err(()) => return Err(CallError::Secret("apiUrl is not a URL".to_owned())),
        }
        Ok(url)
    }

    async fn call(&self, request: Request) -> Result<Value, CallError> {
        let response = self.connection.client.send(request).await.map_err(CallError::Net)?;
        let (status, headers) = (response.status, response.headers);
        let body = response.body.read(MAX_ANSWER).await.map_err(CallError::Net)?;
        let answer: Option<Value> = serde_json::from_slice(&body.bytes).ok();
        match answer {
            Some(answer) if status.is_success() && answer.get("error").is_none() => Ok(answer),
            answer => {
                let err = error(status, &headers, answer.map(|mut answer| answer["error"].take()));
                if err.is_login() {
                    // The account's state must not wait for the next check.
                    self.recheck.notify_one();
                }
                Err(err)
            }
        }
    }
}

/// Reads an error answer. Texts of Meta are cut, and never contain the token.
fn error(status: StatusCode, headers: &HeaderMap, error: Option<Value>) -> CallError {
    let error = error.unwrap_or_default();
    let code = error["code"].as_u64().unwrap_or_default();
    let details = error["error_data"]["details"].as_str().or_else(|| error["message"].as_str());
    let details: String = details.unwrap_or_default().chars().filter(|c| !c.is_control()).take(300).collect();
    let details = if details.contains("EAA") { String::new() } else { details };
    let text = match (code, details.is_empty()) {
        (0, true) => format!("WhatsApp answered {status}"),
        (_, true) => format!("WhatsApp refused with code {code}"),
        _ => format!("WhatsApp refused with code {code}: {details}"),
    };
    if status == StatusCode::TOO_MANY_REQUESTS || LIMITS.contains(&code) {
        let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let after = seconds.map_or(PAUSE, |seconds: u64| Duration::from_secs(seconds.clamp(1, 3_600)));
        return CallError::Limited { after, text };
    }
    if status.is_server_error() || status.is_success() || SERVER.contains(&code) {
        return CallError::Server(text);
    }
    let code = if code == 0 && status == StatusCode::UNAUTHORIZED { TOKEN } else { code };
    CallError::Refused { code, text }
}

impl CallError {
    /// Reports whether the operator must store another token.
    pub(super) fn is_login(&self) -> bool {
        matches!(self, CallError::Secret(_) | CallError::Refused { code: 0 | TOKEN, .. })
    }

    /// What the operator can do.
    pub(super) fn fix(&self) -> &'static str {
        match self {
            _ if self.is_login() => {
                "create a token for a system user at business.facebook.com under System users, with \
                 whatsapp_business_messaging and whatsapp_business_management, and store it as the secret of token"
            }
            CallError::Net(_) | CallError::Server(_) => {
                "check the connection to graph.facebook.com, a proxy or a firewall"
            }
            CallError::Limited { .. } => "wait and try again",
            CallError::Refused { code, .. } => match *code {
                10 | 200..300 | 131_005 => {
                    "assign the WhatsApp account to the system user with full control, and create its token with \
                     whatsapp_business_messaging and whatsapp_business_management"
                }
                33 | INVALID_PARAMETER => {
                    "check phoneNumberId: it is the id below the number in WhatsApp, API Setup, not the number itself; \
                     the system user must have access to its WhatsApp account"
                }
                131_026 => "the person must use a current WhatsApp and must have accepted its terms",
                131_030 => {
                    "add the person's number to the recipients of the test number, or use a number of your own"
                }
                131_031 | 368 | 130_497 => {
                    "look at the account's quality and restrictions in the WhatsApp Manager"
                }
                131_042 => "add a payment method in the WhatsApp Manager",
                131_045 | 133_010 => "register the phone number in WhatsApp, API Setup",
                131_053 => "the file's type is not one that WhatsApp accepts",
                OUTSIDE_WINDOW => {
                    "the person has not written for 24 hours; they must write first, or set `template` for this account"
                }
                132_000..133_000 => {
                    "check that the template is approved, has this language, and one variable in its body"
                }
                _ => "look the code up in Meta's list of error codes of the Cloud API",
            },
            CallError::Secret(_) => "store the access token as the secret of token",
        }
    }

    pub(super) fn stops_listening(&self) -> ListenError {
        match self {
            CallError::Limited { after, .. } => {
                ListenError::Again { why: self.to_string(), after: Some(*after) }
            }
            CallError::Net(
                NetError::NotAllowed { .. }
                | NetError::ForbiddenAddress { .. }
                | NetError::ForbiddenName { .. }
                | NetError::BadUrl { .. },
            ) => ListenError::Refused(self.to_string()),
            CallError::Net(_) | CallError::Server(_) => {
                ListenError::Again { why: self.to_string(), after: None }
            }
            _ if self.is_login() => ListenError::NeedsLogin(format!("{self}: {}", self.fix())),
            CallError::Secret(_) | CallError::Refused { .. } => {
                ListenError::Refused(format!("{self}: {}", self.fix()))
            }
        }
    }

    /// The outcome of a call that sends something.
    pub(super) fn outcome(&self) -> SendOutcome {
        match self {
            CallError::Net(err) => failed(err),
            // The operator may store another token until the next attempt.
            _ if self.is_login() => SendOutcome::Retry { why: self.to_string(), after: None },
            CallError::Secret(why) => SendOutcome::Retry { why: why.clone(), after: None },
            CallError::Limited { after, .. } => {
                SendOutcome::Retry { why: self.to_string(), after: Some(*after) }
            }
            CallError::Server(_) => SendOutcome::Unknown(self.to_string()),
            CallError::Refused { .. } => SendOutcome::Refused(format!("{self}: {}", self.fix())),
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::Secret(text)
            | CallError::Server(text)
            | CallError::Limited { text, .. }
            | CallError::Refused { text, .. } => f.write_str(text),
            CallError::Net(err) => err.fmt(f),
        }
    }
}
