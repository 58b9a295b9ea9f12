//! Replaces secret names by their values just before sending: only for the hosts of a secret, and
//! only over TLS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_apis::{Auth, Profile};
use gantry_net::{HeaderMap, HeaderName, HeaderValue, HostPattern, Url, header};
use gantry_store::{Secret, references};
use gantry_tool::{Violation, nearest};
use serde_json::Value;

use super::form;
use super::oauth2::WantedToken;
use super::plan::{Content, Planned, holds_credential};
use super::sent_credentials::SentCredentials;
use crate::{Ctx, Web};

/// The credentials of a request. They are sent and never shown.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) secret_headers: HeaderMap,
    /// The URL, with the profile's query parameter if it has one.
    pub(super) url: Url,
    /// That parameter, for redirects that the profile covers.
    pub(super) parameter: Option<Parameter>,
    pub(super) body: Vec<u8>,
    /// Whether the body contains a secret.
    pub(super) in_body: bool,
    /// An access token to fetch first.
    pub(super) token: Option<WantedToken>,
    pub(super) used: SentCredentials,
}

/// A credential in the query: its name and value.
#[derive(Clone)]
pub(super) struct Parameter(String, String);

impl Parameter {
    fn add_to(&self, url: &mut Url) {
        url.query_pairs_mut().append_pair(&self.0, &self.1);
    }

    /// Adds the parameter to the target of a redirect, unless it has the parameter already.
    pub(super) fn add_again(&self, url: &mut Url) {
        if !url.query_pairs().any(|(name, _)| name == self.0.as_str()) {
            self.add_to(url);
        }
    }
}

impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parameter({})", self.0)
    }
}

/// Returns the credentials of a request, or `None` if a problem prevents it.
pub(super) fn resolve(
    ctx: &Ctx,
    plan: &Planned,
    profile: Option<&Profile>,
    problems: &mut Vec<Violation>,
) -> Option<Credentials> {
    let mut url = plan.url.clone()?;
    let settings = ctx.state.settings();
    let mut resolver = Resolver {
        web: &settings.web,
        stored: None,
        used: SentCredentials::default(),
        parameter: None,
        problems,
    };
    let mut secret_headers = HeaderMap::new();
    for (name, value) in plan.headers.iter().filter(|(name, value)| holds_credential(name, value)) {
        let place = plan.place(name);
        if references(value).next().is_none() {
            resolver.used.add_written_out(value);
        }
        let value = resolver.fill(&place, value, &url);
        resolver.header(&place, &mut secret_headers, name.clone(), &value);
    }
    let (body, in_body) = resolver.body(&plan.content, &url);
    let token = match profile {
        None => None,
        Some(profile) => resolver.profile(plan, profile, &mut secret_headers, &mut url),
    };
    let Resolver { used, parameter, .. } = resolver;
    Some(Credentials { secret_headers, url, parameter, body, in_body, token, used })
}

/// Lists the secrets that must be stored before a profile's requests can be sent.
pub fn missing_secrets(web: &Web, profile: &Profile) -> Vec<String> {
    let mut problems = Vec::new();
    let mut resolver = Resolver {
        web,
        stored: None,
        used: SentCredentials::default(),
        parameter: None,
        problems: &mut problems,
    };
    let plan = Planned {
        method: None,
        url: None,
        headers: Vec::new(),
        written: Vec::new(),
        content: Content::None,
        timeout: Duration::ZERO,
    };
    resolver.profile(&plan, profile, &mut HeaderMap::new(), &mut profile.base_url.clone());
    problems.into_iter().map(|problem| problem.message).collect()
}

struct Resolver<'a> {
    web: &'a Web,
    /// Loaded when the first name is resolved.
    stored: Option<Arc<BTreeMap<String, Secret>>>,
    used: SentCredentials,
    /// The query parameter of the profile.
    parameter: Option<Parameter>,
    problems: &'a mut Vec<Violation>,
}

impl Resolver<'_> {
    /// Adds the profile's credentials to a request.
    fn profile(
        &mut self,
        plan: &Planned,
        profile: &Profile,
        headers: &mut HeaderMap,
        url: &mut Url,
    ) -> Option<WantedToken> {
        let place = format!("the auth of API profile \"{}\"", profile.id);
        let own = match &profile.auth {
            Auth::None | Auth::Query { .. } => None,
            Auth::Header { name, .. } => HeaderName::from_bytes(name.as_bytes()).ok(),
            Auth::Basic { .. } | Auth::Bearer { .. } | Auth::OAuth2 { .. } => Some(header::AUTHORIZATION),
        };
        if let Some(own) = own.as_ref().filter(|own| plan.headers.iter().any(|(name, _)| name == *own)) {
            let message = format!("the API profile \"{}\" adds this header; leave it out", profile.id);
            self.problem(&plan.place(own), message);
            return None;
        }
        let target = url.clone();
        match &profile.auth {
            Auth::None => {}
            Auth::Basic { username, password } => {
                let username = self.fill(&place, username, &target);
                let password = self.fill(&place, password, &target);
                self.header(&place, headers, header::AUTHORIZATION, &format!("Basic {username}:{password}"));
            }
            Auth::Bearer { token } => {
                let token = self.fill(&place, token, &target);
                self.header(&place, headers, header::AUTHORIZATION, &format!("Bearer {token}"));
            }
            Auth::Header { value, .. } => {
                let value = self.fill(&place, value, &target);
                if let Some(name) = own {
                    self.header(&place, headers, name, &value);
                }
            }
            Auth::Query { name, value } => {
                if target.query_pairs().any(|(known, _)| known == name.as_str()) {
                    let message = format!(
                        "the API profile \"{}\" adds {name:?} to the query; leave it out",
                        profile.id
                    );
                    self.problem("url", message);
                }
                let value = self.fill(&place, value, &target);
                let parameter = Parameter(name.clone(), value);
                parameter.add_to(url);
                self.parameter = Some(parameter);
            }
            Auth::OAuth2 { token_url, client_id, client_secret, scope, style } => {
                // The access token goes to the API, so the client secret must be stored for that
                // host, too.
                self.fill(&place, client_secret, &target);
                return Some(WantedToken {
                    profile: profile.id.clone(),
                    client_id: self.fill(&place, client_id, token_url),
                    client_secret: self.fill(&place, client_secret, token_url),
                    token_url: token_url.clone(),
                    scope: scope.clone(),
                    in_body: *style == gantry_apis::ClientStyle::Body,
                });
            }
        }
        None
    }

    fn body(&mut self, content: &Content, url: &Url) -> (Vec<u8>, bool) {
        match content {
            Content::None | Content::File(_) => (Vec::new(), false),
            Content::Text(text) => (text.clone().into_bytes(), false),
            Content::Json(value) => {
                let mut value = value.clone();
                let secret = self.fill_json("json", &mut value, url);
                (value.to_string().into_bytes(), secret)
            }
            Content::Form(fields) => {
                let secret = fields.iter().any(|(_, value)| references(value).next().is_some());
                let filled: Vec<(&str, String)> = fields
                    .iter()
                    .map(|(name, value)| (name.as_str(), self.fill(&format!("form.{name}"), value, url)))
                    .collect();
                (form::encoded(&filled), secret)
            }
        }
    }

    /// Replaces strings that are exactly a name, and leaves text that mentions one. Returns true if
    /// it replaced any.
    fn fill_json(&mut self, place: &str, value: &mut Value, url: &Url) -> bool {
        match value {
            Value::String(text) => {
                let whole = references(text).next().is_some_and(|found| found.range == (0..text.len()));
                if whole {
                    *text = self.fill(place, text, url);
                }
                whole
            }
            Value::Array(items) => {
                let held: Vec<bool> = items.iter_mut().map(|item| self.fill_json(place, item, url)).collect();
                held.contains(&true)
            }
            Value::Object(object) => {
                let held: Vec<bool> = object
                    .iter_mut()
                    .map(|(name, item)| self.fill_json(&format!("{place}.{name}"), item, url))
                    .collect();
                held.contains(&true)
            }
            _ => false,
        }
    }

    /// Returns a text with its secret names replaced, for a request to `target`.
    fn fill(&mut self, place: &str, text: &str, target: &Url) -> String {
        let (mut filled, mut from) = (String::new(), 0);
        for found in references(text) {
            filled.push_str(&text[from..found.range.start]);
            match self.secret(found.name, target) {
                Ok(value) => {
                    self.used.add(&value);
                    filled.push_str(&value);
                }
                Err(message) => self.problem(place, message),
            }
            from = found.range.end;
        }
        filled.push_str(&text[from..]);
        filled
    }

    fn secret(&mut self, name: &str, target: &Url) -> Result<String, String> {
        let Some(secrets) = &self.web.secrets else { return Err("this process has no secret store".into()) };
        let stored = match &self.stored {
            Some(stored) => stored.clone(),
            None => secrets.all().map_err(|err| err.to_string())?,
        };
        self.stored = Some(stored.clone());
        let host = target.host_str().unwrap_or_default();
        let Some(secret) = stored.get(name) else {
            let near = nearest(name, stored.keys().map(String::as_str));
            let near = near.first().map(|near| format!("; did you mean secret:{near}?")).unwrap_or_default();
            let shown: String = name.chars().take(64).collect();
            return Err(format!(
                "unknown secret {shown}{near}; the operator stores it with `gantry secrets set {shown} --host {host}`"
            ));
        };
        let patterns = secret.hosts.iter().filter_map(|host| HostPattern::parse(host).ok());
        if !patterns.into_iter().any(|pattern| pattern.matches(host)) {
            return Err(format!("secret:{name} is stored for {}, not for {host}", secret.hosts.join(", ")));
        }
        if target.scheme() != "https" && !self.web.takes_plain(target) {
            return Err(format!("secret:{name} is sent over https only, and the URL is http"));
        }
        Ok(secret.expose().to_owned())
    }

    /// Adds a header. Encodes the user and password of `Basic` authentication.
    fn header(&mut self, place: &str, headers: &mut HeaderMap, name: HeaderName, value: &str) {
        let value = match value.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") && rest.contains(':') => {
                let encoded = STANDARD.encode(rest.trim());
                self.used.add(&encoded);
                format!("{scheme} {encoded}")
            }
            _ => value.to_owned(),
        };
        match HeaderValue::from_bytes(value.as_bytes()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                headers.append(name, value);
            }
            Err(_) => {
                self.problem(place, "the secret contains characters that are invalid in a header".into())
            }
        }
    }

    fn problem(&mut self, place: &str, message: String) {
        let problem = Violation { path: place.to_owned(), message };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

impl Web {
    /// Whether a credential may be sent there without TLS: to this machine, or where the operator
    /// allows it.
    pub(super) fn takes_plain(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        loopback || host == "localhost" || self.plain_hosts.iter().any(|pattern| pattern.matches(host))
    }
}
