//! The other ends of WebSockets: a client, a simulated node, and a socket that says whatever one likes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use gantry_link::{
    Event, HandshakeError, Link, LinkError, LinkOptions, Request, ServeFuture, Service, connect, upgrade,
};
use gantry_protocol::{
    CallProgress, ConnectParams, ConnectResult, ErrorCode, NodeCallParams, NodeHello, ProtocolRange, RawJson,
    Role, StreamFrame, ToolAck, WireError, event, method, raw,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_websockets::{ClientBuilder, Limits, MaybeTlsStream, Message, WebSocketStream};

use super::Up;

const SOON: Duration = Duration::from_secs(10);

/// A runtime for one test.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn params(role: Role, id: &str, token: &str, node: Option<NodeHello>) -> ConnectParams {
    ConnectParams {
        protocol: ProtocolRange::default(),
        role,
        id: id.into(),
        version: "0.0.1".into(),
        platform: "linux-x64".into(),
        token: token.into(),
        node,
    }
}

/// Dials and introduces itself.
pub(crate) async fn link<V: Service>(
    up: &Up,
    params: &ConnectParams,
    service: Arc<V>,
) -> Result<(Link, ConnectResult), HandshakeError> {
    let stream = TcpStream::connect(up.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut socket = upgrade(stream, &format!("ws://{}/ws", up.address)).await?;
    let hello = connect(&mut socket, params, SOON).await?;
    let (link, running) = Link::new(socket, service, LinkOptions::default());
    tokio::spawn(running);
    Ok((link, hello))
}

/// A client that remembers what it was told.
pub(crate) struct Client {
    pub(crate) link: Link,
    pub(crate) hello: ConnectResult,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    events: Mutex<Vec<(String, Value)>>,
    aborts: AtomicUsize,
}

impl Client {
    pub(crate) async fn connect(up: &Up, token: &str) -> Result<Client, HandshakeError> {
        let heard = Arc::new(Heard::default());
        let (link, hello) = link(up, &params(Role::Client, "tester", token, None), heard.clone()).await?;
        Ok(Client { link, hello, heard })
    }

    pub(crate) async fn operator(up: &Up) -> Client {
        Client::connect(up, &up.token).await.unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, WireError> {
        answered(self.link.request_within(method, raw(&params), Duration::from_secs(60)).await)
    }

    pub(crate) async fn call(&self, tool: &str, input: Value) -> Result<Value, WireError> {
        self.ask(method::TOOL_CALL, json!({"tool": tool, "input": input})).await
    }

    pub(crate) async fn call_until(
        &self,
        tool: &str,
        input: Value,
        deadline: Duration,
    ) -> Result<Value, WireError> {
        let params = raw(&json!({"tool": tool, "input": input}));
        answered(self.link.request(method::TOOL_CALL, params, Some(Instant::now() + deadline)).await)
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let events = self.heard.events.lock().unwrap();
        events.iter().filter(|(known, _)| known == name).map(|(_, data)| data.clone()).collect()
    }

    pub(crate) fn aborts(&self) -> usize {
        self.heard.aborts.load(Ordering::Relaxed)
    }
}

pub(crate) fn answered(answer: Result<RawJson, LinkError>) -> Result<Value, WireError> {
    match answer {
        Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
        Err(LinkError::Remote(error)) => Err(error),
        Err(LinkError::Closed(reason)) => {
            Err(WireError::new(ErrorCode::NotConnected, format!("closed: {reason}")))
        }
    }
}

impl Service for Heard {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, event: Event) {
        let data = event.parse().unwrap_or_default();
        self.events.lock().unwrap().push((event.name, data));
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {
        self.aborts.fetch_add(1, Ordering::Relaxed);
    }
}

/// One start of a simulated node's process. It may connect more than once; a call it was given runs once.
pub(crate) struct Node {
    pub(crate) id: String,
    token: String,
    instance: String,
    runs: AtomicUsize,
    running: AtomicUsize,
    peak: AtomicUsize,
    calls: Mutex<BTreeMap<String, Running>>,
    pub(crate) cancelled: Mutex<Vec<String>>,
    pub(crate) acked: Mutex<Vec<String>>,
    /// Milliseconds left, as each call told.
    pub(crate) deadlines: Mutex<Vec<Option<u64>>>,
    pub(crate) callers: Mutex<Vec<gantry_protocol::Caller>>,
}

#[derive(Clone)]
struct Running {
    cancel: CancellationToken,
    answer: watch::Receiver<Option<Result<Value, WireError>>>,
}

impl Node {
    pub(crate) fn new(id: &str, token: &str) -> Arc<Node> {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let start = STARTS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Node {
            id: id.into(),
            token: token.into(),
            instance: format!("start-{start}"),
            runs: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            calls: Mutex::default(),
            cancelled: Mutex::default(),
            acked: Mutex::default(),
            deadlines: Mutex::default(),
            callers: Mutex::default(),
        })
    }

    /// Connects and tells its tools.
    pub(crate) async fn join(self: &Arc<Self>, up: &Up) -> Link {
        let (link, _) = self.connect(up).await.unwrap();
        answered(link.request_within(method::NODE_TOOLS, raw(&tools()), SOON).await).unwrap();
        link
    }

    pub(crate) async fn connect(self: &Arc<Self>, up: &Up) -> Result<(Link, ConnectResult), HandshakeError> {
        let said = self.hello();
        let named = said.calls.clone();
        let params = params(Role::Node, &self.id, &self.token, Some(said));
        let (link, hello) = link(up, &params, self.clone()).await?;
        // Of what was named, what nobody wants any more is ended and forgotten. A call that came over the old connection
        // at the last moment was not named.
        let mut calls = self.calls.lock().unwrap();
        for id in named.iter().filter(|id| !hello.wanted.contains(id)) {
            if let Some(call) = calls.remove(id) {
                call.cancel.cancel();
            }
        }
        drop(calls);
        Ok((link, hello))
    }

    pub(crate) fn hello(&self) -> NodeHello {
        NodeHello {
            instance: self.instance.clone(),
            calls: self.calls.lock().unwrap().keys().cloned().collect(),
            ..hello()
        }
    }

    /// How many calls were begun.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// How many ran at the same time, at most.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Ids of calls whose result was not acknowledged.
    pub(crate) fn kept(&self) -> Vec<String> {
        self.calls.lock().unwrap().keys().cloned().collect()
    }

    fn begin(self: &Arc<Self>, link: &Link, params: NodeCallParams) -> Running {
        let mut calls = self.calls.lock().unwrap();
        if let Some(running) = calls.get(&params.call_id) {
            return running.clone();
        }
        self.runs.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = watch::channel(None);
        let running = Running { cancel: CancellationToken::new(), answer };
        calls.insert(params.call_id.clone(), running.clone());
        let (node, link, cancel) = (self.clone(), link.clone(), running.cancel.clone());
        tokio::spawn(async move {
            let now = node.running.fetch_add(1, Ordering::Relaxed) + 1;
            node.peak.fetch_max(now, Ordering::Relaxed);
            let answer = node.run(&link, &params, &cancel).await;
            node.running.fetch_sub(1, Ordering::Relaxed);
            answered.send_replace(Some(answer));
        });
        running
    }

    async fn run(
        &self,
        link: &Link,
        params: &NodeCallParams,
        cancel: &CancellationToken,
    ) -> Result<Value, WireError> {
        let input: Value = serde_json::from_str(params.input.get()).unwrap();
        let result = |json: Value| Ok(json!({"tool": params.tool, "json": json}));
        match &*params.tool {
            "Echo" => result(json!({"text": input["text"], "on": self.id})),
            "Fail" => Ok(json!({"tool": "Fail", "isError": true, "json": {"error": "as asked"}})),
            "Report" => {
                for done in 1..=3 {
                    let progress = CallProgress {
                        call: params.call_id.clone(),
                        done,
                        total: Some(3),
                        message: "steps".into(),
                    };
                    let _ = link.event(event::CALL_PROGRESS, raw(&progress)).await;
                    tokio::time::sleep(Duration::from_millis(120)).await;
                }
                result(json!({"done": 3}))
            }
            _ => {
                let time = Duration::from_millis(input["ms"].as_u64().unwrap_or(60_000));
                tokio::select! {
                    () = tokio::time::sleep(time) => result(json!({"slept": true, "on": self.id})),
                    () = cancel.cancelled() => {
                        self.cancelled.lock().unwrap().push(params.call_id.clone());
                        Err(WireError::new(ErrorCode::Cancelled, "cancelled"))
                    }
                }
            }
        }
    }
}

impl Service for Node {
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            if request.method != method::TOOL_CALL {
                return Err(request.unknown());
            }
            let left = request.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            self.deadlines.lock().unwrap().push(left.map(|left| left.as_millis() as u64));
            let params: NodeCallParams = request.parse()?;
            self.callers.lock().unwrap().push(params.caller.clone());
            let running = self.begin(&link, params);
            let mut answer = running.answer.clone();
            let watching = tokio::spawn(async move {
                request.cancel.cancelled().await;
                // A lost connection calls nothing off.
                if !link.is_closed() {
                    running.cancel.cancel();
                }
            });
            let answered = answer.wait_for(Option::is_some).await.unwrap().clone();
            watching.abort();
            answered.unwrap().map(|json| raw(&json))
        })
    }

    fn event(&self, _link: &Link, told: Event) {
        if told.name == event::TOOL_ACK {
            let ack: ToolAck = told.parse().unwrap();
            for id in ack.call_ids {
                self.calls.lock().unwrap().remove(&id);
                self.acked.lock().unwrap().push(id);
            }
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}

/// What simulated nodes say of themselves in `connect`.
pub(crate) fn hello() -> NodeHello {
    let tool = |name: &str| (name.to_owned(), vec!["filesystem.read".to_owned()]);
    NodeHello {
        instance: "start".into(),
        tools: ["Echo", "Fail", "Report", "Sleep"].map(tool).into(),
        host_capabilities: vec!["filesystem.read".into()],
        ..NodeHello::default()
    }
}

/// And in `node.tools`.
pub(crate) fn tools() -> Value {
    let tool = |name: &str, properties: Value| {
        json!({
            "name": name,
            "description": format!("{name}, simulated"),
            "inputSchema": {"type": "object", "properties": properties, "additionalProperties": false},
            "annotations": {"readOnly": true, "destructive": false, "idempotent": true, "openWorld": false},
        })
    };
    json!({"tools": [
        tool("Echo", json!({"text": {"type": "string"}})),
        tool("Fail", json!({})),
        tool("Report", json!({})),
        tool("Sleep", json!({"ms": {"type": "integer"}})),
    ]})
}

/// A WebSocket without manners.
pub(crate) struct Raw {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Raw {
    pub(crate) async fn open(up: &Up) -> Raw {
        Raw::open_with(up, "/ws", &[]).await.unwrap()
    }

    pub(crate) async fn open_with(up: &Up, path: &str, headers: &[(&str, &str)]) -> Result<Raw, String> {
        let mut builder = ClientBuilder::new()
            .uri(&format!("ws://{}{path}", up.address))
            .unwrap()
            .limits(Limits::unlimited());
        for (name, value) in headers {
            builder = builder.add_header(name.parse().unwrap(), value.parse().unwrap()).unwrap();
        }
        let (socket, _) = builder.connect().await.map_err(|err| err.to_string())?;
        Ok(Raw { socket })
    }

    /// As a client whose token was accepted.
    pub(crate) async fn connected(up: &Up, params: &ConnectParams) -> Raw {
        let mut raw = Raw::open(up).await;
        raw.say(&json!({"type": "req", "id": 0, "method": "connect", "params": params}).to_string()).await;
        let answer = raw.hear().await.unwrap();
        assert_eq!(answer["ok"], true, "{answer}");
        raw
    }

    pub(crate) async fn say(&mut self, text: &str) {
        let _ = self.socket.send(Message::text(text.to_owned())).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: Vec<u8>) {
        let _ = self.socket.send(Message::binary(bytes)).await;
    }

    /// The next text, or why there is none.
    pub(crate) async fn hear(&mut self) -> Result<Value, String> {
        loop {
            let message = tokio::time::timeout(Duration::from_secs(15), self.socket.next()).await;
            match message.map_err(|_| "silence".to_owned())? {
                None => return Err("closed".into()),
                Some(Err(err)) => return Err(format!("lost: {err}")),
                Some(Ok(message)) => {
                    if let Some((code, reason)) = message.as_close() {
                        return Err(format!("closed with {} {reason}", u16::from(code)));
                    }
                    if let Some(text) = message.as_text() {
                        let heard: Value = serde_json::from_str(text).unwrap();
                        // Every node is asked that once it is there; these answer nothing.
                        if heard["method"] == "transfer.parts" {
                            continue;
                        }
                        return Ok(heard);
                    }
                    if message.is_binary() {
                        return Ok(json!({"binary": message.as_payload()[0]}));
                    }
                }
            }
        }
    }

    /// Everything until the socket is closed; the last is why.
    pub(crate) async fn hear_all(&mut self) -> (Vec<Value>, String) {
        let mut heard = Vec::new();
        loop {
            match self.hear().await {
                Ok(value) => heard.push(value),
                Err(reason) => return (heard, reason),
            }
        }
    }
}
