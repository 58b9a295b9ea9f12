//! Validates the input of a request and reports every problem at once.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_net::{HeaderMap, HeaderName, HeaderValue, Method, NetError, Url, check_address, is_clients_own};
use gantry_store::references;
use gantry_tool::{Violation, nearest};
use serde_json::{Map, Value};

use super::{DEFAULT_TIMEOUT, Input, MAX_TIMEOUT, is_credential_name};

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
const MAX_URL_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// The parts of the input that are valid; `None` where a problem was reported.
pub(super) struct Planned {
    pub(super) method: Option<Method>,
    pub(super) url: Option<Url>,
    /// Headers as given; values may contain secret names.
    pub(super) headers: Vec<(HeaderName, String)>,
    /// The names of `headers` as the caller wrote them.
    pub(super) written: Vec<String>,
    pub(super) content: Content,
    pub(super) timeout: Duration,
}

/// A valid request without its credentials.
pub(super) struct Plan {
    pub(super) method: Method,
    /// Headers without credentials.
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    None,
    Text(String),
    Json(Value),
    Form(Vec<(String, String)>),
    File(String),
}

impl Content {
    fn media_type(&self) -> Option<&'static str> {
        match self {
            Content::None => None,
            Content::Text(_) => Some("text/plain; charset=utf-8"),
            Content::Json(_) => Some("application/json"),
            Content::Form(_) => Some("application/x-www-form-urlencoded"),
            Content::File(_) => Some("application/octet-stream"),
        }
    }
}

impl Planned {
    /// Returns the field of a header for error messages, as the caller wrote it.
    pub(super) fn place(&self, header: &HeaderName) -> String {
        let at = self.headers.iter().position(|(name, _)| name == header);
        let written = at.and_then(|at| self.written.get(at)).map_or(header.as_str(), String::as_str);
        format!("headers.{written}")
    }

    /// Returns the plan if every part is valid. Headers that contain a credential are left out.
    pub(super) fn complete(self) -> Option<Plan> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            if !holds_credential(name, value) {
                headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
            }
        }
        let content_type = self.content.media_type().filter(|_| !headers.contains_key("content-type"));
        if let Some(content_type) = content_type {
            headers.insert("content-type", HeaderValue::from_static(content_type));
        }
        if !headers.contains_key("accept") {
            headers.insert("accept", HeaderValue::from_static("*/*"));
        }
        self.url.is_some().then_some(())?;
        Some(Plan { method: self.method?, headers, timeout: self.timeout })
    }
}

/// Whether a header goes to the origin only and is never shown.
pub(super) fn holds_credential(name: &HeaderName, value: &str) -> bool {
    references(value).next().is_some() || is_credential_name(name)
}

pub(super) fn plan(input: Input) -> (Planned, Vec<Violation>) {
    let mut problems = Problems(Vec::new());
    let method = check_method(&mut problems, input.method.as_deref());
    let url = check_url(&mut problems, &input.url);
    let (headers, written) = check_headers(&mut problems, input.headers.unwrap_or_default());
    let mut contents = Vec::new();
    contents.extend(input.body.map(|text| ("body", Content::Text(text))));
    contents.extend(input.json.map(|value| ("json", Content::Json(value))));
    contents.extend(input.form.map(|form| ("form", Content::Form(check_form(&mut problems, form)))));
    contents.extend(input.file.map(|path| ("file", Content::File(path))));
    let names: Vec<&str> = contents.iter().map(|(name, _)| *name).collect();
    if names.len() > 1 {
        problems.add(&names.join(", "), "at most one of body, json, form and file can be sent");
    }
    if let (Some(first), Some(method)) = (names.first(), &method)
        && matches!(*method, Method::GET | Method::HEAD)
    {
        problems.add(first, &format!("{method} has no body; use POST, PUT or PATCH, or the URL's query"));
    }
    let most = MAX_TIMEOUT.as_millis();
    let timeout = match input.timeout_ms {
        None => DEFAULT_TIMEOUT,
        Some(ms) if ms >= 1 && u128::from(ms) <= most => Duration::from_millis(ms),
        Some(_) => {
            problems.add("timeout_ms", &format!("must be from 1 to {most}"));
            DEFAULT_TIMEOUT
        }
    };
    let content = contents.into_iter().next().map_or(Content::None, |(_, content)| content);
    (Planned { method, url, headers, written, content, timeout }, problems.0)
}

struct Problems(Vec<Violation>);

impl Problems {
    fn add(&mut self, path: &str, message: &str) {
        self.0.push(Violation { path: path.to_owned(), message: message.to_owned() });
    }
}

fn check_method(problems: &mut Problems, method: Option<&str>) -> Option<Method> {
    let given = method.unwrap_or("GET").to_ascii_uppercase();
    if METHODS.contains(&given.as_str()) {
        return Method::from_bytes(given.as_bytes()).ok();
    }
    let shown: String = given.chars().take(40).collect();
    let near =
        nearest(&shown, METHODS).first().map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    problems.add("method", &format!("{shown:?} is not one of {}{near}", METHODS.join(", ")));
    None
}

fn check_url(problems: &mut Problems, text: &str) -> Option<Url> {
    if text.len() > MAX_URL_BYTES {
        problems.add("url", "must be at most 16 KiB long");
        return None;
    }
    if text.chars().any(char::is_control) {
        problems.add("url", "must not contain control characters");
        return None;
    }
    let url = match Url::parse(text.trim()) {
        Ok(url) => url,
        Err(err) => {
            problems
                .add("url", &format!("not a URL ({err}); write it whole, such as https://example.com/path"));
            return None;
        }
    };
    let before = problems.0.len();
    if !matches!(url.scheme(), "http" | "https") {
        let scheme: String = url.scheme().chars().take(40).collect();
        problems.add("url", &format!("{scheme}: is not supported; use http or https"));
    } else if url.host_str().is_none_or(str::is_empty) {
        problems.add("url", "must have a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        problems.add(
            "url",
            "must not contain a user name or password; send a header, such as Authorization: Basic secret:NAME",
        );
    }
    if references(text).next().is_some() {
        problems.add(
            "url",
            "must not contain secret:NAME; an API profile with auth type query adds it to the query",
        );
    }
    if problems.0.len() == before
        && let Err(NetError::BadUrl { reason, .. }) = check_address(&url)
    {
        problems.add("url", &format!("cannot be reached: {reason}"));
    }
    (problems.0.len() == before).then_some(url)
}

/// Returns names and values, and the names as they were written.
fn check_headers(
    problems: &mut Problems,
    given: BTreeMap<String, String>,
) -> (Vec<(HeaderName, String)>, Vec<String>) {
    let (mut headers, mut written) = (Vec::<(HeaderName, String)>::new(), Vec::new());
    if given.len() > MAX_HEADERS {
        problems.add("headers", "must be at most 100");
        return (headers, written);
    }
    for (name, value) in given {
        let shown: String = name.chars().take(60).collect::<String>().escape_debug().to_string();
        let path = format!("headers.{shown}");
        if value.contains(['\r', '\n', '\0']) {
            problems.add(&path, "must not contain a line break or NUL, which would start another header");
            continue;
        }
        let lowered = name.to_ascii_lowercase();
        if is_clients_own(&lowered) {
            problems.add(&path, "is set by the client from the URL and the body; leave it out");
            continue;
        }
        let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
            problems.add(&path, "is not a header name; use letters, digits and -");
            continue;
        };
        if value.len() > MAX_HEADER_BYTES || HeaderValue::from_bytes(value.as_bytes()).is_err() {
            problems.add(&path, "must have at most 16 KiB and no control characters");
            continue;
        }
        if headers.iter().any(|(known, _)| *known == parsed) {
            problems.add(&path, "is given twice");
            continue;
        }
        headers.push((parsed, value));
        written.push(name);
    }
    (headers, written)
}

fn check_form(problems: &mut Problems, form: Map<String, Value>) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, value) in form {
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            match value {
                Value::String(text) => fields.push((name.clone(), text)),
                Value::Number(_) | Value::Bool(_) => fields.push((name.clone(), value.to_string())),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    let shown: String = name.chars().take(60).collect();
                    problems.add(
                        &format!("form.{shown}"),
                        "must be a string, a number, true, false, or a list of those",
                    );
                }
            }
        }
    }
    fields
}
