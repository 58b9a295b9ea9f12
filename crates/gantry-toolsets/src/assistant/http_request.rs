//! `http_request` sends one request through the guarded client and shows what came back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_net::{HeaderName, NetError, Redirects, Request, Url, header};
use gantry_store::{Apis, Covering, Profile};
use gantry_tool::{Label, Masker, Message, Text, Tool, ToolError, Toolset, Touch, Violation};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::credentials::Credentials;
use self::plan::{Content, Plan};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

mod answer;
mod api_like;
mod credentials;
mod form;
mod oauth2;
mod plan;
mod used;

pub use credentials::missing_secrets;
pub use oauth2::TokenCache;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// Of a file that is sent.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Send an HTTP request. Returns the status line, the headers and the body; JSON is indented, a long body is cut and the
/// whole of it kept for `result_read`. At most one of `body`, `json`, `form` and `file` is sent, and none with GET or HEAD.
/// Credentials are given by name, as `secret:NAME`, and go only to the hosts they were stored for; a request that an API
/// profile covers gets the profile's credentials by itself (`api_setup` lists profiles). Redirects are followed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Address, http:// or https://.
    url: String,
    /// GET (the default), POST, PUT, PATCH, DELETE or HEAD.
    method: Option<String>,
    /// Headers by name. A value may hold `secret:NAME`, such as `Bearer secret:GITHUB`.
    headers: Option<BTreeMap<String, String>>,
    /// A body of text, sent as it is.
    body: Option<String>,
    /// A body of JSON. A string in it that is exactly `secret:NAME` stands for that secret.
    json: Option<Value>,
    /// A form by field; values are strings (which may hold `secret:NAME`), numbers, true, false, or lists of those.
    form: Option<Map<String, Value>>,
    /// A file of the workspace whose bytes are the body, at most 32 MiB.
    file: Option<String>,
    /// Milliseconds for the whole exchange, 1 to 600000 (default 30000).
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct FileOnly {
    file: Option<String>,
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new("http_request", Toolset::Assistant, machine, run)
        .open_world()
        .labels(&[Label::Untrusted])
        .touches(move |call, input: FileOnly| {
            input.file.iter().map(|file| Touch::read(own.touched_contained(call, file))).collect()
        })
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let started = Instant::now();
    let prepared = blocking(&ctx, move |ctx, _| prepare(ctx, input)).await?;
    let deadline = started + prepared.plan.timeout;
    let deadline = ctx.call.deadline.map_or(deadline, |call| call.min(deadline)).into();
    tokio::select! {
        text = exchange(&ctx, prepared, deadline) => text.map(Text),
        () = ctx.call.cancel.cancelled() => Err(ToolError::Cancelled),
    }
}

/// A request that may be sent.
struct Prepared {
    plan: Plan,
    credentials: Credentials,
    profile: Option<Arc<Profile>>,
    file: Option<Vec<u8>>,
}

/// check → cover → fill in → read → count. Whatever is wrong, nothing has been sent.
fn prepare(ctx: &Ctx, input: Input) -> Result<Prepared, ToolError> {
    let (planned, mut problems) = plan::plan(input);
    let profile = match &planned.url {
        Some(url) => covering_profile(ctx, url, &planned, &mut problems)?,
        None => None,
    };
    let credentials = credentials::resolve(ctx, &planned, profile.as_deref(), &mut problems);
    let (Some(plan), Some(credentials), true) = (planned.complete(), credentials, problems.is_empty()) else {
        return Err(listed(&problems));
    };
    let file = match &plan.content {
        Content::File(path) => {
            let file = ctx.state.contained(&ctx.call)?.open(path).map_err(file_error)?;
            Some(file.read_all(MAX_FILE_BYTES).map_err(file_error)?)
        }
        _ => None,
    };
    if let Some((apis, profile)) = apis(ctx).zip(profile.as_deref()) {
        count(apis, profile)?;
    }
    Ok(Prepared { plan, credentials, profile, file })
}

fn apis(ctx: &Ctx) -> Option<&Apis> {
    ctx.state.web().apis.as_ref()
}

/// The profile of a request, or why there has to be one.
fn covering_profile(
    ctx: &Ctx,
    url: &Url,
    plan: &plan::Planned,
    problems: &mut Vec<Violation>,
) -> Result<Option<Arc<Profile>>, ToolError> {
    let Some(apis) = apis(ctx) else { return Ok(None) };
    let covering = apis.covering(url).map_err(|err| ToolError::failed(err.to_string()))?;
    let mut refuse = |message: String| {
        problems.push(Violation { path: "url".into(), message });
        Ok(None)
    };
    match covering {
        Covering::Profile(profile) => Ok(Some(profile)),
        Covering::Broken(broken) => {
            let listed: Vec<String> = broken.problems.iter().map(ToString::to_string).collect();
            refuse(format!(
                "the API profile \"{}\" covers it and cannot be used: {}; mend it with api_setup, or delete it",
                broken.id,
                listed.join("; ")
            ))
        }
        Covering::OtherScheme(profile) => {
            refuse(format!("the API profile \"{}\" is for {}; use that", profile.id, profile.base_url))
        }
        Covering::Nothing { profiles: 0, .. } => Ok(None),
        Covering::Nothing { broken, .. } => match api_like::why(url, plan) {
            None => Ok(None),
            Some(why) => {
                let host = url.host_str().unwrap_or_default();
                let ids: Vec<&str> = broken.iter().map(|broken| broken.id.as_str()).collect();
                let broken = match ids.as_slice() {
                    [] => String::new(),
                    ids => format!(" (profiles that cannot be used: {})", ids.join(", ")),
                };
                refuse(format!(
                    "no API profile covers it, and it looks like an API: {why}{broken}. Make one first: api_setup with \
                     action create and a profile whose base_url is https://{host}/… with auth, endpoints, guidelines \
                     and avoid; or the operator runs `gantry apis add FILE`"
                ))
            }
        },
    }
}

/// Counts the request against the limits of its profile.
fn count(apis: &Apis, profile: &Profile) -> Result<(), ToolError> {
    let now = jiff::Timestamp::now().as_millisecond();
    match apis.count_request(profile, now).map_err(|err| ToolError::failed(err.to_string()))? {
        Ok(()) => Ok(()),
        Err(full) => {
            let seconds = full.wait_ms.max(1).cast_unsigned().div_ceil(1_000);
            Err(ToolError::failed(format!(
                "the API profile \"{}\" allows {} requests a {}; nothing was sent",
                profile.id, full.limit, full.window
            ))
            .with_hint(format!("try again in {seconds} s")))
        }
    }
}

async fn exchange(
    ctx: &Ctx,
    prepared: Prepared,
    deadline: tokio::time::Instant,
) -> Result<String, ToolError> {
    let Prepared { plan, credentials, profile, file } = prepared;
    let Credentials { mut secret_headers, mut used, url, body, token, .. } = credentials;
    let fetched = match &token {
        None => None,
        Some(wanted) => Some(oauth2::token(ctx, wanted, deadline, &mut used).await?),
    };
    if let Some(fetched) = &fetched {
        secret_headers.insert(header::AUTHORIZATION, fetched.clone());
    }
    // A body is sent again when a redirect says so, wherever that leads: one with a secret in it goes nowhere else.
    let redirects = if credentials.in_body { Redirects::Stop } else { Redirects::Follow };
    let method = plan.method.clone();
    let request = Request {
        method: plan.method,
        url,
        headers: plan.headers,
        secret_headers,
        body: file.unwrap_or(body).into(),
        policy: ctx.state.reachable(&ctx.call),
        redirects,
        deadline,
    };
    let response =
        ctx.state.web().client.send(request).await.map_err(|err| used.masked_error(net_error(err)))?;
    if let (401, Some(wanted)) = (response.status.as_u16(), &token) {
        ctx.state.web().tokens.forget(wanted);
    }
    answer::show(ctx, &method, response, redirects, used, profile.as_deref()).await
}

/// Every problem at once.
fn listed(problems: &[Violation]) -> ToolError {
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n- {problem}")).collect();
    ToolError::input(format!("nothing was sent:{}", lines.concat()))
}

/// A failure of the guarded client in a tool's words.
fn net_error(err: NetError) -> ToolError {
    let text = err.to_string();
    match err {
        NetError::NotAllowed { .. } | NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. } => {
            ToolError::denied(text)
        }
        NetError::BadUrl { .. } | NetError::BadHeader { .. } => ToolError::input(text),
        NetError::TimedOut { .. } => {
            let hint = Some("timeout_ms allows up to 600000".to_owned());
            ToolError::Failed(Message { hint, ..Message::new(text) })
        }
        _ => ToolError::failed(text),
    }
}

/// Headers that hold a credential by their name, in requests and in answers.
fn is_credential_name(name: &HeaderName) -> bool {
    Masker::is_secret_name(name.as_str())
}

#[cfg(test)]
mod tests;
