//! [`GoogleError`] is every way in which a call of a Google API fails, as one sentence that says what to do.

use gantry_tool::{Message, ToolError, on_one_line};
use serde_json::Value;

use crate::api::Service;

/// The longest text of Google that an error repeats.
const MAX_TEXT: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GoogleError {
    #[error("no Google account is signed in")]
    NotSignedIn,
    #[error("the Google account {name:?} is not signed in; signed in: {known}")]
    UnknownAccount { name: String, known: String },
    /// The grant of an account ended: it was revoked, or it expired.
    #[error("Google ended the sign-in of {account}: {reason}")]
    SignInEnded { account: String, reason: String },
    /// The operator has to fix the credentials of the application.
    #[error("{0}")]
    Credentials(String),
    /// `needed` are the scopes of which one is enough, the smallest first.
    #[error("{account} has not granted the scope {}", .needed.first().copied().unwrap_or_default())]
    MissingScope { account: String, needed: &'static [&'static str] },
    /// A person was asked for the scope.
    #[error("{account} did not grant the scope {scope}: {why}")]
    ScopeDenied { account: String, scope: &'static str, why: String },
    #[error("{service} rejected the request: {text}")]
    Rejected { service: Service, status: u16, reason: String, text: String },
    /// A request that may not be repeated got no answer.
    #[error("{service} did not answer: {text}; the change may have happened, so check before you repeat it")]
    Unknown { service: Service, text: String },
    #[error("cannot reach {service}: {text}")]
    Unreachable { service: Service, text: String },
    #[error("{service} returned an answer that is not valid: {text}")]
    Invalid { service: Service, text: String },
    #[error("the answer of {service} is larger than {limit} bytes")]
    TooLarge { service: Service, limit: usize },
    /// The token could not be renewed now.
    #[error("{0}")]
    NoToken(String),
    #[error("cancelled")]
    Cancelled,
    #[error("the stored sign-in cannot be used: {0}")]
    Store(String),
}

impl GoogleError {
    /// Reads the error of an answer. The body may be anything, HTML included.
    pub(crate) fn of_answer(service: Service, status: u16, body: &[u8]) -> GoogleError {
        let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = &parsed["error"];
        let first = |list: &Value, name: &str| {
            list.as_array().into_iter().flatten().find_map(|item| item[name].as_str().map(str::to_owned))
        };
        let reason = first(&error["details"], "reason")
            .or_else(|| first(&error["errors"], "reason"))
            .or_else(|| error["status"].as_str().map(str::to_owned))
            .unwrap_or_default();
        let text = error["message"].as_str().or_else(|| error.as_str()).unwrap_or_default();
        let text = match text.is_empty() {
            true => format!("HTTP {status}"),
            false => shortened(text),
        };
        GoogleError::Rejected { service, status, reason, text }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            GoogleError::Rejected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether Google refused because of a quota or a limit on the rate.
    pub(crate) fn is_rate_limit(&self) -> bool {
        match self {
            GoogleError::Rejected { status: 429, .. } => true,
            GoogleError::Rejected { status: 403, reason, .. } => matches!(
                reason.as_str(),
                "rateLimitExceeded"
                    | "userRateLimitExceeded"
                    | "RATE_LIMIT_EXCEEDED"
                    | "RESOURCE_EXHAUSTED"
                    | "sharingRateLimitExceeded"
            ),
            _ => false,
        }
    }

    /// What the caller or the operator can do.
    fn hint(&self) -> Option<String> {
        Some(match self {
            GoogleError::NotSignedIn => "run `gantry google auth`".to_owned(),
            GoogleError::UnknownAccount { .. } => {
                "leave account out for the default one, or run `gantry google auth`".to_owned()
            }
            GoogleError::SignInEnded { .. } => "run `gantry google auth` to sign in again".to_owned(),
            GoogleError::MissingScope { account, needed } => {
                let scope = needed.first().copied().unwrap_or_default();
                format!("the operator can add it with `gantry google scopes add {scope} --account {account}`")
            }
            GoogleError::Rejected { service, status, reason, .. } => {
                rejected_hint(*service, *status, reason, self.is_rate_limit())?
            }
            GoogleError::ScopeDenied { .. }
            | GoogleError::Credentials(_)
            | GoogleError::Unknown { .. }
            | GoogleError::Unreachable { .. }
            | GoogleError::Invalid { .. }
            | GoogleError::TooLarge { .. }
            | GoogleError::NoToken(_)
            | GoogleError::Cancelled
            | GoogleError::Store(_) => return None,
        })
    }
}

fn rejected_hint(service: Service, status: u16, reason: &str, is_rate_limit: bool) -> Option<String> {
    let hint = match (status, reason) {
        (401, _) => "the token was rejected; run `gantry google status`, then `gantry google auth`",
        (_, "insufficientPermissions" | "ACCESS_TOKEN_SCOPE_INSUFFICIENT") => {
            "the sign-in lacks a scope; `gantry google status` lists the granted ones"
        }
        (_, "accessNotConfigured" | "SERVICE_DISABLED") => {
            return Some(format!(
                "enable the {} for your project in the Google Cloud console, wait a minute and try again",
                service.api_name()
            ));
        }
        (_, "forbiddenForServiceAccounts") => {
            "a service account cannot invite people without domain-wide delegation; set google.serviceAccountUser"
        }
        (_, "domainPolicy") => "the administrator of the Workspace domain blocks this application",
        (_, "storageQuotaExceeded" | "quotaExceeded" | "dailyLimitExceeded") if !is_rate_limit => {
            "the account's quota is used up; free some storage or wait until it resets"
        }
        (_, "exportSizeLimitExceeded") => {
            "Google exports at most 10 MB; open the file in the browser instead"
        }
        _ if is_rate_limit => "Google limits the rate of requests; wait a minute before the next one",
        (404, _) => "it does not exist, or it is not shared with this account",
        (410, _) => "it was deleted",
        (412, _) => "it was changed meanwhile; read it again",
        (500..=599, _) => "Google has a temporary problem; try again later",
        _ => return None,
    };
    Some(hint.to_owned())
}

impl From<GoogleError> for ToolError {
    fn from(err: GoogleError) -> ToolError {
        let message = Message { hint: err.hint(), ..Message::new(err.to_string()) };
        match err {
            GoogleError::Cancelled => ToolError::Cancelled,
            GoogleError::ScopeDenied { .. } => ToolError::Denied(message),
            GoogleError::Unreachable { .. } | GoogleError::NoToken(_) => ToolError::Unavailable(message),
            _ => ToolError::Failed(message),
        }
    }
}

/// A text of Google on one line, shortened.
pub(crate) fn shortened(text: &str) -> String {
    let text = on_one_line(text);
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
