//! A node that violates the transfer protocol harms only itself.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gantry_link::{Event, Link, Request, ServeFuture, Service};
use gantry_protocol::{NodeHello, Role, StreamFrame, TransferSend, method, raw};
use gantry_testkit::peers::{answered, link, params, runtime};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const ID: &str = "liar";

/// Says that it has sent everything, after bytes that leave some out.
struct LyingNode {
    up: Arc<Gateway>,
    token: String,
    bulk: Mutex<Option<Link>>,
    /// How often it says that its second connection is open when it is not.
    empty_words: AtomicU32,
    /// It was asked for a file.
    asked: AtomicBool,
}

impl LyingNode {
    /// One that is connected; its link.
    fn join(world: &World, runtime: &Runtime, empty_words: u32) -> (Arc<LyingNode>, Link) {
        let up = Arc::new(Gateway::start(world));
        let token = up.add_node(world, ID, &[]);
        let (empty_words, asked) = (empty_words.into(), false.into());
        let node = Arc::new(LyingNode { up, token, bulk: Mutex::new(None), empty_words, asked });
        let link = runtime.block_on(async {
            let params = params(Role::Node, ID, &node.token, Some(hello(false)));
            let (link, _) = link(&node.up, &params, node.clone()).await.unwrap();
            let schema = json!({"type": "object"});
            let tool =
                |name| json!({"name": name, "description": "d", "inputSchema": schema, "annotations": {}});
            let reported = json!({"tools": [tool("Read"), tool("Write")]});
            answered(link.request_within(method::NODE_TOOLS, raw(&reported), Duration::from_secs(10)).await)
                .unwrap();
            link
        });
        (node, link)
    }

    fn says_so_only(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.empty_words.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

fn hello(bulk: bool) -> NodeHello {
    let tool = |(name, capability): (&str, &str)| (name.to_owned(), vec![capability.to_owned()]);
    NodeHello {
        instance: "liar-1".into(),
        bulk,
        tools: [("Read", "filesystem.read"), ("Write", "filesystem.write")].map(tool).into(),
        host_capabilities: vec!["filesystem.read".into(), "filesystem.write".into()],
        ..NodeHello::default()
    }
}

impl Service for LyingNode {
    fn request(self: Arc<Self>, _: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            let answer = match request.method.as_str() {
                method::BULK_OPEN if self.says_so_only() => json!({}),
                method::BULK_OPEN => {
                    let params = params(Role::Node, ID, &self.token, Some(hello(true)));
                    let (bulk, _) = link(&self.up, &params, self.clone()).await.unwrap();
                    *self.bulk.lock().unwrap() = Some(bulk);
                    json!({})
                }
                method::TRANSFER_OPEN => {
                    self.asked.store(true, Ordering::SeqCst);
                    json!({"kind": "file", "size": 1000, "mode": 0o644, "version": "1", "path": "/lie"})
                }
                method::TRANSFER_SEND => {
                    let send: TransferSend = request.parse()?;
                    let bulk = self.bulk.lock().unwrap().clone().unwrap();
                    let fill = |bytes: &mut [u8]| Ok::<_, ()>(bytes.len());
                    let gap =
                        StreamFrame::data_with(send.stream, send.from + 10, 990, fill).unwrap().unwrap();
                    bulk.stream(gap).await.unwrap();
                    bulk.stream(StreamFrame::end(send.stream, 1000, &[7; 32])).await.unwrap();
                    json!({"bytes": 1000, "hash": "07".repeat(32)})
                }
                method::TRANSFER_FINISH | method::TRANSFER_ABANDON => json!({}),
                _ => return Err(request.unknown()),
            };
            Ok(raw(&answer))
        })
    }

    fn event(&self, _: &Link, _: Event) {}

    fn stream(&self, _: &Link, _: StreamFrame) {}
}

#[test]
fn source_that_omits_bytes_does_not_block_the_gateway() {
    let world = World::new();
    let runtime = runtime();
    let (node, _joined) = LyingNode::join(&world, &runtime, 0);
    let mut transfer = world.command(&["transfer", "liar:x", "gsv:x"]).spawn().unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let listed: Value = node.up.get("/v1/nodes").json();
        assert!(listed["nodes"].is_array(), "{listed}");
        assert!(asked.elapsed() < Duration::from_secs(2), "others wait for it: {:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(world.run(&["workspace", "cat", "x"]).code, 1, "no file has its name");
    transfer.kill().unwrap();
    transfer.wait().unwrap();
}

#[test]
fn missing_bulk_connection_is_requested_again() {
    let world = World::new();
    let runtime = runtime();
    let (node, _joined) = LyingNode::join(&world, &runtime, 2);
    let mut transfer = world.command(&["transfer", "liar:x", "gsv:x"]).spawn().unwrap();
    let within = Duration::from_secs(12);
    eventually("it is asked again", within, || node.asked.load(Ordering::SeqCst));
    transfer.kill().unwrap();
    transfer.wait().unwrap();
}
