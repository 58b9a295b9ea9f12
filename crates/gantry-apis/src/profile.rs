//! An API profile: what an agent has to know to use one API, and what is enforced when it does.
//!
//! [`ProfileDraft`] is a profile as somebody wrote it. [`Profile`] is the checked form.

use gantry_tool::{Violation, nearest, parse_checked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::normalized_url::{NormalizedUrl, without_dot};

mod auth;

use auth::check_auth;
pub use auth::{Auth, AuthDraft, ClientStyle};

const MAX_ID_BYTES: usize = 64;
const MAX_TEXT_CHARS: usize = 4_000;
const MAX_ITEMS: usize = 500;
/// The largest limit of a window, and so the largest number of times that are kept.
const MAX_REQUESTS: u32 = 1_000_000;
/// The fields of a draft.
const FIELDS: [&str; 10] = [
    "id",
    "name",
    "base_url",
    "description",
    "auth",
    "rate_limit",
    "endpoints",
    "guidelines",
    "avoid",
    "notes",
];
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

/// An API profile. Each file in `apis` holds one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileDraft {
    /// Lower-case letters, digits, `-` and `_`, at most 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What people call the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The base of all paths of the API, such as `https://api.example.com/v1`. Requests below it
    /// use this profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// What the API is for, in a sentence or two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How requests authenticate; attached to every request below `base_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthDraft>,
    /// How often the API may be called; enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// The important requests; at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<Endpoint>>,
    /// How to use the API well; at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guidelines: Option<Vec<String>>,
    /// Common mistakes; at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoid: Option<Vec<String>>,
    /// Anything else worth knowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<Vec<String>>,
    /// Who made it, unless it is the operator's. Gantry sets this field, so the schema does not
    /// list it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub made_by: Option<String>,
}

/// At most this many requests in each window. A window that is left out is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_hour: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_day: Option<u32>,
}

impl RateLimit {
    /// Returns the name, the length in milliseconds and the limit of each limited window.
    pub fn windows(&self) -> impl Iterator<Item = (&'static str, i64, u32)> + use<> {
        [
            ("second", 1_000, self.requests_per_second),
            ("minute", 60_000, self.requests_per_minute),
            ("hour", 3_600_000, self.requests_per_hour),
            ("day", 86_400_000, self.requests_per_day),
        ]
        .into_iter()
        .filter_map(|(name, length, limit)| Some((name, length, limit?)))
    }

    /// Returns the windows in which this limit allows more than `other`.
    pub fn looser_than(&self, other: &RateLimit) -> Vec<&'static str> {
        let own: Vec<(&str, u32)> = self.windows().map(|(name, _, limit)| (name, limit)).collect();
        let kept =
            |name: &str, most: u32| own.iter().any(|(window, limit)| *window == name && *limit <= most);
        other.windows().filter(|(name, _, most)| !kept(name, *most)).map(|(name, ..)| name).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Required: GET, POST, PUT, PATCH, DELETE or HEAD.
    #[serde(default)]
    pub method: String,
    /// Required: relative to `base_url`, such as `/users/{id}`.
    #[serde(default)]
    pub path: String,
    /// Required: what it does.
    #[serde(default)]
    pub description: String,
}

/// A checked profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub id: String,
    pub name: String,
    pub base_url: Url,
    pub description: String,
    pub auth: Auth,
    pub rate_limit: RateLimit,
    /// The profile as it was written, for people and models to read.
    pub draft: ProfileDraft,
}

impl ProfileDraft {
    /// Returns the fields that could be read and the problems of those that could not. A misspelt
    /// field does not hide problems in other fields.
    pub fn read(value: Value) -> (ProfileDraft, Vec<Violation>) {
        let mut problems = Vec::new();
        let mut value = value;
        let made_by = match value.as_object_mut().and_then(|object| object.remove("made_by")) {
            None | Some(Value::Null) => None,
            Some(Value::String(maker)) => Some(maker),
            Some(_) => {
                problems.push(Violation { path: "made_by".into(), message: "must be a string".into() });
                None
            }
        };
        // Each round removes at least one field, so the loop ends.
        loop {
            let found = match parse_checked::<ProfileDraft>(value.clone()) {
                Ok(draft) => return (ProfileDraft { made_by, ..draft }, problems),
                Err(found) => found,
            };
            let field = |problem: &Violation| problem.path.split('.').next().unwrap_or_default().to_owned();
            let fields: Vec<String> = found.iter().map(field).collect();
            problems.extend(found);
            let known = value.as_object_mut().map(|object| {
                let before = object.len();
                object.retain(|name, _| FIELDS.contains(&name.as_str()) && !fields.contains(name));
                before > object.len()
            });
            if known != Some(true) {
                return (ProfileDraft { made_by, ..ProfileDraft::default() }, problems);
            }
        }
    }

    /// Returns the checked profile, or every problem in `value`.
    pub fn read_whole(value: Value) -> Result<Profile, Vec<Violation>> {
        if !value.is_object() {
            let message = "must be a JSON object".to_owned();
            return Err(vec![Violation { path: String::new(), message }]);
        }
        let (draft, problems) = ProfileDraft::read(value);
        draft.check_after_read(problems)
    }

    /// Checks a draft as [`ProfileDraft::check`] does, after [`ProfileDraft::read`] found
    /// `problems`.
    pub fn check_after_read(self, mut problems: Vec<Violation>) -> Result<Profile, Vec<Violation>> {
        let field = |problem: &Violation| problem.path.split('.').next().unwrap_or_default().to_owned();
        let unread: Vec<String> = problems.iter().map(field).collect();
        match self.check() {
            Ok(profile) if problems.is_empty() => Ok(profile),
            Ok(_) => Err(problems),
            Err(found) => {
                // A field that could not be read is not reported as missing, too.
                problems.extend(found.into_iter().filter(|problem| !unread.contains(&problem.path)));
                Err(problems)
            }
        }
    }

    /// Fills fields that are missing here from `other`.
    pub fn over(self, other: &ProfileDraft) -> ProfileDraft {
        let other = other.clone();
        ProfileDraft {
            id: self.id.or(other.id),
            name: self.name.or(other.name),
            base_url: self.base_url.or(other.base_url),
            description: self.description.or(other.description),
            auth: self.auth.or(other.auth),
            rate_limit: self.rate_limit.or(other.rate_limit),
            endpoints: self.endpoints.or(other.endpoints),
            guidelines: self.guidelines.or(other.guidelines),
            avoid: self.avoid.or(other.avoid),
            notes: self.notes.or(other.notes),
            made_by: self.made_by.or(other.made_by),
        }
    }

    /// Returns the checked profile, or every field that is missing or invalid.
    pub fn check(self) -> Result<Profile, Vec<Violation>> {
        let mut problems = Problems::default();
        let id = problems.text("id", self.id.as_deref(), "a short name for it");
        if !id.is_empty() && !is_id(&id) {
            problems.add(
                "id",
                "must be 1 to 64 lower-case letters, digits, - and _, and start with a letter or digit",
            );
        }
        let name = problems.text("name", self.name.as_deref(), "what people call the API");
        let description = problems.text("description", self.description.as_deref(), "what the API is for");
        let base_url = check_base_url(&mut problems, self.base_url.as_deref());
        check_endpoints(&mut problems, self.endpoints.as_deref());
        problems.list("guidelines", self.guidelines.as_deref(), "how to use the API well");
        problems.list("avoid", self.avoid.as_deref(), "the mistakes to avoid");
        if self.notes.is_some() {
            problems.items("notes", self.notes.as_deref().unwrap_or_default());
        }
        if self.made_by.is_some() {
            problems.text("made_by", self.made_by.as_deref(), "who made it; leave it out if it is yours");
        }
        let auth = check_auth(&mut problems, self.auth.as_ref());
        let rate_limit = self.rate_limit.unwrap_or_default();
        for (window, _, limit) in rate_limit.windows() {
            if limit == 0 || limit > MAX_REQUESTS {
                problems.add(&format!("rate_limit.requests_per_{window}"), "must be from 1 to 1000000");
            }
        }
        match (base_url, auth, problems.found.is_empty()) {
            (Some(base_url), Some(auth), true) => {
                Ok(Profile { id, name, base_url, description, auth, rate_limit, draft: self })
            }
            _ => Err(problems.found),
        }
    }
}

impl Profile {
    /// Whether the operator made the profile. Others may not loosen it then.
    pub fn is_operators(&self) -> bool {
        self.draft.made_by.is_none()
    }

    /// Whether `url` has the origin of `base_url` and a path at or below its path.
    pub fn covers(&self, url: &Url) -> bool {
        NormalizedUrl::of(url).is_below(&NormalizedUrl::of(&self.base_url))
    }

    /// Whether [`Profile::covers`] would hold if `url` had the other scheme, with default ports on
    /// both.
    pub fn covers_but_for_scheme(&self, url: &Url) -> bool {
        let usual = |url: &Url| url.port().is_none();
        self.base_url.scheme() != url.scheme()
            && usual(&self.base_url)
            && usual(url)
            && without_dot(&self.base_url).host_str() == without_dot(url).host_str()
            && NormalizedUrl::of(url).path_is_below(&NormalizedUrl::of(&self.base_url))
    }
}

pub(crate) fn is_id(id: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let begins = id.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins && id.len() <= MAX_ID_BYTES && id.bytes().all(allowed)
}

fn check_base_url(problems: &mut Problems, text: Option<&str>) -> Option<Url> {
    let text =
        problems.text("base_url", text, "where the API's paths begin, such as https://api.example.com/v1");
    if text.is_empty() {
        return None;
    }
    check_url(problems, "base_url", &text)
}

pub(super) fn check_url(problems: &mut Problems, path: &str, text: &str) -> Option<Url> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(err) => {
            problems.add(path, &format!("not a URL ({err}); write it as https://api.example.com/v1"));
            return None;
        }
    };
    let before = problems.found.len();
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        problems.add(path, "must start with https:// or http:// and have a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        problems.add(path, "must not contain a user name or password; put credentials into auth");
    }
    if url.query().is_some() || url.fragment().is_some() {
        problems.add(path, "must end with its path: no ? and no #");
    }
    (problems.found.len() == before).then_some(url)
}

fn check_endpoints(problems: &mut Problems, endpoints: Option<&[Endpoint]>) {
    let endpoints = endpoints.unwrap_or_default();
    if endpoints.is_empty() {
        problems.add("endpoints", "missing: at least one {method, path, description}");
    }
    if endpoints.len() > MAX_ITEMS {
        problems.add("endpoints", "must have at most 500 entries");
    }
    for (number, endpoint) in endpoints.iter().enumerate().take(MAX_ITEMS) {
        let path = |field: &str| format!("endpoints.{number}.{field}");
        if endpoint.method.is_empty() {
            problems.add(&path("method"), &format!("missing: one of {}", METHODS.join(", ")));
        } else if !METHODS.contains(&endpoint.method.as_str()) {
            problems.add(&path("method"), &format!("must be one of {}", METHODS.join(", ")));
        }
        if !endpoint.path.trim().is_empty() && !endpoint.path.starts_with('/') {
            problems.add(&path("path"), "must start with /");
        }
        problems.text(&path("path"), Some(&endpoint.path), "where it is");
        problems.text(&path("description"), Some(&endpoint.description), "what it does");
    }
}

/// Collects problems, so that all of them are reported together.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) found: Vec<Violation>,
}

impl Problems {
    pub(super) fn add(&mut self, path: &str, message: &str) {
        self.found.push(Violation { path: path.to_owned(), message: message.to_owned() });
    }

    /// Checks a required text and returns it trimmed, or empty if it is missing.
    pub(super) fn text(&mut self, path: &str, text: Option<&str>, what: &str) -> String {
        let text = text.unwrap_or_default().trim();
        if text.is_empty() {
            self.add(path, &format!("missing: {what}"));
        } else if text.chars().count() > MAX_TEXT_CHARS {
            self.add(path, "must have at most 4000 characters");
        }
        // Terminals execute control characters, and a line break would start a new entry in a list.
        let lines_are_fine = path != "id" && path != "name" && !path.ends_with(".path");
        if text.chars().any(|c| c.is_control() && !(lines_are_fine && matches!(c, '\n' | '\t'))) {
            self.add(path, "must not contain control characters");
        }
        text.to_owned()
    }

    fn list(&mut self, path: &str, items: Option<&[String]>, what: &str) {
        let items = items.unwrap_or_default();
        if items.is_empty() {
            self.add(path, &format!("missing: at least one entry that says {what}"));
        }
        self.items(path, items);
    }

    fn items(&mut self, path: &str, items: &[String]) {
        if items.len() > MAX_ITEMS {
            self.add(path, "must have at most 500 entries");
        }
        for (number, item) in items.iter().enumerate().take(MAX_ITEMS) {
            self.text(&format!("{path}.{number}"), Some(item), "an entry must not be empty");
        }
    }

    /// Reports that `word` is not one of the `known` ones.
    pub(super) fn one_of(&mut self, path: &str, word: &str, known: &[&str]) {
        let near = nearest(word, known.iter().copied());
        let hint = near.first().map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        self.add(path, &format!("must be one of {}{hint}", known.join(", ")));
    }
}

#[cfg(test)]
mod tests;
