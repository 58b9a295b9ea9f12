//! Discord: the gateway and the REST interface. It accepts what Discord accepts, in the forms in which Discord takes it.

mod gateway;
mod message_check;
mod objects;
mod rest;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::exchange::Call;
pub use objects::{id_at, user};

pub const TOKEN: &str = "MTA0MDAwMDAwMDAwMDAwMDA5OQ.GSECRE.TSECRETSECRETSECRETSECRETSECRETSECRETSE";
pub const BOT: &str = "1040000000000000099";
pub const APPLICATION: &str = "1040000000000000098";
pub const GUILD: &str = "1040000000000009001";
/// A channel of the server, a thread in it, and a channel that the bot cannot see.
pub const CHANNEL: &str = "1040000000000008001";
pub const THREAD: &str = "1040000000000008101";
pub const HIDDEN: &str = "1040000000000008666";
/// Chats of two, and a chat of several people.
pub const DIRECT: &str = "1040000000000007001";
pub const OTHER_DIRECT: &str = "1040000000000007002";
pub const GROUP: &str = "1040000000000007003";
/// A person.
pub const ADA: &str = "1040000000000000007";

/// What goes wrong with the next request of a route.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Status 429 with this many seconds, for the bucket.
    Limited(f64),
    /// Status 429 with this many seconds, for everything.
    LimitedEverywhere(f64),
    /// A status, and nothing happens.
    Before(u16),
    /// A status, after the request had its effect.
    After(u16),
    /// The connection ends without an answer, after the request had its effect.
    Cut,
    /// A status with a code of Discord's list.
    Refused(u16, u64),
}

/// A session of the gateway.
struct Session {
    intents: u64,
    seq: u64,
    events: Vec<(u64, String)>,
    socket: Option<mpsc::UnboundedSender<Order>>,
}

enum Order {
    Text(String),
    Close(u16),
    Cut,
}

struct World {
    /// All requests: the route and the body.
    calls: Vec<(String, Value)>,
    channels: HashMap<String, Value>,
    messages: Vec<Value>,
    /// The id of the message that a nonce made, by channel and nonce.
    nonces: HashMap<(String, String), String>,
    uploads: Vec<(String, Vec<u8>)>,
    files: HashMap<String, Vec<u8>>,
    /// Where files lead instead of being sent.
    redirects: HashMap<String, String>,
    faults: VecDeque<(String, Fault)>,
    sessions: HashMap<String, Session>,
    /// Tokens of presses, and what they were answered with.
    presses: HashMap<String, Vec<Value>>,
    /// How many requests of a bucket were made in its window.
    windows: HashMap<String, (Instant, u32)>,
    bucket: (u32, Duration),
    interval: u64,
    identified: usize,
    resumed: usize,
    identify_budget: u64,
    has_content_intent: bool,
    is_mute: bool,
    is_revoked: bool,
    gateway_url: Option<String>,
    resume_url: Option<String>,
    next: u64,
    heartbeats: usize,
    close_codes: Vec<u16>,
}

#[derive(Clone)]
pub struct FakeDiscord {
    pub address: SocketAddr,
    world: Arc<Mutex<World>>,
}

impl FakeDiscord {
    pub async fn start() -> FakeDiscord {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = World {
            calls: Vec::new(),
            channels: objects::channels(),
            messages: Vec::new(),
            nonces: HashMap::new(),
            uploads: Vec::new(),
            files: HashMap::new(),
            redirects: HashMap::new(),
            faults: VecDeque::new(),
            sessions: HashMap::new(),
            presses: HashMap::new(),
            windows: HashMap::new(),
            bucket: (5, Duration::from_millis(500)),
            interval: 41_250,
            identified: 0,
            resumed: 0,
            identify_budget: 1_000,
            has_content_intent: true,
            is_mute: false,
            is_revoked: false,
            gateway_url: None,
            resume_url: None,
            next: 0,
            heartbeats: 0,
            close_codes: Vec::new(),
        };
        let address = listener.local_addr().unwrap();
        let fake = FakeDiscord { address, world: Arc::new(Mutex::new(world)) };
        let served = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(stream));
            }
        });
        fake
    }

    pub fn api_url(&self) -> String {
        format!("http://{}/api/v10", self.address)
    }

    pub fn gateway_url(&self) -> String {
        format!("ws://{}", self.address)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Builds a message of a person. Nobody sees it yet.
    pub fn message(&self, channel: &str, text: &str) -> Value {
        let id = self.world().next_id();
        self.world().built(&id, channel, text, user(ADA, "ada"))
    }

    /// Keeps a message in its channel and tells everybody who may read it.
    pub fn say(&self, message: Value) -> String {
        let mut world = self.world();
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        world.messages.push(message.clone());
        world.dispatch("MESSAGE_CREATE", &message);
        id
    }

    /// Sends any event to all sessions.
    pub fn push(&self, kind: &str, data: &Value) {
        self.world().dispatch(kind, data);
    }

    /// Sends an event with a number of its own.
    pub fn push_numbered(&self, kind: &str, data: &Value, seq: u64) {
        let world = self.world();
        for session in world.sessions.values() {
            let frame = json!({ "op": 0, "t": kind, "s": seq, "d": data });
            session.send(frame.to_string());
        }
    }

    /// Presses a button of a message. Returns the token of the press.
    pub fn press(&self, channel: &str, message: &str, person: Value, custom_id: &str) -> String {
        let mut world = self.world();
        let id = world.next_id();
        let token = format!("aW50ZXJhY3Rpb24SECRET{id}");
        let data = world.interaction(&id, &token, channel, message, person, custom_id);
        world.presses.insert(token.clone(), Vec::new());
        world.dispatch("INTERACTION_CREATE", &data);
        token
    }

    /// What a press was answered with.
    pub fn answers(&self, token: &str) -> Vec<Value> {
        self.world().presses.get(token).cloned().unwrap_or_default()
    }

    /// Sends a frame that is not an event.
    pub fn frame(&self, frame: &Value) {
        self.raw(&frame.to_string());
    }

    pub fn raw(&self, text: &str) {
        self.world().sessions.values().for_each(|session| session.send(text.to_owned()));
    }

    /// Closes all connections. Sessions stay.
    pub fn close(&self, code: u16) {
        self.world().order(|| Order::Close(code));
    }

    pub fn cut(&self) {
        self.world().order(|| Order::Cut);
    }

    /// Forgets all sessions.
    pub fn end_sessions(&self) {
        self.world().sessions.clear();
    }

    pub fn fail(&self, route: &str, fault: Fault) {
        self.world().faults.push_back((route.to_owned(), fault));
    }

    /// Confirms no more heartbeats.
    pub fn mute(&self) {
        self.world().is_mute = true;
    }

    /// The interval of heartbeats, in milliseconds.
    pub fn beat_every(&self, interval: u64) {
        self.world().interval = interval;
    }

    /// How many messages a channel takes within a time.
    pub fn limit(&self, count: u32, window: Duration) {
        self.world().bucket = (count, window);
    }

    pub fn allow_sessions(&self, count: u64) {
        self.world().identify_budget = count;
    }

    pub fn switch_content_intent(&self, on: bool) {
        self.world().has_content_intent = on;
    }

    pub fn revoke(&self) {
        self.world().is_revoked = true;
    }

    /// Hands out other addresses of the gateway: for new sessions, and for sessions that are resumed.
    pub fn redirect_gateway(&self, new: Option<&str>, resumed: Option<&str>) {
        let mut world = self.world();
        world.gateway_url = new.map(str::to_owned);
        world.resume_url = resumed.map(str::to_owned);
    }

    /// Stores a file, and returns its description in a message.
    pub fn attachment(&self, name: &str, mime: &str, bytes: &[u8]) -> Value {
        let id = self.world().next_id();
        let path = format!("/attachments/{id}/{name}");
        self.world().files.insert(path.clone(), bytes.to_vec());
        let url = format!("http://{}{path}?ex=1&is=2&hm=3", self.address);
        json!({
            "id": id, "filename": name, "content_type": mime, "size": bytes.len(), "url": url, "proxy_url": url,
        })
    }

    /// Lets a file lead to another address.
    pub fn redirect_file(&self, attachment: &Value, to: &str) {
        let url = attachment["url"].as_str().unwrap_or_default();
        let path = url.split_once("/attachments").map(|(_, path)| path.split('?').next().unwrap_or_default());
        let path = format!("/attachments{}", path.unwrap_or_default());
        self.world().redirects.insert(path, to.to_owned());
    }

    /// The messages of the bot, as they are now.
    pub fn posts(&self) -> Vec<Value> {
        let world = self.world();
        world.messages.iter().filter(|message| message["author"]["id"] == BOT).cloned().collect()
    }

    pub fn uploads(&self) -> Vec<(String, Vec<u8>)> {
        self.world().uploads.clone()
    }

    /// The bodies of a route's requests.
    pub fn calls(&self, route: &str) -> Vec<Value> {
        let world = self.world();
        world.calls.iter().filter(|(name, _)| name == route).map(|(_, body)| body.clone()).collect()
    }

    /// How many sessions began, and how many were resumed.
    pub fn sessions(&self) -> (usize, usize) {
        let world = self.world();
        (world.identified, world.resumed)
    }

    pub fn is_connected(&self) -> bool {
        self.world()
            .sessions
            .values()
            .any(|session| session.socket.as_ref().is_some_and(|socket| !socket.is_closed()))
    }

    pub fn heartbeats(&self) -> usize {
        self.world().heartbeats
    }

    /// The codes that clients closed with.
    pub fn close_codes(&self) -> Vec<u16> {
        self.world().close_codes.clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        loop {
            // Clients also begin a WebSocket on a connection that they used before.
            let mut start = [0; 6];
            if stream.peek(&mut start).await.is_ok() && start.starts_with(b"GET /?") {
                self.socket(stream).await;
                return;
            }
            let Ok(Some(call)) = Call::read(&mut stream).await else { return };
            let Some(answer) = self.answer(&call) else { return };
            if answer.write(&mut stream).await.is_err() {
                return;
            }
        }
    }
}

impl World {
    fn next_id(&mut self) -> String {
        self.next += 1;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(0);
        (id_at(now).parse::<u64>().unwrap_or(0) + (self.next & 0x3f_ffff)).to_string()
    }

    fn order(&mut self, order: impl Fn() -> Order) {
        for session in self.sessions.values_mut() {
            if let Some(socket) = session.socket.take() {
                let _ = socket.send(order());
            }
        }
    }
}
