//! What the benchmark measures a gateway with: a bare WebSocket echo behind one relay, a node that answers at once, many
//! idle nodes, and the client that times both ways in turns. Same library on every side.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use gantry_link::{Event, Link, LinkOptions, Request, ServeFuture, Service, connect, upgrade};
use gantry_net::{GatewayUrl, Trust, dial};
use gantry_protocol::{
    CallParams, CallResult, ConnectParams, NodeHello, NodeTools, ProtocolRange, RawJson, Role, StreamFrame,
    WireAnnotations, WireTool, method, raw,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_websockets::{ClientBuilder, Message, ServerBuilder};

const BLOCKS: usize = 20;
const CALLS_PER_BLOCK: usize = 250;
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
        ["measure", relay, url, operator, tool] => measure(relay, url, operator, tool).await,
        _ => panic!(
            "echo | relay ADDR | node URL ID TOKEN | nodes URL TOKEN COUNT | calls URL TOKEN TOOL COUNT IN_FLIGHT | measure ADDR URL TOKEN TOOL"
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

async fn linked(url: &str, params: ConnectParams) -> (Link, tokio::task::JoinHandle<()>) {
    let url = GatewayUrl::parse(url).unwrap();
    let stream = dial(&url, &Trust::System).await.unwrap();
    let mut socket = upgrade(stream, &url.socket()).await.unwrap();
    connect(&mut socket, &params, Duration::from_secs(30)).await.unwrap();
    let (link, running) = Link::new(socket, Arc::new(Empty), LinkOptions::default());
    (link, tokio::spawn(running))
}

fn params(role: Role, id: &str, token: &str) -> ConnectParams {
    ConnectParams {
        protocol: ProtocolRange::default(),
        role,
        id: id.into(),
        version: "0".into(),
        platform: "linux-x64".into(),
        token: token.into(),
        node: None,
    }
}

/// Joins with one read-only tool.
async fn join(url: &str, id: &str, token: &str) -> (Link, tokio::task::JoinHandle<()>) {
    let hello = NodeHello {
        instance: format!("instance-{id}"),
        tools: [("Empty".to_owned(), vec!["text.search".to_owned()])].into(),
        host_capabilities: vec!["text.search".into()],
        ..NodeHello::default()
    };
    let (link, running) =
        linked(url, ConnectParams { node: Some(hello), ..params(Role::Node, id, token) }).await;
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
        },
    };
    link.request(method::NODE_TOOLS, raw(&NodeTools { tools: vec![tool] }), None).await.unwrap();
    (link, running)
}

async fn node(url: &str, id: &str, token: &str) {
    let (_link, running) = join(url, id, token).await;
    println!("joined");
    running.await.unwrap();
}

async fn operator(url: &str, token: &str) -> Link {
    linked(url, params(Role::Client, "bench", token)).await.0
}

/// Adds and connects many nodes, calls each once, and stays until its input ends.
async fn nodes(url: &str, token: &str, count: usize) {
    let operator = operator(url, token).await;
    let mut joined = Vec::with_capacity(count);
    for number in 0..count {
        let id = format!("idle-{number}");
        let added = operator.request("nodes.add", raw(&json!({"id": id, "tags": []})), None).await.unwrap();
        let added: Value = serde_json::from_str(added.get()).unwrap();
        joined.push(join(url, &id, added["token"].as_str().unwrap()).await);
    }
    for number in 0..count {
        let call = CallParams {
            tool: format!("idle-{number}__Empty"),
            input: None,
            agent: None,
            workspace: None,
            mcp: None,
            asks: false,
        };
        operator.request(method::TOOL_CALL, raw(&call), None).await.unwrap();
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
        operator.request(method::TOOL_CALL, call.clone(), None).await.unwrap();
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

async fn measure(relay: &str, url: &str, token: &str, tool: &str) {
    let operator = operator(url, token).await;
    let mut echoing = bare(relay).await;
    let call = empty_call(tool);
    // As long as a routed request is on the wire.
    let payload = "x".repeat(call.get().len() + 60);

    let (mut routed, mut relayed) = (Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        for _ in 0..CALLS_PER_BLOCK {
            let started = Instant::now();
            operator.request(method::TOOL_CALL, call.clone(), None).await.unwrap();
            if block > 0 {
                routed.push(started.elapsed());
            }
        }
        for _ in 0..CALLS_PER_BLOCK {
            let started = Instant::now();
            echoing.send(Message::text(payload.clone())).await.unwrap();
            echoing.next().await.unwrap().unwrap();
            if block > 0 {
                relayed.push(started.elapsed());
            }
        }
    }
    let (mut routed_rates, mut relayed_rates) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        routed_rates.push(rate_routed(&operator, &call).await);
        relayed_rates.push(rate_relayed(&mut echoing, &payload).await);
    }
    let found = json!({
        "routedUs": median(routed).as_secs_f64() * 1e6,
        "relayedUs": median(relayed).as_secs_f64() * 1e6,
        "routedPerSecond": median(routed_rates),
        "relayedPerSecond": median(relayed_rates),
    });
    println!("{found}");
}

const RATED_CALLS: usize = 5_000;

async fn rate_routed(operator: &Link, call: &RawJson) -> u64 {
    let started = Instant::now();
    let calls = (0..RATED_CALLS).map(|_| operator.request(method::TOOL_CALL, call.clone(), None));
    let answered = futures_util::stream::iter(calls).buffer_unordered(IN_FLIGHT);
    answered.for_each(|answer| async move { drop(answer.unwrap()) }).await;
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
