//! The command line as a client of a gateway: where the gateway is, and how it is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gantry_link::{Event, Link, LinkError, LinkOptions, Request, ServeFuture, Service, connect, upgrade};
use gantry_net::{GatewayUrl, Trust, dial};
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

/// For the handshake, and for what should be answered at once.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How long a call that was interrupted may take to end what it started.
pub(crate) const CALL_OFF_GRACE: Duration = Duration::from_secs(5);

/// Where a command's tools are.
pub(crate) enum Target {
    InProcess,
    Gateway(Address),
}

/// A gateway and what is needed to be let in.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: GatewayUrl,
    token: String,
    trust: Trust,
    /// It runs on this data directory: paths mean the same here and there.
    pub(crate) is_ours: bool,
}

impl Target {
    /// The gateway that was named; else the one that runs on this data directory; else this process.
    pub(crate) fn find(environment: &Environment, output: &Output, local: bool) -> Result<Target> {
        if local {
            return Ok(Target::InProcess);
        }
        let running = GatewayLock::running(&environment.data).filter(|running| !running.url.is_empty());
        let certificate = running.as_ref().and_then(|running| running.certificate.clone());
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
            trust: match certificate.filter(|_| is_ours) {
                // It is the one that wrote this down, whatever names its certificate is for.
                Some(fingerprint) => Trust::Only { fingerprint },
                None => environment.trust()?,
            },
            url,
            is_ours,
        }))
    }

    /// As [`Target::find`], for what only a gateway can do.
    pub(crate) fn gateway(environment: &Environment, output: &Output) -> Result<Address> {
        match Target::find(environment, output, false)? {
            Target::Gateway(address) => Ok(address),
            Target::InProcess => {
                let message = format!("no gateway runs on {}", environment.data.root().display());
                let refusal = Refusal::new(RefusalCode::Unavailable, message);
                Err(Refused(refusal.with_hint("start one with `gantry up`, or name one with --gateway"))
                    .into())
            }
        }
    }
}

/// Our operator's token goes to our own gateway only.
fn token(environment: &Environment, url: &GatewayUrl, is_ours: bool) -> Result<String> {
    if let Some(token) = environment.token()? {
        return Ok(token);
    }
    if is_ours {
        return environment.data.operator_token().context("cannot read the operator's token");
    }
    Err(UsageError(format!("there is no token for {url}; set GANTRY_TOKEN or GANTRY_TOKEN_FILE")).into())
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
        let (told, progress) = watch::channel(None);
        let (link, hello, running) = open(address, Arc::new(Listener { told })).await?;
        Ok(Client { link, hello, running, progress })
    }

    /// Asks one thing and hangs up.
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
        serde_json::from_str(answer.get()).context("the gateway's answer is not valid")
    }

    /// Calls a tool. Cancelling reaches the machine it runs on.
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

    /// Whether the gateway is gone, or goes within a moment.
    pub(crate) async fn is_lost(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.link.closed()).await.is_ok()
    }

    /// Calls one tool and hangs up. An interrupt calls it off, and what it has started is ended.
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

    /// How far the calls under way are.
    pub(crate) fn progress(&self) -> watch::Receiver<Option<CallProgress>> {
        self.progress.clone()
    }

    pub(crate) async fn close(self) {
        self.link.close(CloseReason::Done);
        let _ = self.running.await;
    }

    pub(crate) fn warn_of_other_version(&self, output: &Output) {
        let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &self.hello.server.version);
        if ours != theirs {
            output.warning(&format!("the gateway is version {theirs}, this is {ours}"));
        }
    }
}

/// Opens a link to a gateway, on which `service` answers.
pub(crate) async fn open<V: Service>(
    address: &Address,
    service: Arc<V>,
) -> Result<(Link, ConnectResult, tokio::task::JoinHandle<()>), Refusal> {
    let unreachable = |reason: String| {
        Refusal::new(
            RefusalCode::Unavailable,
            format!("the gateway {} cannot be reached: {reason}", address.url),
        )
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
        node: None,
    };
    let hello = connect(&mut socket, &params, ANSWER_LIMIT).await.map_err(|err| match err {
        gantry_link::HandshakeError::Refused(error) => Refusal::from_wire(error),
        other => unreachable(other.to_string()),
    })?;
    let options = LinkOptions { protocol: hello.protocol, ..LinkOptions::default() };
    let (link, running) = Link::new(socket, service, options);
    Ok((link, hello, tokio::spawn(running)))
}

/// What came of a call that was sent to a gateway.
pub(crate) fn outcome(tool: &str, answer: Result<RawJson, LinkError>) -> Outcome {
    let answered = match answer {
        Ok(result) => serde_json::from_str(result.get())
            .map_err(|err| WireError::new(ErrorCode::Unavailable, format!("not a valid answer: {err}"))),
        Err(LinkError::Remote(error)) => Err(error),
        // It did not read the whole of it.
        Err(LinkError::Closed(closed)) if closed.reason == Some(CloseReason::NoRoom) => Err(WireError::new(
            ErrorCode::Unavailable,
            "the gateway has no room for a call this large now, and nothing was done: try again in a moment",
        )),
        Err(LinkError::Closed(reason)) => {
            let message = format!("the gateway was lost during the call, whose outcome is unknown: {reason}");
            Err(Refusal::lost(message).to_wire())
        }
    };
    Outcome::from_wire(tool, answered)
}

/// What a gateway did not do: whether the asker, nobody or the gateway can mend it is told by the exit code.
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

/// A client is asked nothing, and only hears how far its calls are.
struct Listener {
    told: watch::Sender<Option<CallProgress>>,
}

impl Service for Listener {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, told: Event) {
        if told.name == event::CALL_PROGRESS
            && let Some(progress) = told.parse()
        {
            self.told.send_replace(Some(progress));
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}
