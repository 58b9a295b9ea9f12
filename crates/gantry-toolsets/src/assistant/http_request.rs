//! `http_request` sends one request through the guarded client and returns the response as text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_apis::Profile;
use gantry_net::{HeaderName, MAX_REDIRECTS, NetError, Redirects, Request, check_address, header};
use gantry_protocol::AskedAction;
use gantry_tool::{Label, Masker, Message, Text, Tool, ToolError, Toolset, Touch, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use self::coverage::{Counted, Followed, covering_profile};
use self::credentials::Credentials;
use self::plan::{Content, Plan};
use crate::asked;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::web::{crossing_of_url, note_closed_network};
use crate::{Ctx, Machine};

mod answer;
mod api_like;
mod coverage;
mod credentials;
mod form;
mod oauth2;
mod plan;
mod sent_credentials;
mod spelling;

pub use credentials::missing_secrets;
pub use oauth2::TokenCache;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest file that can be sent.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Send an HTTP request. Returns the status line, the headers and the body; JSON is indented, a
/// long body is truncated and kept whole for `result_read`. Give at most one of `body`, `json`,
/// `form` and `file`, and none with GET or HEAD. Write credentials as `secret:NAME`; they go only
/// to the hosts they were stored for. A request that an API profile covers gets the profile's
/// credentials automatically (`api_setup` lists profiles). Redirects are followed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Address, http:// or https://.
    url: String,
    /// GET (the default), POST, PUT, PATCH, DELETE or HEAD.
    method: Option<String>,
    /// Headers by name. A value may contain `secret:NAME`, such as `Bearer secret:GITHUB`.
    headers: Option<BTreeMap<String, String>>,
    /// A text body, sent as it is.
    body: Option<String>,
    /// A JSON body. A string in it that is exactly `secret:NAME` is replaced by that secret.
    #[serde(default, deserialize_with = "given")]
    json: Option<Value>,
    /// Form fields; values are strings (may contain `secret:NAME`), numbers, true, false, or lists
    /// of those.
    form: Option<Map<String, Value>>,
    /// A workspace file whose bytes are the body, at most 32 MiB.
    file: Option<String>,
    /// Milliseconds for the whole exchange, 1 to 600000 (default 30000).
    timeout_ms: Option<u64>,
}

/// Keeps an explicit `null`, which is a JSON body, apart from a missing field.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
struct FileOnly {
    file: Option<String>,
}

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    url: String,
    method: Option<String>,
    body: Option<String>,
    #[serde(default, deserialize_with = "given")]
    json: Option<Value>,
    form: Option<Map<String, Value>>,
    file: Option<String>,
}

impl Asked {
    fn described(self) -> Option<AskedAction> {
        let Asked { url, method, body, json, form, file } = self;
        let json = json.map(|json| json.to_string());
        let form = form.map(|form| Value::Object(form).to_string());
        let sent = body.or(json).or(form).or(file.map(|file| format!("the file {file}")));
        asked::web_request(method.as_deref().unwrap_or("GET"), &url, sent)
    }
}

pub(super) const NAME: &str = "http_request";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new(NAME, Toolset::Assistant, machine, run)
        .open_world()
        .effects(&[])
        .labels(&[Label::Untrusted])
        .crosses(crossing_of_url(machine))
        .asks_as(|_, input: Asked| std::future::ready(input.described()))
        .touches(move |call, input: FileOnly| {
            input.file.iter().map(|file| Touch::read(own.touched_contained(call, file))).collect()
        })
        .offered_to_agents()
        .collects()
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

/// A checked request, ready to send.
struct Prepared {
    plan: Plan,
    credentials: Credentials,
    profile: Option<Arc<Profile>>,
    counted: Option<Counted>,
    file: Option<Vec<u8>>,
}

/// Validates, finds the profile, fills in secrets, reads the file and counts the request. On any
/// error nothing is sent.
fn prepare(ctx: &Ctx, input: Input) -> Result<Prepared, ToolError> {
    ctx.state.settings().web.knows_its_secrets()?;
    let (planned, mut problems) = plan::plan(input);
    let profile = match &planned.url {
        Some(url) => covering_profile(ctx, url, &planned, &mut problems)?,
        None => None,
    };
    let file = match &planned.content {
        Content::File(path) => read_file(ctx, path, &mut problems)?,
        _ => None,
    };
    let credentials = credentials::resolve(ctx, &planned, profile.as_deref(), &mut problems);
    let (Some(plan), Some(credentials), true) = (planned.complete(), credentials, problems.is_empty()) else {
        return Err(problems_error(&problems));
    };
    let counted = match &profile {
        None => None,
        Some(profile) => Some(coverage::count(ctx, profile)?.map_err(|full| {
            ToolError::failed(format!("{}; nothing was sent", full.text)).with_hint(full.hint)
        })?),
    };
    Ok(Prepared { plan, credentials, profile, counted, file })
}

/// Reads the file to send. A file that cannot be read is one more violation; a path that policy
/// closes is a denial.
fn read_file(ctx: &Ctx, path: &str, problems: &mut Vec<Violation>) -> Result<Option<Vec<u8>>, ToolError> {
    let file = ctx.state.contained(&ctx.call)?.open(path).and_then(|file| file.read_all(MAX_FILE_BYTES));
    match file.map_err(file_error) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ToolError::Input(message) | ToolError::Failed(message)) => {
            problems.push(Violation { path: "file".into(), message: message.text });
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

async fn exchange(
    ctx: &Ctx,
    prepared: Prepared,
    deadline: tokio::time::Instant,
) -> Result<String, ToolError> {
    let Prepared { plan, credentials, profile, mut counted, file } = prepared;
    let Credentials { mut secret_headers, mut used, url, parameter, body, token, in_body } = credentials;
    if let Some(wanted) = &token {
        match oauth2::token(ctx, wanted, deadline, &mut used).await {
            Ok(fetched) => secret_headers.insert(header::AUTHORIZATION, fetched),
            Err(err) => {
                refund(ctx, counted).await?;
                return Err(err);
            }
        };
    }
    let method = plan.method.clone();
    let sent_credentials = !used.is_empty();
    let mut request = Request {
        method: plan.method,
        url,
        headers: plan.headers,
        secret_headers,
        body: file.unwrap_or(body).into(),
        policy: ctx.state.reachable(&ctx.call),
        // `next_hop` checks each redirect, because it may lead into or out of a profile.
        redirects: Redirects::Stop,
        deadline,
    };
    let (mut hops, mut current) = (0, profile.clone());
    let (response, not_followed) = loop {
        let response = match ctx.state.settings().web.client.send(request.clone()).await {
            Ok(response) => response,
            Err(err) => {
                if was_not_sent(&err) {
                    refund(ctx, counted).await?;
                }
                return Err(used.masked_error(send_error(err, hops)));
            }
        };
        let redirected = request.redirected(response.status, &response.headers);
        match next_hop(ctx, redirected, hops, in_body, current.clone()).await? {
            Next::Stay(why) => break (response, why),
            Next::Go(next) => {
                // Uses the profile as it was when the request began: its current version may cover
                // other URLs.
                let stays = next.1.is_some() && profile.as_ref().is_some_and(|own| own.covers(&next.0.url));
                (request, current, counted) = *next;
                if let Some(parameter) = parameter.as_ref().filter(|_| stays) {
                    parameter.add_again(&mut request.url);
                }
            }
        }
        hops += 1;
    };
    note_closed_network(&ctx.call, &response);
    if sent_credentials && let Some(host) = response.url.host_str() {
        ctx.call.findings.add_private_from(host);
    }
    if let (401, Some(wanted)) = (response.status.as_u16(), &token) {
        ctx.state.settings().web.tokens.forget(wanted);
    }
    let response = gantry_net::Response { hops, ..response };
    answer::show(ctx, &method, response, not_followed, used, profile.as_deref()).await
}

/// The step after a response.
enum Next {
    /// The response is the last one, with the reason if a redirect was not followed.
    Stay(Option<String>),
    Go(Box<(Request, Option<Arc<Profile>>, Option<Counted>)>),
}

/// Checks a redirect like a first request: its profile, the rate limits, and whether credentials go
/// along.
async fn next_hop(
    ctx: &Ctx,
    redirected: Result<Option<Request>, NetError>,
    hops: usize,
    in_body: bool,
    profile: Option<Arc<Profile>>,
) -> Result<Next, ToolError> {
    let stay = |why: &str| Ok(Next::Stay(Some(why.to_owned())));
    let mut next = match redirected {
        Ok(None) => return Ok(Next::Stay(None)),
        Ok(Some(next)) => next,
        Err(NetError::Redirect { reason, .. }) => return stay(&reason),
        Err(err) => return stay(&err.to_string()),
    };
    if in_body {
        // Some redirects send the body again. A body that contains a secret is never sent to
        // another address.
        return stay("the request's body contains a secret");
    }
    if hops == MAX_REDIRECTS {
        return stay("too many redirects");
    }
    if let Err(err) = check_address(&next.url) {
        return stay(&err.to_string());
    }
    blocking(ctx, move |ctx, _| {
        Ok(match coverage::follows(ctx, profile.as_deref(), &next.url)? {
            Followed::No(why) => Next::Stay(Some(why)),
            Followed::Outside => {
                if profile.is_some() {
                    next.secret_headers.clear();
                }
                Next::Go(Box::new((next, None, None)))
            }
            Followed::Within(profile) => match coverage::count(ctx, &profile)? {
                Ok(counted) => Next::Go(Box::new((next, Some(profile), Some(counted)))),
                Err(full) => Next::Stay(Some(format!("{}; {}", full.text, full.hint))),
            },
        })
    })
    .await
}

async fn refund(ctx: &Ctx, counted: Option<Counted>) -> Result<(), ToolError> {
    match counted {
        Some(counted) => blocking(ctx, move |ctx, _| counted.refund(ctx)).await,
        None => Ok(()),
    }
}

/// Whether the request failed before anything was sent.
fn was_not_sent(err: &NetError) -> bool {
    matches!(
        err,
        NetError::BadUrl { .. }
            | NetError::NotAllowed { .. }
            | NetError::ForbiddenAddress { .. }
            | NetError::ForbiddenName { .. }
            | NetError::BadHeader { .. }
            | NetError::Name { .. }
            | NetError::Connect { .. }
    )
}

/// Converts a failure before the response, and states whether the request was sent: repeating a
/// POST may be harmful.
fn send_error(err: NetError, hops: usize) -> ToolError {
    let sent = match (was_not_sent(&err), hops) {
        (true, 0) => return net_error(err),
        (true, _) => {
            let redirects = if hops == 1 { "redirect" } else { "redirects" };
            format!("; it failed after {hops} {redirects}, so the request itself was sent and answered")
        }
        (false, _) => "; the server may have processed the request".to_owned(),
    };
    let with_state = |message: Message| Message { text: format!("{}{sent}", message.text), ..message };
    match net_error(err) {
        ToolError::Input(message) => ToolError::Input(with_state(message)),
        ToolError::Failed(message) => ToolError::Failed(with_state(message)),
        ToolError::Denied(message) => ToolError::Denied(with_state(message)),
        other => other,
    }
}

/// Lists every problem in one error.
fn problems_error(problems: &[Violation]) -> ToolError {
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n- {problem}")).collect();
    ToolError::input(format!("nothing was sent:{}", lines.concat()))
}

/// Converts an error of the guarded client.
fn net_error(err: NetError) -> ToolError {
    let text = err.to_string();
    match err {
        NetError::BadUrl { .. } | NetError::BadHeader { .. } => ToolError::input(text),
        NetError::TimedOut { .. } => {
            let hint = Some("timeout_ms can be up to 600000".to_owned());
            ToolError::Failed(Message { hint, ..Message::new(text) })
        }
        other => crate::web::net_error(&other),
    }
}

/// Headers that hold a credential, in requests and in responses.
fn is_credential_name(name: &HeaderName) -> bool {
    Masker::is_secret_name(name.as_str())
}

#[cfg(test)]
mod tests;
