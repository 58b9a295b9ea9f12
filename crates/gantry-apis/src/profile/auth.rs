//! How requests to an API authenticate. Credentials appear by name only: `secret:NAME`.

use gantry_net::is_clients_own;
use gantry_store::references;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Problems, check_url};

const TYPES: [&str; 6] = ["none", "basic", "bearer", "header", "query", "oauth2"];
/// The longest word before a secret, such as `Token `. A longer text could be a credential itself.
const MAX_WORD: usize = 16;
const STYLES: [&str; 2] = ["basic", "body"];

/// The auth of a profile as it was written. The check reports the fields that a type needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthDraft {
    /// none, basic, bearer, header, query or oauth2 (client credentials).
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// basic: the user name, or `secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// basic: `secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// bearer: `secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// header: its name, such as `X-Api-Key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_name: Option<String>,
    /// query: the parameter's name, such as `api_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_param: Option<String>,
    /// header, query: `secret:NAME`, or with a word before it, such as `Token secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// oauth2: the token endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// oauth2: the client's id, or `secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// oauth2: `secret:NAME`, stored for the host of `token_url` and for the API's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// oauth2: scopes, with spaces between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// oauth2: `basic` sends id and secret as basic authorization (the default), `body` in the
    /// body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_style: Option<String>,
    /// Further instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The checked auth of a profile. Strings may hold `secret:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    None,
    Basic {
        username: String,
        password: String,
    },
    Bearer {
        token: String,
    },
    Header {
        name: String,
        value: String,
    },
    Query {
        name: String,
        value: String,
    },
    OAuth2 {
        token_url: Url,
        client_id: String,
        client_secret: String,
        scope: Option<String>,
        style: ClientStyle,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStyle {
    Basic,
    Body,
}

pub(super) fn check_auth(problems: &mut Problems, draft: Option<&AuthDraft>) -> Option<Auth> {
    let Some(draft) = draft else {
        problems.add("auth", "missing: how requests authenticate; {\"type\": \"none\"} if they do not");
        return None;
    };
    let before = problems.found.len();
    let kind = draft.kind.as_deref().unwrap_or_default();
    let mut fields = Fields { problems, kind, seen: vec!["type", "instructions"] };
    let auth = match kind {
        "none" => Auth::None,
        "basic" => Auth::Basic {
            username: fields.plain("username", &draft.username),
            password: fields.credential("password", &draft.password, Prefix::Nothing),
        },
        "bearer" => Auth::Bearer { token: fields.credential("token", &draft.token, Prefix::Nothing) },
        "header" => Auth::Header {
            name: fields.header_name(&draft.header_name),
            value: fields.credential("value", &draft.value, Prefix::Word),
        },
        "query" => Auth::Query {
            name: fields.plain("query_param", &draft.query_param),
            value: fields.credential("value", &draft.value, Prefix::Word),
        },
        "oauth2" => {
            let token_url = fields.plain("token_url", &draft.token_url);
            let token_url = check_url(fields.problems, "auth.token_url", &token_url);
            fields.seen.extend(["scope", "client_style"]);
            let style = match draft.client_style.as_deref() {
                None | Some("basic") => ClientStyle::Basic,
                Some("body") => ClientStyle::Body,
                Some(other) => {
                    fields.problems.one_of("auth.client_style", other, &STYLES);
                    ClientStyle::Basic
                }
            };
            let client_id = fields.plain("client_id", &draft.client_id);
            let client_secret = fields.credential("client_secret", &draft.client_secret, Prefix::Nothing);
            // An invalid URL is already reported; the placeholder lets the check go on to the other
            // fields.
            let token_url = token_url.or_else(|| Url::parse("https://unknown.invalid").ok())?;
            Auth::OAuth2 { token_url, client_id, client_secret, scope: draft.scope.clone(), style }
        }
        "" => {
            fields.problems.add("auth.type", &format!("missing: one of {}", TYPES.join(", ")));
            return None;
        }
        other => {
            fields.problems.one_of("auth.type", other, &TYPES);
            return None;
        }
    };
    let seen = fields.seen;
    reject_unused(problems, draft, kind, &seen);
    (problems.found.len() == before).then_some(auth)
}

/// Rejects fields that the type does not use, because a reader would expect them to have an effect.
fn reject_unused(problems: &mut Problems, draft: &AuthDraft, kind: &str, seen: &[&str]) {
    let given = [
        ("username", &draft.username),
        ("password", &draft.password),
        ("token", &draft.token),
        ("header_name", &draft.header_name),
        ("query_param", &draft.query_param),
        ("value", &draft.value),
        ("token_url", &draft.token_url),
        ("client_id", &draft.client_id),
        ("client_secret", &draft.client_secret),
        ("scope", &draft.scope),
        ("client_style", &draft.client_style),
    ];
    for (name, value) in given {
        if value.is_some() && !seen.contains(&name) {
            problems.add(&format!("auth.{name}"), &format!("is not used by type {kind}; leave it out"));
        }
    }
}

struct Fields<'a> {
    problems: &'a mut Problems,
    kind: &'a str,
    /// The fields that the type uses.
    seen: Vec<&'static str>,
}

impl Fields<'_> {
    fn plain(&mut self, name: &'static str, value: &Option<String>) -> String {
        self.seen.push(name);
        let path = format!("auth.{name}");
        let text = self.problems.text(&path, value.as_deref(), &format!("type {} needs it", self.kind));
        if text.contains(['\n', '\t']) {
            self.problems.add(&path, "must not contain control characters");
        }
        text
    }

    fn header_name(&mut self, value: &Option<String>) -> String {
        let name = self.plain("header_name", value);
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.bytes().all(allowed) {
            self.problems.add("auth.header_name", "is not a header name");
        }
        if is_clients_own(&name) {
            self.problems.add("auth.header_name", "is set by the client from the URL and the body");
        }
        name
    }

    /// Checks a credential given by name. The error never quotes the text: it may be the credential
    /// itself.
    fn credential(&mut self, name: &'static str, value: &Option<String>, prefix: Prefix) -> String {
        let text = self.plain(name, value);
        let found: Vec<_> = references(&text).collect();
        let by_name = match (found.as_slice(), prefix) {
            ([only], Prefix::Nothing) => only.range == (0..text.len()),
            ([only], Prefix::Word) => is_word(&text[..only.range.start]) && only.range.end == text.len(),
            _ => false,
        };
        if !text.is_empty() && !by_name {
            self.problems.add(
                &format!("auth.{name}"),
                "must name a stored secret as secret:NAME, not contain the credential itself; the operator \
                 stores one with `gantry secrets set NAME --host HOST`",
            );
        }
        text
    }
}

/// Whether the text is empty or one word such as `Token `, `ApiKey=` or `SSWS `. Digits are
/// rejected because credentials contain them.
fn is_word(before: &str) -> bool {
    let word = before.trim_end_matches([' ', '=', ':']);
    before.len() <= MAX_WORD && word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

/// What may precede the name of a secret.
#[derive(Debug, Clone, Copy)]
enum Prefix {
    Nothing,
    Word,
}
