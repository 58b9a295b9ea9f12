//! A web server that answers by rote and tells what it was asked: a provider, a page, a canary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use gantry_net::{Client, ClientOptions, HostPattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What it was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    /// Path and query, as they came.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }
}

/// What it answers.
#[derive(Debug, Clone)]
pub struct Said {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Said {
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Said {
        Said { status, headers: vec![("content-type", content_type.to_owned())], body: body.into() }
    }

    pub fn json(status: u16, body: &serde_json::Value) -> Said {
        Said::new(status, "application/json", body.to_string())
    }

    pub fn html(body: &str) -> Said {
        Said::new(200, "text/html; charset=utf-8", body)
    }
}

/// Listens on a port of its own until it is dropped.
pub struct WebServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl WebServer {
    pub async fn start(say: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> WebServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (log, count, say) = (asked.clone(), connections.clone(), Arc::new(say));
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                *count.lock().unwrap() += 1;
                let (log, say) = (log.clone(), say.clone());
                tokio::spawn(async move { serve(stream, &log, &*say).await });
            }
        });
        WebServer { address, asked, connections, task }
    }

    /// One that says the same to everybody.
    pub async fn saying(said: Said) -> WebServer {
        WebServer::start(move |_| said.clone()).await
    }

    /// Without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A guarded client that may reach servers of the test, and nothing else that is not public.
pub fn client_to_loopback() -> Client {
    let allowed_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    Client::new(ClientOptions { allowed_hosts, ..ClientOptions::default() })
}

async fn serve(mut stream: TcpStream, log: &Mutex<Vec<Asked>>, say: &(dyn Fn(&Asked) -> Said + Send + Sync)) {
    let Some(asked) = read(&mut stream).await else { return };
    let said = say(&asked);
    log.lock().unwrap().push(asked);
    let mut head = format!(
        "HTTP/1.1 {} Said\r\nconnection: close\r\ncontent-length: {}\r\n",
        said.status,
        said.body.len()
    );
    said.headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&said.body).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.filter_map(pair).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < head_end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&bytes[head_end..head_end + length]).into_owned();
    Some(Asked { method, target, headers, body })
}
