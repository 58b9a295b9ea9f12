//! The smallest HTTP/1.1 server that the fakes need.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MAX_REQUEST: usize = 64 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Reply {
        status: u16,
        content_type: String,
        /// Headers besides those of the body.
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Closes the connection.
    Cut,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Answer {
        Answer::bytes(status, "application/json", body.to_string().into_bytes())
    }

    pub(crate) fn bytes(status: u16, content_type: &str, body: Vec<u8>) -> Answer {
        Answer::Reply { status, content_type: content_type.to_owned(), headers: Vec::new(), body }
    }
}

type Handler = Arc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

/// Serves on a free port of the loopback interface until the runtime ends.
pub(crate) async fn serve<F, A>(handler: F) -> SocketAddr
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handler = Arc::clone(&handler);
            tokio::spawn(async move {
                let _ = connection(stream, handler).await;
            });
        }
    });
    address
}

async fn connection(mut stream: TcpStream, handler: Handler) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        match handler(request).await {
            Answer::Reply { status, content_type, headers, body } => {
                let more = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
                let head = format!(
                    "HTTP/1.1 {status} Fake\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{}\r\n",
                    body.len(),
                    more.collect::<String>()
                );
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body).await?;
            }
            Answer::Cut => return Ok(()),
        }
    }
    Ok(())
}

/// Reads the next request; `None` when the client is done.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if buffer.len() > MAX_REQUEST || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    let mut request = Request { method, path, headers, body: Vec::new() };
    let length: usize = request.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    while buffer.len() < length {
        if length > MAX_REQUEST || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    request.body = buffer.drain(..length).collect();
    Ok(Some(request))
}
