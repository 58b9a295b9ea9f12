//! Scripted WebSocket peers: a client, a simulated node, and a socket that can send invalid frames.

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

use crate::Gateway;

const SOON: Duration = Duration::from_secs(10);

/// Returns a runtime for one test.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub fn params(role: Role, id: &str, token: &str, node: Option<NodeHello>) -> ConnectParams {
    ConnectParams {
        protocol: ProtocolRange::default(),
        role,
        id: id.into(),
        version: "0.0.1".into(),
        platform: "linux-x64".into(),
        token: token.into(),
        page_key: None,
        node,
    }
}

/// Dials the gateway and completes the handshake.
pub async fn link<V: Service>(
    gateway: &Gateway,
    params: &ConnectParams,
    service: Arc<V>,
) -> Result<(Link, ConnectResult), HandshakeError> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut socket = upgrade(stream, &format!("ws://{}/ws", gateway.address)).await?;
    let hello = connect(&mut socket, params, SOON).await?;
    let (link, running) = Link::new(socket, service, LinkOptions::default());
    tokio::spawn(running);
    Ok((link, hello))
}

/// `Client` is a client that keeps the events it received.
pub struct Client {
    pub link: Link,
    pub hello: ConnectResult,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    events: Mutex<Vec<(String, Value)>>,
    aborts: AtomicUsize,
}

impl Client {
    pub async fn connect(gateway: &Gateway, token: &str) -> Result<Client, HandshakeError> {
        let heard = Arc::new(Heard::default());
        let (link, hello) =
            link(gateway, &params(Role::Client, "tester", token, None), heard.clone()).await?;
        Ok(Client { link, hello, heard })
    }

    pub async fn operator(gateway: &Gateway) -> Client {
        Client::connect(gateway, &gateway.token).await.unwrap()
    }

    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, WireError> {
        answered(self.link.request_within(method, raw(&params), Duration::from_secs(60)).await)
    }

    pub async fn call(&self, tool: &str, input: Value) -> Result<Value, WireError> {
        self.ask(method::TOOL_CALL, json!({"tool": tool, "input": input})).await
    }

    pub async fn call_until(&self, tool: &str, input: Value, deadline: Duration) -> Result<Value, WireError> {
        let params = raw(&json!({"tool": tool, "input": input}));
        answered(self.link.request(method::TOOL_CALL, params, Some(Instant::now() + deadline)).await)
    }

    pub fn events(&self, name: &str) -> Vec<Value> {
        let events = self.heard.events.lock().unwrap();
        events.iter().filter(|(known, _)| known == name).map(|(_, data)| data.clone()).collect()
    }

    pub fn aborts(&self) -> usize {
        self.heard.aborts.load(Ordering::Relaxed)
    }
}

pub fn answered(answer: Result<RawJson, LinkError>) -> Result<Value, WireError> {
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

/// `Node` is one start of a simulated node. It may connect more than once, and runs each call once.
pub struct Node {
    pub id: String,
    token: String,
    instance: String,
    runs: AtomicUsize,
    running: AtomicUsize,
    peak: AtomicUsize,
    calls: Mutex<BTreeMap<String, Running>>,
    pub cancelled: Mutex<Vec<String>>,
    pub acked: Mutex<Vec<String>>,
    /// The milliseconds left, as each call reported them.
    pub deadlines: Mutex<Vec<Option<u64>>>,
    pub callers: Mutex<Vec<gantry_protocol::Caller>>,
}

#[derive(Clone)]
struct Running {
    cancel: CancellationToken,
    answer: watch::Receiver<Option<Result<Value, WireError>>>,
}

impl Node {
    pub fn new(id: &str, token: &str) -> Arc<Node> {
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

    /// Connects and reports its tools.
    pub async fn join(self: &Arc<Self>, gateway: &Gateway) -> Link {
        let (link, _) = self.connect(gateway).await.unwrap();
        answered(link.request_within(method::NODE_TOOLS, raw(&tools()), SOON).await).unwrap();
        link
    }

    pub async fn connect(
        self: &Arc<Self>,
        gateway: &Gateway,
    ) -> Result<(Link, ConnectResult), HandshakeError> {
        let hello = self.hello();
        let named = hello.calls.clone();
        let params = params(Role::Node, &self.id, &self.token, Some(hello));
        let (link, hello) = link(gateway, &params, self.clone()).await?;
        // Calls that the node named and the gateway no longer wants are cancelled. A call that arrived
        // over the old connection after the hello was not named, so it goes on.
        let mut calls = self.calls.lock().unwrap();
        for id in named.iter().filter(|id| !hello.wanted.contains(id)) {
            if let Some(call) = calls.remove(id) {
                call.cancel.cancel();
            }
        }
        drop(calls);
        Ok((link, hello))
    }

    pub fn hello(&self) -> NodeHello {
        NodeHello {
            instance: self.instance.clone(),
            calls: self.calls.lock().unwrap().keys().cloned().collect(),
            ..hello()
        }
    }

    /// Returns how many calls were started.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns the largest number of calls that ran at the same time.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the ids of calls whose result was not acknowledged.
    pub fn kept(&self) -> Vec<String> {
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
                // A lost connection does not cancel a call.
                if !link.is_closed() {
                    running.cancel.cancel();
                }
            });
            let answered = answer.wait_for(Option::is_some).await.unwrap().clone();
            watching.abort();
            answered.unwrap().map(|json| raw(&json))
        })
    }

    fn event(&self, _link: &Link, received: Event) {
        if received.name == event::TOOL_ACK {
            let ack: ToolAck = received.parse().unwrap();
            for id in ack.call_ids {
                self.calls.lock().unwrap().remove(&id);
                self.acked.lock().unwrap().push(id);
            }
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}

/// Returns what simulated nodes send in `connect`.
pub fn hello() -> NodeHello {
    let tool = |name: &str| (name.to_owned(), vec!["filesystem.read".to_owned()]);
    NodeHello {
        instance: "start".into(),
        tools: ["Echo", "Fail", "Report", "Sleep"].map(tool).into(),
        host_capabilities: vec!["filesystem.read".into()],
        ..NodeHello::default()
    }
}

/// Returns what simulated nodes send in `node.tools`.
pub fn tools() -> Value {
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

/// `Raw` is a WebSocket that sends any text or bytes.
pub struct Raw {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Raw {
    pub async fn open(gateway: &Gateway) -> Raw {
        Raw::open_with(gateway, "/ws", &[]).await.unwrap()
    }

    pub async fn open_with(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Result<Raw, String> {
        let mut builder = ClientBuilder::new()
            .uri(&format!("ws://{}{path}", gateway.address))
            .unwrap()
            .limits(Limits::unlimited());
        for (name, value) in headers {
            builder = builder.add_header(name.parse().unwrap(), value.parse().unwrap()).unwrap();
        }
        let (socket, _) = builder.connect().await.map_err(|err| err.to_string())?;
        Ok(Raw { socket })
    }

    /// Opens a socket and completes the handshake.
    pub async fn connected(gateway: &Gateway, params: &ConnectParams) -> Raw {
        let mut raw = Raw::open(gateway).await;
        raw.say(&json!({"type": "req", "id": 0, "method": "connect", "params": params}).to_string()).await;
        let answer = raw.hear().await.unwrap();
        assert_eq!(answer["ok"], true, "{answer}");
        raw
    }

    pub async fn say(&mut self, text: &str) {
        let _ = self.socket.send(Message::text(text.to_owned())).await;
    }

    pub async fn send_bytes(&mut self, bytes: Vec<u8>) {
        let _ = self.socket.send(Message::binary(bytes)).await;
    }

    /// Returns the next message, or why there is none.
    pub async fn hear(&mut self) -> Result<Value, String> {
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
                        // The gateway asks every new node for its part files. A raw socket ignores that.
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

    /// Returns every message until the socket closes, and the reason.
    pub async fn hear_all(&mut self) -> (Vec<Value>, String) {
        let mut heard = Vec::new();
        loop {
            match self.hear().await {
                Ok(value) => heard.push(value),
                Err(reason) => return (heard, reason),
            }
        }
    }
}
