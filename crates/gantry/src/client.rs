//! The command line as a client of a gateway: finds the gateway, connects and sends requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gantry_link::{Event, Link, LinkError, LinkOptions, Request, ServeFuture, Service, connect, upgrade};
use gantry_net::{GatewayUrl, KeyPin, KnownKeys, Trust, dial};
use gantry_protocol::{
    CallParams, CallProgress, CloseReason, ConnectParams, ConnectResult, ErrorCode, ProtocolRange, RawJson,
    Role, StreamFrame, WireError, current_platform, event, method, raw,
};
use gantry_store::GatewayLock;
use gantry_tool::{Outcome, Refusal, RefusalCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::commands::interrupted;
use crate::environment::Environment;
use crate::exit::{Refused, UsageError};
use crate::output::Output;

/// Timeout for the handshake and for requests that the gateway answers immediately.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How long an interrupted call may take to end the processes it started.
pub(crate) const CALL_OFF_GRACE: Duration = Duration::from_secs(5);

/// `Target` is where a command runs its tools.
pub(crate) enum Target {
    InProcess,
    Gateway(Address),
}

/// `Address` is a gateway with the token and the trust needed to connect.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: GatewayUrl,
    token: String,
    trust: Trust,
    /// Whether the gateway runs on this data directory. Then paths mean the same here and there.
    pub(crate) is_ours: bool,
}

impl Target {
    /// Returns the gateway that was named, else the one on this data directory, else this process.
    pub(crate) fn find(environment: &Environment, output: &Output, local: bool) -> Result<Target> {
        if local {
            return Ok(Target::InProcess);
        }
        let running = GatewayLock::running(&environment.data).filter(|running| !running.url.is_empty());
        let key = running.as_ref().and_then(|running| running.key.as_deref()).and_then(KeyPin::parse);
        let running = running.map(|running| GatewayUrl::parse(&running.url)).transpose()?;
        let url = match (&environment.gateway, &running) {
            (Some(given), _) => GatewayUrl::parse(given).map_err(|err| UsageError(err.to_string()))?,
            (None, Some(running)) => running.clone(),
            (None, None) => return Ok(Target::InProcess),
        };
        let is_ours = running.as_ref() == Some(&url);
        output.note(&format!("through the gateway {url}"));
        Ok(Target::Gateway(Address {
            token: token(environment, &url, is_ours)?,
            trust: match key.filter(|_| is_ours) {
                // The gateway wrote this file itself, so the names in its certificate do not matter.
                Some(key) => Trust::Keys { known: KnownKeys::new([key]), or: None },
                None => environment.gateway_trust(&url)?,
            },
            url,
            is_ours,
        }))
    }

    /// Finds a gateway like [`Target::find`], for commands that need one.
    pub(crate) fn gateway(environment: &Environment, output: &Output) -> Result<Address> {
        match Target::find(environment, output, false)? {
            Target::Gateway(address) => Ok(address),
            Target::InProcess => {
                let message = format!("no gateway is running on {}", environment.data.root().display());
                let refusal = Refusal::new(RefusalCode::Unavailable, message);
                Err(Refused(
                    refusal.with_hint("start one with `gantry up`, or choose one with --gateway URL"),
                )
                .into())
            }
        }
    }
}

/// Returns the token for a gateway. The operator's token is sent only to the gateway on this data directory.
fn token(environment: &Environment, url: &GatewayUrl, is_ours: bool) -> Result<String> {
    if let Some(token) = environment.token()? {
        return Ok(token);
    }
    if is_ours {
        return environment.data.operator_token().context("cannot read the operator's token");
    }
    Err(UsageError(format!("no token for {url}")).with_hint("set GANTRY_TOKEN or GANTRY_TOKEN_FILE").into())
}

/// A connection to a gateway.
pub(crate) struct Client {
    link: Link,
    pub(crate) hello: ConnectResult,
    running: tokio::task::JoinHandle<()>,
    progress: watch::Receiver<Option<CallProgress>>,
}

impl Client {
    pub(crate) async fn connect(address: &Address) -> Result<Client, Refusal> {
        let (reports, progress) = watch::channel(None);
        let (link, hello, running) = open(address, Arc::new(Listener { reports })).await?;
        Ok(Client { link, hello, running, progress })
    }

    /// Connects, sends one request and closes the connection.
    pub(crate) fn once<R: DeserializeOwned>(
        address: &Address,
        output: &Output,
        method: &str,
        params: &impl Serialize,
    ) -> Result<R> {
        runtime()?.block_on(async {
            let client = Client::connect(address).await.map_err(Refused)?;
            client.warn_of_other_version(output);
            let answer = client.request(method, params).await;
            client.close().await;
            answer
        })
    }

    pub(crate) async fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<R> {
        let answer = self.link.request_within(method, raw(params), ANSWER_LIMIT).await;
        let answer = answer.map_err(request_error)?;
        serde_json::from_str(answer.get()).context("the gateway's answer is invalid")
    }

    /// Calls a tool. A cancellation reaches the machine it runs on.
    pub(crate) async fn call(
        &self,
        params: &CallParams,
        deadline: Option<Instant>,
        cancel: &CancellationToken,
    ) -> Outcome {
        let answer =
            self.link.request_until(method::TOOL_CALL, raw(params), deadline, cancel, CALL_OFF_GRACE).await;
        outcome(&params.tool, answer)
    }

    /// Returns whether the connection is closed, or closes within this time.
    pub(crate) async fn is_lost(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.link.closed()).await.is_ok()
    }

    /// Connects, calls one tool and closes the connection. An interrupt cancels the call and ends its processes.
    pub(crate) async fn call_once(
        address: &Address,
        output: &Output,
        params: &CallParams,
        deadline: Option<Instant>,
    ) -> Outcome {
        let client = match Client::connect(address).await {
            Ok(client) => client,
            Err(refusal) => return Outcome::from_wire(&params.tool, Err(refusal.to_wire())),
        };
        client.warn_of_other_version(output);
        let cancel = CancellationToken::new();
        let outcome = {
            let mut calling = std::pin::pin!(client.call(params, deadline, &cancel));
            tokio::select! {
                outcome = &mut calling => outcome,
                () = interrupted() => {
                    cancel.cancel();
                    calling.await
                }
            }
        };
        client.close().await;
        outcome
    }

    /// Returns the progress of running calls.
    pub(crate) fn progress(&self) -> watch::Receiver<Option<CallProgress>> {
        self.progress.clone()
    }

    /// Returns when the connection is closed.
    pub(crate) async fn closed(&self) {
        self.link.closed().await;
    }

    pub(crate) async fn close(self) {
        self.link.close(CloseReason::Done);
        let _ = self.running.await;
    }

    pub(crate) fn warn_of_other_version(&self, output: &Output) {
        let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &self.hello.server.version);
        if ours != theirs {
            output.warning(&format!("the gateway has version {theirs}, this program has version {ours}"));
        }
    }
}

/// Opens a link to a gateway, on which `service` answers.
pub(crate) async fn open<V: Service>(
    address: &Address,
    service: Arc<V>,
) -> Result<(Link, ConnectResult, tokio::task::JoinHandle<()>), Refusal> {
    let unreachable = |reason: String| {
        Refusal::new(RefusalCode::Unavailable, format!("cannot reach the gateway {}: {reason}", address.url))
            .with_hint("check the URL, and start the gateway if it is not running")
    };
    let stream = dial(&address.url, &address.trust).await.map_err(|err| unreachable(err.to_string()))?;
    let upgraded = tokio::time::timeout(ANSWER_LIMIT, upgrade(stream, &address.url.socket())).await;
    let mut socket =
        upgraded.map_err(|_| unreachable("no answer".into()))?.map_err(|err| unreachable(err.to_string()))?;
    let params = ConnectParams {
        protocol: ProtocolRange::default(),
        role: Role::Client,
        id: "gantry-cli".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        platform: current_platform(),
        token: address.token.clone(),
        page_key: None,
        node: None,
    };
    let hello = connect(&mut socket, &params, ANSWER_LIMIT).await.map_err(|err| match err {
        gantry_link::HandshakeError::Refused(error) if error.code == ErrorCode::Unauthorized => {
            Refusal::from_wire(error).with_hint(
                "create a token on the gateway with `gantry tokens add NAME`, and set GANTRY_TOKEN",
            )
        }
        gantry_link::HandshakeError::Refused(error) => Refusal::from_wire(error),
        other => unreachable(other.to_string()),
    })?;
    let options = LinkOptions { protocol: hello.protocol, ..LinkOptions::default() };
    let (link, running) = Link::new(socket, service, options);
    Ok((link, hello, tokio::spawn(running)))
}

/// Converts a gateway's answer to the outcome of a call.
pub(crate) fn outcome(tool: &str, answer: Result<RawJson, LinkError>) -> Outcome {
    let answered = match answer {
        Ok(result) => serde_json::from_str(result.get()).map_err(|err| {
            WireError::new(ErrorCode::Unavailable, format!("invalid answer from the gateway: {err}"))
        }),
        Err(LinkError::Remote(error)) => Err(error),
        // The gateway did not read the whole message.
        Err(LinkError::Closed(closed)) if closed.reason == Some(CloseReason::NoRoom) => Err(WireError::new(
            ErrorCode::Unavailable,
            "the gateway has no memory for a call this large now; nothing was run, try again in a moment",
        )),
        Err(LinkError::Closed(reason)) => {
            let message =
                format!("the connection was lost during the call; its outcome is unknown: {reason}");
            Err(Refusal::lost(message).to_wire())
        }
    };
    Outcome::from_wire(tool, answered)
}

/// Converts a failed request to an error. Its exit code shows whether the caller or the gateway must fix it.
pub(crate) fn request_error(err: LinkError) -> anyhow::Error {
    let refusal = match err {
        LinkError::Remote(error) if matches!(error.code, ErrorCode::Internal | ErrorCode::Failed) => {
            return anyhow::anyhow!("the gateway failed: {}", error.message);
        }
        LinkError::Remote(error) => Refusal::from_wire(error),
        LinkError::Closed(reason) => Refusal::new(
            RefusalCode::Unavailable,
            format!("the connection to the gateway was lost: {reason}"),
        ),
    };
    Refused(refusal).into()
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")
}

/// The service of a client connection: it receives progress and answers no requests.
struct Listener {
    reports: watch::Sender<Option<CallProgress>>,
}

impl Service for Listener {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, received: Event) {
        if received.name == event::CALL_PROGRESS
            && let Some(progress) = received.parse()
        {
            self.reports.send_replace(Some(progress));
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}
