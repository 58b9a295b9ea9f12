//! A test gateway: accepts nodes, records what they send, and can drop the connection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_link::{
    Event, Link, LinkError, LinkOptions, Metered, Request, ServeFuture, Service, Socket, receive_connect,
};
use gantry_net::GatewayUrl;
use gantry_protocol::{
    Caller, ConnectParams, ConnectResult, ErrorCode, NodeCallParams, NodeHello, ServerInfo, StreamFrame,
    ToolAck, WireError, event, method, raw,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_websockets::ServerBuilder;

pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Gateway {
    listener: TcpListener,
}

/// One connection of a node.
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) params: ConnectParams,
    pub(crate) seen: Arc<Seen>,
    running: JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct Seen {
    requests: Mutex<Vec<(String, Value)>>,
    events: Mutex<Vec<(String, Value)>>,
    streams: Mutex<Vec<StreamFrame>>,
}

impl Gateway {
    pub(crate) async fn bind() -> Gateway {
        Gateway { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn url(&self) -> GatewayUrl {
        GatewayUrl::parse(&format!("http://{}", self.listener.local_addr().unwrap())).unwrap()
    }

    /// Accepts the next node up to its `connect`.
    pub(crate) async fn knock(&self) -> (Socket<TcpStream>, gantry_link::ConnectRequest) {
        let knocking = async {
            let (stream, _) = self.listener.accept().await.unwrap();
            let (_, mut socket) = ServerBuilder::new().accept(Metered::new(stream)).await.unwrap();
            let request = receive_connect(&mut socket, LIMIT).await.unwrap();
            (socket, request)
        };
        tokio::time::timeout(LIMIT, knocking).await.expect("no node came")
    }

    /// Accepts the next node. `wanted` chooses among the calls it lists.
    pub(crate) async fn accept(&self, wanted: impl Fn(&str) -> bool) -> Peer {
        let (mut socket, request) = self.knock().await;
        let params = request.params.clone();
        let listed = params.node.iter().flat_map(|hello| &hello.calls);
        let welcome = ConnectResult {
            protocol: gantry_protocol::PROTOCOL_VERSION,
            server: ServerInfo { version: "0".into(), instance: "test".into(), now: 0 },
            wanted: listed.filter(|id| wanted(id)).cloned().collect(),
            workspace: None,
        };
        request.accept(&mut socket, &welcome).await.unwrap();
        let seen = Arc::new(Seen::default());
        let (link, running) = Link::new(socket, seen.clone(), LinkOptions::default());
        let running = tokio::spawn(running);
        let peer = Peer { link, params, seen, running };
        if !peer.hello().bulk {
            peer.seen.sent_request(method::NODE_TOOLS).await;
        }
        peer
    }

    pub(crate) async fn accept_all(&self) -> Peer {
        self.accept(|_| true).await
    }
}

impl Peer {
    pub(crate) fn hello(&self) -> &NodeHello {
        self.params.node.as_ref().unwrap()
    }

    /// Drops the connection without a close frame.
    pub(crate) async fn cut(self) {
        self.running.abort();
        let _ = self.running.await;
    }

    pub(crate) async fn call(&self, call_id: &str, tool: &str, input: Value) -> Result<Value, WireError> {
        let answer =
            self.link.request_within(method::TOOL_CALL, raw(&params(call_id, tool, &input)), LIMIT).await;
        match answer {
            Ok(json) => Ok(serde_json::from_str(json.get()).unwrap()),
            Err(LinkError::Remote(error)) => Err(error),
            Err(LinkError::Closed(reason)) => {
                Err(WireError::new(ErrorCode::NotConnected, reason.to_string()))
            }
        }
    }

    pub(crate) async fn acknowledge(&self, call_id: &str) {
        let ack = ToolAck { call_ids: vec![call_id.into()] };
        self.link.event(event::TOOL_ACK, raw(&ack)).await.unwrap();
    }
}

pub(crate) fn params(call_id: &str, tool: &str, input: &Value) -> NodeCallParams {
    NodeCallParams {
        call_id: call_id.into(),
        tool: tool.into(),
        input: raw(input),
        caller: Caller {
            principal: "operator".into(),
            agent: "main".into(),
            autonomy: "supervised".into(),
            surface: "mcp".into(),
            session: None,
            labels: Vec::new(),
            escalated: false,
            asks: false,
        },
    }
}

impl Seen {
    /// Waits until the node has sent a request with this name.
    pub(crate) async fn sent_request(&self, method: &str) -> Value {
        self.find(&self.requests, method).await
    }

    pub(crate) async fn sent_event(&self, name: &str) -> Value {
        self.find(&self.events, name).await
    }

    pub(crate) fn events(&self, method: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|(name, _)| name == method).count()
    }

    pub(crate) fn streams(&self) -> Vec<StreamFrame> {
        self.streams.lock().unwrap().clone()
    }

    async fn find(&self, list: &Mutex<Vec<(String, Value)>>, name: &str) -> Value {
        for _ in 0..1_000 {
            if let Some((_, value)) = list.lock().unwrap().iter().find(|(known, _)| known == name) {
                return value.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the node never sent {name}");
    }
}

impl Service for Seen {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            let value = serde_json::from_str(request.params.get()).unwrap();
            self.requests.lock().unwrap().push((request.method.clone(), value));
            match &*request.method {
                method::NODE_TOOLS => Ok(raw(&json!({}))),
                _ => Err(request.unknown()),
            }
        })
    }

    fn event(&self, _link: &Link, event: Event) {
        let value = serde_json::from_str(event.data.get()).unwrap();
        self.events.lock().unwrap().push((event.name, value));
    }

    fn stream(&self, _link: &Link, frame: StreamFrame) {
        self.streams.lock().unwrap().push(frame);
    }
}
