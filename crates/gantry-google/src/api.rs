//! [`Api`] sends requests to Google: it checks the granted scopes, attaches the token, pins the hosts, retries what may be
//! repeated, and turns every failure into a [`GoogleError`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_net::{
    Client, ClientOptions, HeaderMap, HeaderName, HeaderValue, HostPattern, Method, NetError, NetworkPolicy,
    Redirects, Request, Url, header,
};
use gantry_tool::Call;
use serde_json::Value;
use tokio::time::Instant;

use crate::accounts::{AccessToken, Accounts};
use crate::declare::ACTION_LIMIT;
use crate::errors::GoogleError;
use crate::sign_ins::SignIns;

/// The largest JSON answer.
const MAX_ANSWER: usize = 32 << 20;
/// How often a request is sent, at most.
const MAX_ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A longer pause that Google asks for ends the call instead.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Paths below `/gmail/v1/users/me`.
    Gmail,
    /// Paths below `/v4/spreadsheets`.
    Sheets,
    /// Paths below `/drive/v3`.
    Drive,
    /// Paths below `/upload/drive/v3`.
    DriveUpload,
    /// Paths below `/calendar/v3`.
    Calendar,
    /// Paths below `/v1/documents`.
    Docs,
}

impl Service {
    fn host(self) -> &'static str {
        match self {
            Service::Gmail => "gmail.googleapis.com",
            Service::Sheets => "sheets.googleapis.com",
            Service::Drive | Service::DriveUpload | Service::Calendar => "www.googleapis.com",
            Service::Docs => "docs.googleapis.com",
        }
    }

    fn base_path(self) -> &'static str {
        match self {
            Service::Gmail => "/gmail/v1/users/me",
            Service::Sheets => "/v4/spreadsheets",
            Service::Drive => "/drive/v3",
            Service::DriveUpload => "/upload/drive/v3",
            Service::Calendar => "/calendar/v3",
            Service::Docs => "/v1/documents",
        }
    }

    /// The tool that uses it.
    fn tool(self) -> &'static str {
        match self {
            Service::Gmail => crate::gmail::NAME,
            Service::Sheets => crate::sheets::NAME,
            Service::Drive | Service::DriveUpload => crate::drive::NAME,
            Service::Calendar => crate::calendar::NAME,
            Service::Docs => crate::docs::NAME,
        }
    }

    /// The name of the API in Google's console.
    pub(crate) fn api_name(self) -> &'static str {
        match self {
            Service::Gmail => "Gmail API",
            Service::Sheets => "Google Sheets API",
            Service::Drive | Service::DriveUpload => "Google Drive API",
            Service::Calendar => "Google Calendar API",
            Service::Docs => "Google Docs API",
        }
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Service::Gmail => "Gmail",
            Service::Sheets => "Google Sheets",
            Service::Drive | Service::DriveUpload => "Google Drive",
            Service::Calendar => "Google Calendar",
            Service::Docs => "Google Docs",
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    None,
    Json(Value),
    Raw { content_type: String, bytes: Bytes },
}

/// Whether a request may be sent again after a failure that may have happened after it took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A read, or a write that has the same effect when it is repeated.
    Safe,
    Never,
}

/// One request to a Google API.
#[derive(Debug, Clone)]
pub(crate) struct ApiCall {
    pub(crate) service: Service,
    pub(crate) method: Method,
    /// The path below the service's own, such as `/messages/18c`. Build it from checked ids or [`crate::ids::segment`].
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    /// Headers besides those of the body. Their names are in lower case.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
    /// Short names of scopes. Any one of them is enough; the first one is named when none was granted.
    pub(crate) scopes: &'static [&'static str],
    pub(crate) repeat: Repeat,
}

impl ApiCall {
    /// A read.
    pub(crate) fn get(service: Service, path: impl Into<String>, scopes: &'static [&'static str]) -> ApiCall {
        ApiCall {
            service,
            method: Method::GET,
            path: path.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Body::None,
            scopes,
            repeat: Repeat::Safe,
        }
    }

    /// A request that changes something and is not repeated, unless [`ApiCall::repeatable`] says otherwise.
    pub(crate) fn send(
        service: Service,
        method: Method,
        path: impl Into<String>,
        scopes: &'static [&'static str],
        body: Value,
    ) -> ApiCall {
        ApiCall {
            method,
            body: Body::Json(body),
            repeat: Repeat::Never,
            ..ApiCall::get(service, path, scopes)
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> ApiCall {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> ApiCall {
        self.headers.push((name, value.into()));
        self
    }

    /// Repeating the request has the same effect as sending it once.
    pub(crate) fn repeatable(mut self) -> ApiCall {
        self.repeat = Repeat::Safe;
        self
    }
}

/// A successful answer.
#[derive(Debug)]
pub(crate) struct ApiAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

/// A cheap handle to Google's APIs.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    accounts: Accounts,
    sign_ins: SignIns,
    client: Client,
    /// The only hosts that requests and redirects may reach.
    policy: NetworkPolicy,
    /// In place of Google's own hosts: one server for all services, for tests.
    root: Option<Url>,
    reachable: Reachable,
}

/// The hosts that a call may reach, by the isolation of its agents.
pub type Reachable = Arc<dyn Fn(&Call) -> NetworkPolicy + Send + Sync>;

/// The guarded client for Google. A server that the operator configured in its place may have a private address.
pub fn google_client(network: &ClientOptions, root: Option<&Url>) -> Client {
    let mut options = network.clone();
    if let Some(host) = root.and_then(Url::host_str) {
        options.private_hosts.extend(HostPattern::parse(host).ok());
        // A loopback address means another machine when it is reached through a proxy.
        options.proxy = None;
    }
    Client::new(options)
}

impl Api {
    pub(crate) fn new(sign_ins: SignIns, client: Client, root: Option<Url>, reachable: Reachable) -> Api {
        let accounts = sign_ins.accounts().clone();
        let mut hosts: Vec<HostPattern> = ["*.googleapis.com", "*.googleusercontent.com"]
            .iter()
            .filter_map(|host| HostPattern::parse(host).ok())
            .collect();
        if let Some(host) = root.as_ref().and_then(Url::host_str) {
            hosts = HostPattern::parse(host).into_iter().collect();
        }
        Api(Arc::new(Inner {
            accounts,
            sign_ins,
            client,
            policy: NetworkPolicy::AllowList(hosts),
            root,
            reachable,
        }))
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.0.accounts
    }

    pub(crate) fn sign_ins(&self) -> &SignIns {
        &self.0.sign_ins
    }

    /// Sends a request and returns its JSON answer; `null` if the answer is empty.
    pub(crate) async fn call(
        &self,
        call: &Call,
        account: Option<&str>,
        request: ApiCall,
    ) -> Result<Value, GoogleError> {
        let service = request.service;
        let answer = self.answer(call, account, request, MAX_ANSWER).await?;
        if answer.bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer.bytes)
            .map_err(|err| GoogleError::Invalid { service, text: err.to_string() })
    }

    /// Sends a request and returns the bytes of its answer, at most `limit`.
    pub(crate) async fn bytes(
        &self,
        call: &Call,
        account: Option<&str>,
        request: ApiCall,
        limit: usize,
    ) -> Result<Bytes, GoogleError> {
        Ok(self.answer(call, account, request, limit).await?.bytes)
    }

    /// Sends a request and returns status, headers and bytes of a successful answer.
    pub(crate) async fn answer(
        &self,
        call: &Call,
        account: Option<&str>,
        request: ApiCall,
        limit: usize,
    ) -> Result<ApiAnswer, GoogleError> {
        self.ensure_scope(call, account, &request).await?;
        let deadline = Instant::now() + ACTION_LIMIT;
        let deadline = call.deadline.map_or(deadline, |own| deadline.min(own.into()));
        tokio::select! {
            answer = self.attempts(call, account, &request, limit, deadline) => answer,
            () = call.cancel.cancelled() => Err(GoogleError::Cancelled),
        }
    }

    /// Asks the person of the call if the account has not granted a scope that the request needs.
    async fn ensure_scope(
        &self,
        call: &Call,
        account: Option<&str>,
        request: &ApiCall,
    ) -> Result<(), GoogleError> {
        match self.0.accounts.check_scope(account, request.scopes) {
            Err(GoogleError::MissingScope { account, needed }) => {
                let tool = request.service.tool();
                self.0.sign_ins.ask_for_scope(call, tool, &account, needed).await
            }
            checked => checked.map(drop),
        }
    }

    async fn attempts(
        &self,
        caller: &Call,
        account: Option<&str>,
        request: &ApiCall,
        limit: usize,
        deadline: Instant,
    ) -> Result<ApiAnswer, GoogleError> {
        let policy = self.0.policy.within(&(self.0.reachable)(caller));
        let mut token = self.0.accounts.token(account, request.scopes).await?;
        let mut was_renewed = false;
        let mut attempt = 1;
        loop {
            let failed = match self.attempt(&token, request, &policy, limit, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if failed.err.status() == Some(401) && !was_renewed {
                // The token may have been revoked or may have expired early.
                token = self.0.accounts.renewed(&token).await?;
                was_renewed = true;
                continue;
            }
            let pause = failed.pause.unwrap_or_else(|| jittered(FIRST_PAUSE * 2_u32.pow(attempt - 1)));
            let has_time = pause <= LONGEST_PAUSE && Instant::now() + pause < deadline;
            if !failed.may_repeat || attempt == MAX_ATTEMPTS || !has_time {
                return Err(failed.err);
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        token: &AccessToken,
        call: &ApiCall,
        policy: &NetworkPolicy,
        limit: usize,
        deadline: Instant,
    ) -> Result<ApiAnswer, FailedAttempt> {
        let service = call.service;
        let mut request = self.request(token, call, deadline).map_err(FailedAttempt::last)?;
        request.policy = policy.clone();
        let net = |err: NetError| FailedAttempt::of_net(call, &err, token);
        let response = self.0.client.send(request).await.map_err(net)?;
        let (status, headers) = (response.status, response.headers);
        let body = response.body.read(limit.max(64 * 1024)).await.map_err(net)?;
        // A resumable upload answers 308 until it is complete.
        if status.is_success() || (service == Service::DriveUpload && status.as_u16() == 308) {
            return match body.cut || body.bytes.len() > limit {
                true => Err(FailedAttempt::last(GoogleError::TooLarge { service, limit })),
                false => Ok(ApiAnswer { status: status.as_u16(), headers, bytes: body.bytes.into() }),
            };
        }
        let err = GoogleError::of_answer(service, status.as_u16(), &body.bytes);
        // A rejected request had no effect. After a failure of the server the effect is unknown.
        let may_repeat = err.is_rate_limit() || (status.is_server_error() && call.repeat == Repeat::Safe);
        let err = match status.is_server_error() && call.repeat == Repeat::Never {
            true => GoogleError::Unknown { service, text: format!("HTTP {}", status.as_u16()) },
            false => err,
        };
        Err(FailedAttempt { err, may_repeat, pause: retry_after(&headers) })
    }

    fn request(
        &self,
        token: &AccessToken,
        call: &ApiCall,
        deadline: Instant,
    ) -> Result<Request, GoogleError> {
        let service = call.service;
        let invalid = |text: &str| GoogleError::Invalid { service, text: text.to_owned() };
        let origin = format!("https://{}", service.host());
        let root = self.0.root.as_ref().map_or(origin, |root| root.origin().ascii_serialization());
        let mut url = Url::parse(&format!("{root}{}{}", service.base_path(), call.path))
            .map_err(|_| invalid("the request's address cannot be built"))?;
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = Request::get(url, deadline);
        request.method = call.method.clone();
        request.redirects = match call.method {
            Method::GET => Redirects::Follow,
            _ => Redirects::Stop,
        };
        let (content_type, body) = match &call.body {
            Body::None => (None, Bytes::new()),
            Body::Json(value) => (Some("application/json".to_owned()), value.to_string().into()),
            Body::Raw { content_type, bytes } => (Some(content_type.clone()), bytes.clone()),
        };
        if let Some(content_type) = content_type {
            let value =
                HeaderValue::try_from(content_type).map_err(|_| invalid("the content type is not valid"))?;
            request.headers.insert(header::CONTENT_TYPE, value);
        }
        for (name, value) in &call.headers {
            let value = HeaderValue::try_from(value).map_err(|_| invalid("a header is not valid"))?;
            request.headers.insert(HeaderName::from_static(name), value);
        }
        request.body = body;
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.value))
            .map_err(|_| GoogleError::Store("the access token is not valid".to_owned()))?;
        request.secret_headers.insert(header::AUTHORIZATION, bearer);
        Ok(request)
    }
}

struct FailedAttempt {
    err: GoogleError,
    may_repeat: bool,
    /// The pause that Google asked for.
    pause: Option<Duration>,
}

impl FailedAttempt {
    fn last(err: GoogleError) -> FailedAttempt {
        FailedAttempt { err, may_repeat: false, pause: None }
    }

    fn of_net(call: &ApiCall, err: &NetError, token: &AccessToken) -> FailedAttempt {
        let service = call.service;
        let text = err.to_string().replace(token.value.as_str(), "…");
        let never_left = matches!(err, NetError::Name { .. } | NetError::Connect { .. });
        let is_refused = matches!(
            err,
            NetError::BadUrl { .. }
                | NetError::NotAllowed { .. }
                | NetError::ForbiddenAddress { .. }
                | NetError::ForbiddenName { .. }
                | NetError::BadHeader { .. }
        );
        let is_safe = call.repeat == Repeat::Safe;
        let err = match never_left || is_refused || is_safe {
            true => GoogleError::Unreachable { service, text },
            false => GoogleError::Unknown { service, text },
        };
        FailedAttempt { err, may_repeat: !is_refused && (never_left || is_safe), pause: None }
    }
}

/// Up to a quarter more, so that many callers do not come back at the same time.
fn jittered(pause: Duration) -> Duration {
    let random = u32::from(uuid::Uuid::new_v4().as_bytes()[0]);
    pause + pause * random / 1024
}

/// The pause of a `Retry-After` header in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
