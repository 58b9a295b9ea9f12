//! What the benchmark measures a gateway with: a bare WebSocket echo behind one relay, a node that answers at once, many
//! idle nodes, and the clients that time both ways. Same library on every side.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use gantry_domain::BusyPoll;
use gantry_link::{Event, Link, LinkOptions, Request, ServeFuture, Service, connect, upgrade};
use gantry_net::{GatewayUrl, Trust, dial};
use gantry_protocol::{
    CallParams, CallResult, ConnectParams, NodeHello, NodeTools, ProtocolRange, RawJson, Role, StreamFrame,
    WireAnnotations, WireTool, method, raw,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_websockets::{ClientBuilder, Message, ServerBuilder};

/// On every side what `gantry` itself has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CALLS: usize = 2_000;
const RATES: usize = 3;
const IN_FLIGHT: usize = 64;

// One thread each, as the smallest client, node and relay would have.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo"] => echo().await,
        ["relay", upstream] => relay(upstream.to_string()).await,
        ["node", url, id, token] => node(url, id, token).await,
        ["nodes", url, operator, count] => nodes(url, operator, count.parse().unwrap()).await,
        ["calls", url, operator, tool, count, in_flight] => {
            calls(url, operator, tool, count.parse().unwrap(), in_flight.parse().unwrap()).await;
        }
        ["routed", url, operator, tool] => routed(url, operator, tool).await,
        ["relayed", relay] => relayed(relay).await,
        _ => panic!(
            "echo | relay ADDR | node URL ID TOKEN | nodes URL TOKEN COUNT | calls URL TOKEN TOOL COUNT IN_FLIGHT | routed URL TOKEN TOOL | relayed ADDR"
        ),
    }
}

async fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    listener
}

async fn echo() {
    let listener = listen().await;
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let (_, mut socket) = ServerBuilder::new().accept(stream).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() {
                    socket.send(message).await.unwrap();
                }
            }
        });
    }
}

/// One hop: whatever comes in goes on, both ways.
async fn relay(upstream: String) {
    let listener = listen().await;
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let (_, near) = ServerBuilder::new().accept(stream).await.unwrap();
            let (mut to_near, mut from_near) = near.split();
            let (mut to_far, mut from_far) = bare(&upstream).await.split();
            let forth = async {
                while let Some(Ok(message)) = from_near.next().await {
                    to_far.send(message).await.unwrap();
                }
            };
            let back = async {
                while let Some(Ok(message)) = from_far.next().await {
                    to_near.send(message).await.unwrap();
                }
            };
            tokio::select! { () = forth => {}, () = back => {} }
        });
    }
}

async fn bare(address: &str) -> tokio_websockets::WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let uri = format!("ws://{address}/");
    ClientBuilder::new().uri(&uri).unwrap().connect_on(stream).await.unwrap().0
}

/// Answers every call at once.
struct Empty;

impl Service for Empty {
    fn request(self: Arc<Self>, _link: Link, _request: Request) -> ServeFuture {
        let answer = CallResult {
            tool: "Empty".into(),
            is_error: false,
            json: Some(raw(&json!({}))),
            text: None,
            warnings: Vec::new(),
        };
        Box::pin(async move { Ok(raw(&answer)) })
    }

    fn event(&self, _link: &Link, _event: Event) {}

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}

/// A connection; who calls over it stays awake for the answer, as `gantry mcp` does.
struct Linked {
    link: Link,
    running: tokio::task::JoinHandle<()>,
    calls: TaskTracker,
    busy_poll: Arc<BusyPoll>,
}

impl Linked {
    async fn call(&self, call: &RawJson) {
        let _counted = self.calls.token();
        self.busy_poll.on_activity();
        self.link.request(method::TOOL_CALL, call.clone(), None).await.unwrap();
    }
}

async fn linked(url: &str, params: ConnectParams) -> Linked {
    let url = GatewayUrl::parse(url).unwrap();
    let stream = dial(&url, &Trust::System).await.unwrap();
    let mut socket = upgrade(stream, &url.socket()).await.unwrap();
    connect(&mut socket, &params, Duration::from_secs(30)).await.unwrap();
    let calls = TaskTracker::new();
    let busy_poll = Arc::new(BusyPoll::new(calls.clone(), || {}));
    let lingering = busy_poll.clone();
    tokio::spawn(async move { lingering.run(CancellationToken::new()).await });
    let (link, running) = Link::new(socket, Arc::new(Empty), LinkOptions::default());
    Linked { link, running: tokio::spawn(running), calls, busy_poll }
}

fn params(role: Role, id: &str, token: &str) -> ConnectParams {
    ConnectParams {
        protocol: ProtocolRange::default(),
        role,
        id: id.into(),
        version: "0".into(),
        platform: "linux-x64".into(),
        token: token.into(),
        page_key: None,
        node: None,
    }
}

/// Joins with one read-only tool.
async fn join(url: &str, id: &str, token: &str) -> Linked {
    let hello = NodeHello {
        instance: format!("instance-{id}"),
        tools: [("Empty".to_owned(), vec!["text.search".to_owned()])].into(),
        host_capabilities: vec!["text.search".into()],
        ..NodeHello::default()
    };
    let node = linked(url, ConnectParams { node: Some(hello), ..params(Role::Node, id, token) }).await;
    let tool = WireTool {
        name: "Empty".into(),
        description: "Answers at once.".into(),
        input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        output_schema: None,
        annotations: WireAnnotations {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
            judges_connections: false,
        },
    };
    node.link.request(method::NODE_TOOLS, raw(&NodeTools { tools: vec![tool] }), None).await.unwrap();
    node
}

async fn node(url: &str, id: &str, token: &str) {
    let node = join(url, id, token).await;
    println!("joined");
    node.running.await.unwrap();
}

async fn operator(url: &str, token: &str) -> Linked {
    linked(url, params(Role::Client, "bench", token)).await
}

/// Adds and connects many nodes, calls each once, and stays until its input ends.
async fn nodes(url: &str, token: &str, count: usize) {
    let operator = operator(url, token).await;
    let mut joined = Vec::with_capacity(count);
    for number in 0..count {
        let id = format!("idle-{number}");
        let added =
            operator.link.request("nodes.add", raw(&json!({"id": id, "tags": []})), None).await.unwrap();
        let added: Value = serde_json::from_str(added.get()).unwrap();
        joined.push(join(url, &id, added["token"].as_str().unwrap()).await);
    }
    for number in 0..count {
        operator.call(&empty_call(&format!("idle-{number}__Empty"))).await;
    }
    println!("joined");
    let wait = || std::io::stdin().read_line(&mut String::new());
    tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
}

/// Calls, so many at a time, for a profiler to look at.
async fn calls(url: &str, token: &str, tool: &str, count: usize, in_flight: usize) {
    let operator = operator(url, token).await;
    let call = empty_call(tool);
    let one = |_| async {
        let started = Instant::now();
        operator.call(&call).await;
        started.elapsed()
    };
    let started = Instant::now();
    let taken = futures_util::stream::iter((0..count).map(one)).buffer_unordered(in_flight);
    let taken: Vec<Duration> = taken.collect().await;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    println!("{:?} at the median, {rate:.0} a second", median(taken));
}

fn empty_call(tool: &str) -> RawJson {
    raw(&CallParams {
        tool: tool.into(),
        input: Some(raw(&json!({}))),
        agent: None,
        workspace: None,
        mcp: None,
        asks: false,
    })
}

/// What is measured, on one line.
fn print(mut taken: Vec<Duration>, rates: Vec<u64>) {
    // The first ones warm up.
    taken.drain(..CALLS / 10);
    let found = json!({"us": median(taken).as_secs_f64() * 1e6, "perSecond": median(rates)});
    println!("{found}");
}

async fn routed(url: &str, token: &str, tool: &str) {
    let operator = operator(url, token).await;
    let call = empty_call(tool);
    let mut taken = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        operator.call(&call).await;
        taken.push(started.elapsed());
    }
    let mut rates = Vec::new();
    for _ in 0..RATES {
        rates.push(rate_routed(&operator, &call).await);
    }
    print(taken, rates);
}

async fn relayed(relay: &str) {
    let mut echoing = bare(relay).await;
    // As long as a routed request is on the wire.
    let payload = "x".repeat(empty_call("bench__Empty").get().len() + 60);
    let mut taken = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        echoing.send(Message::text(payload.clone())).await.unwrap();
        echoing.next().await.unwrap().unwrap();
        taken.push(started.elapsed());
    }
    let mut rates = Vec::new();
    for _ in 0..RATES {
        rates.push(rate_relayed(&mut echoing, &payload).await);
    }
    print(taken, rates);
}

const RATED_CALLS: usize = 5_000;

async fn rate_routed(operator: &Linked, call: &RawJson) -> u64 {
    let started = Instant::now();
    let calls = (0..RATED_CALLS).map(|_| operator.call(call));
    futures_util::stream::iter(calls).buffer_unordered(IN_FLIGHT).collect::<()>().await;
    (RATED_CALLS as f64 / started.elapsed().as_secs_f64()) as u64
}

async fn rate_relayed(echoing: &mut tokio_websockets::WebSocketStream<TcpStream>, payload: &str) -> u64 {
    let started = Instant::now();
    for _ in 0..IN_FLIGHT {
        echoing.feed(Message::text(payload.to_owned())).await.unwrap();
    }
    echoing.flush().await.unwrap();
    for number in 0..RATED_CALLS {
        echoing.next().await.unwrap().unwrap();
        if number + IN_FLIGHT < RATED_CALLS {
            echoing.send(Message::text(payload.to_owned())).await.unwrap();
        }
    }
    (RATED_CALLS as f64 / started.elapsed().as_secs_f64()) as u64
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort();
    values[values.len() / 2]
}
