//! A small HTTP server that sends exactly the bytes that a test specifies, and records requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

#[derive(Debug, Clone)]
pub struct Heard {
    /// The address that the client connected to.
    pub at: SocketAddr,
    pub method: String,
    /// As written in the first line of the request.
    pub target: String,
    /// With names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone)]
pub enum Say {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Repeats the same bytes until the client disconnects.
    Forever(Vec<u8>, Duration),
    Close,
}

#[derive(Debug)]
pub struct Site {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    pub heard: Arc<Mutex<Vec<Heard>>>,
}

pub type Script = Arc<dyn Fn(&Heard) -> Vec<Say> + Send + Sync>;

impl Site {
    pub async fn start(script: impl Fn(&Heard) -> Vec<Say> + Send + Sync + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let script: Script = Arc::new(script);
        let site = Site {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            heard: Arc::default(),
        };
        let (connections, heard) = (Arc::clone(&site.connections), Arc::clone(&site.heard));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let at = stream.local_addr().unwrap();
                tokio::spawn(converse(stream, at, Arc::clone(&script), Arc::clone(&heard)));
            }
        });
        site
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

/// Serves the requests of one connection, one after the other, until either side closes it.
pub async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    at: SocketAddr,
    script: Script,
    heard: Arc<Mutex<Vec<Heard>>>,
) {
    let mut read = Vec::new();
    while let Some(request) = hear(&mut stream, at, &mut read).await {
        let said = script(&request);
        heard.lock().unwrap().push(request);
        for say in said {
            match say {
                Say::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Say::Wait(time) => tokio::time::sleep(time).await,
                Say::Forever(bytes, pause) => loop {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                    if pause.is_zero() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(pause).await;
                    }
                },
                Say::Close => return,
            }
        }
    }
}

async fn hear(stream: &mut (impl AsyncRead + Unpin), at: SocketAddr, read: &mut Vec<u8>) -> Option<Heard> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read.drain(..end).collect()).ok()?;
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ');
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut heard =
        Heard { at, method: first.next()?.into(), target: first.next()?.into(), headers, body: Vec::new() };
    let length: usize = heard.header("content-length").map_or(0, |text| text.parse().unwrap_or(0));
    while read.len() < length {
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
    heard.body = read.drain(..length).collect();
    Some(heard)
}

/// Returns a complete answer with its length.
pub fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<Say> {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    vec![Say::Bytes(bytes)]
}
