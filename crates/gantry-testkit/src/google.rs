//! A server in place of Google's APIs. Every request is checked against Google's own description of the API: path, method,
//! parameters, body, and the scopes of the token. So is every answer of the server itself.
//!
//! `discovery` and `schema` are the checks, `oauth` is the sign-in, and one module per API is its behaviour.

mod calendar;
mod discovery;
mod docs;
mod drive;
mod field_mask;
mod gmail;
mod oauth;
mod schema;
mod sheets;
mod small_http;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use small_http::{Answer, Request, serve};

pub use calendar::Calendar;
pub use discovery::installed;
pub use docs::{Docs, StoredDocument};
pub use drive::{Drive, File};
pub use gmail::{Gmail, Mail};
pub use oauth::{CLIENT_ID, CLIENT_SECRET, Consent, DEVICE_CLIENT_ID, DEVICE_CLIENT_SECRET, OAuth};
pub use sheets::Sheets;

/// What happens to the next call of a method, in place of its answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The call has no effect. Status, reason, and headers such as `Retry-After`.
    Reject(u16, &'static str, Vec<(String, String)>),
    /// The call has its effect, and the answer is an error of the server.
    FailAfter(u16),
    /// The call has its effect, and the connection ends without an answer.
    CutAfter,
    /// The answer is a page for people.
    Html(u16),
    /// Nothing happens to this call, so that the next fault meets a later one.
    Pass,
}

/// The type and the bytes of an upload.
type Media = (String, Vec<u8>);

/// A request that passed all checks.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Such as `calendar.events.insert`.
    pub id: String,
    pub account: String,
    /// Parameters of the path and of the query.
    pub parameters: Vec<(String, String)>,
    pub body: Value,
    /// The media of an upload: its type and its bytes.
    pub media: Option<Media>,
}

impl Seen {
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A parameter of the path. It is always there.
    fn path(&self, name: &str) -> &str {
        self.parameter(name).unwrap_or_default()
    }
}

/// The answer of an API.
pub(crate) enum Reply {
    Json(Value),
    /// Without a body.
    Empty,
    Bytes(String, Vec<u8>),
    /// With headers and no body, for resumable uploads.
    Headers(u16, Vec<(String, String)>),
    Error(u16, &'static str, String),
}

impl Reply {
    fn not_found(what: &str) -> Reply {
        Reply::Error(404, "notFound", format!("{what} not found."))
    }
}

/// Everything that the server knows. A test may change it at any time.
#[derive(Default)]
pub struct State {
    pub oauth: OAuth,
    pub calendar: Calendar,
    pub sheets: Sheets,
    pub drive: Drive,
    pub docs: Docs,
    pub gmail: Gmail,
    faults: VecDeque<(String, Fault)>,
    seen: Vec<Seen>,
    /// Requests that failed a check: method, path and reason.
    rejected: Vec<String>,
    /// The server's own address.
    origin: String,
}

pub struct FakeGoogle {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

impl FakeGoogle {
    pub async fn start() -> FakeGoogle {
        let state = Arc::new(Mutex::new(State::default()));
        let own = state.clone();
        let address = serve(move |request| {
            let state = own.clone();
            async move { answer(&mut state.lock().unwrap(), &request) }
        })
        .await;
        state.lock().unwrap().origin = format!("http://{address}");
        FakeGoogle { state, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns a new access token. `scopes` are short names such as `gmail.readonly`.
    pub fn token(&self, account: &str, scopes: &[&str]) -> String {
        self.state().oauth.new_token(account, scopes)
    }

    /// The next call of a method gets this fault. Several faults are used in order.
    pub fn fail(&self, id: &str, fault: Fault) {
        self.state().faults.push_back((id.to_owned(), fault));
    }

    /// The requests that passed all checks.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// The requests of one method.
    pub fn seen_of(&self, id: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.id == id).collect()
    }

    /// The requests that failed a check.
    pub fn rejected(&self) -> Vec<String> {
        self.state().rejected.clone()
    }
}

fn answer(state: &mut State, request: &Request) -> Answer {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let query: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if let Some(answer) = oauth::answer(&mut state.oauth, request, path, &query) {
        return answer;
    }
    let (reply, seen, fault) = match checked(state, request, path, &query) {
        Ok((method, seen)) => {
            let fault = state.faults.iter().position(|(id, _)| *id == seen.id);
            let fault = fault.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault);
            state.seen.push(seen.clone());
            if let Some(Fault::Reject(status, reason, headers)) = &fault {
                return rejected(*status, reason, "the request was refused on purpose", headers.clone());
            }
            if let Some(Fault::Html(status)) = &fault {
                let page = b"<html><title>Error</title><b>That's an error.</b></html>".to_vec();
                return Answer::bytes(*status, "text/html", page);
            }
            let reply = behave(state, &seen);
            if let Reply::Json(value) = &reply
                && let Err(why) = method.check_answer(value)
            {
                panic!("the answer to {} is not valid: {why}", seen.id);
            }
            (reply, seen, fault)
        }
        Err(Reply::Error(status, reason, text)) => {
            state.rejected.push(format!("{} {path}: {text}", request.method));
            return rejected(status, reason, &text, Vec::new());
        }
        Err(reply) => return plain(reply, None),
    };
    match fault {
        Some(Fault::FailAfter(status)) => rejected(status, "backendError", "Backend Error", Vec::new()),
        Some(Fault::CutAfter) => Answer::Cut,
        _ => plain(reply, seen.parameter("fields")),
    }
}

fn plain(reply: Reply, mask: Option<&str>) -> Answer {
    match reply {
        Reply::Json(value) => {
            Answer::json(200, &mask.map_or(value.clone(), |mask| field_mask::apply(mask, &value)))
        }
        Reply::Empty => Answer::Reply {
            status: 204,
            content_type: "text/plain".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        },
        Reply::Bytes(content_type, body) => Answer::bytes(200, &content_type, body),
        Reply::Headers(status, headers) => {
            Answer::Reply { status, content_type: "text/plain".to_owned(), headers, body: Vec::new() }
        }
        Reply::Error(status, reason, text) => rejected(status, reason, &text, Vec::new()),
    }
}

/// The shape of Google's errors.
fn rejected(status: u16, reason: &str, text: &str, headers: Vec<(String, String)>) -> Answer {
    let error = json!({"error": {
        "code": status,
        "message": text,
        "errors": [{"message": text, "domain": "global", "reason": reason}],
    }});
    let body = error.to_string().into_bytes();
    Answer::Reply { status, content_type: "application/json; charset=UTF-8".to_owned(), headers, body }
}

/// Checks a request against the description of its method.
fn checked(
    state: &mut State,
    request: &Request,
    path: &str,
    query: &[(String, String)],
) -> Result<(&'static discovery::ApiMethod, Seen), Reply> {
    let invalid = |text: String| Reply::Error(400, "badRequest", text);
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let Some((account, granted)) = bearer.and_then(|token| state.oauth.of_token(token)) else {
        return Err(Reply::Error(401, "authError", "Invalid Credentials".to_owned()));
    };
    // The parts of a resumable upload go to an address that the first request returned.
    let upload = query.iter().find(|(name, _)| name == "upload_id").map(|(_, id)| id.clone());
    let http_method = if upload.is_some() && request.method == "PUT" { "POST" } else { &request.method };
    let Some(found) = discovery::discovery().find(http_method, path) else {
        return Err(Reply::Error(404, "notFound", format!("no API has {} {path}", request.method)));
    };
    let method = found.method;
    if !method.scopes.iter().any(|scope| granted.contains(scope)) {
        let text = "Request had insufficient authentication scopes.".to_owned();
        return Err(Reply::Error(403, "insufficientPermissions", text));
    }
    let query: Vec<_> = query.iter().filter(|(name, _)| name != "upload_id").cloned().collect();
    method.check_query(&query).map_err(invalid)?;
    let upload_type = query.iter().find(|(name, _)| name == "uploadType").map(|(_, value)| value.as_str());
    if found.is_upload != upload_type.is_some() {
        return Err(invalid(format!("{} and its uploadType do not match", found.request_path)));
    }
    let parse = |bytes: &[u8]| match bytes.is_empty() {
        true => Ok(Value::Null),
        false => serde_json::from_slice(bytes).map_err(|_| invalid("Parse Error".to_owned())),
    };
    let content_type = request.header("content-type").unwrap_or_default().to_owned();
    let (body, media) = match upload_type {
        _ if upload.is_some() => (Value::Null, Some((content_type, request.body.clone()))),
        Some("multipart") => {
            let (metadata, media) = related(&content_type, &request.body)
                .ok_or_else(|| invalid("Malformed multipart body.".to_owned()))?;
            (parse(&metadata)?, Some(media))
        }
        Some("media") => (Value::Null, Some((content_type, request.body.clone()))),
        _ if !request.body.is_empty() && !content_type.starts_with("application/json") => {
            return Err(invalid(format!("a body of the type {content_type:?}")));
        }
        _ => (parse(&request.body)?, None),
    };
    method.check_body(&body).map_err(invalid)?;
    let mut parameters = found.path;
    parameters.extend(query);
    parameters.extend(upload.map(|id| ("upload_id".to_owned(), id)));
    let named = ["content-range", "x-upload-content-length", "x-upload-content-type", "if-match"];
    for name in named {
        parameters.extend(request.header(name).map(|value| (name.to_owned(), value.to_owned())));
    }
    Ok((method, Seen { id: method.id.clone(), account, parameters, body, media }))
}

/// Reads the two parts of `multipart/related`: metadata and media.
fn related(content_type: &str, body: &[u8]) -> Option<(Vec<u8>, Media)> {
    let boundary = content_type.split("boundary=").nth(1)?.trim_matches(['"', '\'']);
    let separator = format!("--{boundary}").into_bytes();
    let find = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).position(|window| window == wanted);
    let mut parts = Vec::new();
    let mut rest = &body[find(body, &separator)? + separator.len()..];
    while let Some(end) = find(rest, &separator) {
        let part = &rest[..end];
        // The head ends with an empty line, in either form of line ends.
        let (at, length) = match find(part, b"\r\n\r\n") {
            Some(at) => (at, 4),
            None => (find(part, b"\n\n")?, 2),
        };
        let head = String::from_utf8_lossy(&part[..at]).to_lowercase();
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type:"))
            .unwrap_or_default()
            .trim()
            .to_owned();
        let content = &part[at + length..];
        let content =
            content.strip_suffix(b"\r\n").or_else(|| content.strip_suffix(b"\n")).unwrap_or(content);
        let is_base64 = head.contains("content-transfer-encoding: base64");
        let content = match is_base64 {
            true => {
                use base64::Engine;
                let packed: Vec<u8> =
                    content.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
                base64::engine::general_purpose::STANDARD.decode(packed).ok()?
            }
            false => content.to_vec(),
        };
        parts.push((kind, content));
        rest = &rest[end + separator.len()..];
    }
    let [(_, metadata), media]: [Media; 2] = parts.try_into().ok()?;
    Some((metadata, media))
}

/// Performs a checked request.
fn behave(state: &mut State, seen: &Seen) -> Reply {
    let api = seen.id.split('.').next().unwrap_or_default();
    match api {
        "calendar" => calendar::answer(&mut state.calendar, seen),
        "sheets" => sheets::answer(&mut state.sheets, seen),
        "drive" => drive::answer(state, seen),
        "docs" => docs::answer(&mut state.docs, seen),
        "gmail" => gmail::answer(&mut state.gmail, seen),
        _ => Reply::Error(501, "notImplemented", format!("this server has no {}", seen.id)),
    }
}
