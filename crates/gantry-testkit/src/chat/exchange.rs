//! The HTTP that the chat servers need: whole requests in, whole answers out.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    /// Decoded, and without the query.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// With names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Call {
    /// Reads the next request of a connection. Returns none at its end.
    pub(super) async fn read(stream: &mut TcpStream) -> io::Result<Option<Call>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return Ok(None),
            }
        }
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let mut lines = head.trim_end().split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let (method, path, query) = (method.to_owned(), decoded(path), pairs(query));
        let mut call = Call { method, path, query, headers, body: Vec::new() };
        if call.header("transfer-encoding").is_some_and(|value| value == "chunked") {
            call.body = chunks(stream).await?;
        } else {
            let length = call.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            call.body = vec![0; length];
            stream.read_exact(&mut call.body).await?;
        }
        Ok(Some(call))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The fields of a `multipart/form-data` body: name, file name and value.
    pub(super) fn parts(&self) -> Vec<(String, Option<String>, Vec<u8>)> {
        let content_type = self.header("content-type").unwrap_or_default();
        let boundary = content_type.split("boundary=").nth(1).unwrap_or_default().trim_matches('"');
        let separator = format!("--{boundary}").into_bytes();
        let mut parts = Vec::new();
        let mut rest = &self.body[..];
        while let Some(at) = find(rest, &separator) {
            rest = &rest[at + separator.len()..];
            let Some(head_end) = find(rest, b"\r\n\r\n") else { break };
            let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
            let body = &rest[head_end + 4..];
            let Some(end) = find(body, &separator) else { break };
            let attribute = |name: &str| {
                let after = head.split(&format!("{name}=\"")).nth(1)?;
                Some(after.split('"').next()?.to_owned())
            };
            if let Some(name) = attribute("; name") {
                parts.push((name, attribute("filename"), body[..end.saturating_sub(2)].to_vec()));
            }
        }
        parts
    }

    pub fn is_json(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("application/json"))
    }

    /// The fields of the query and of the body, whether it is JSON or a form.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields: Map<String, Value> =
            self.query.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        if self.is_json() {
            if let Ok(Value::Object(body)) = serde_json::from_slice(&self.body) {
                fields.extend(body);
            }
        } else if let Ok(text) = std::str::from_utf8(&self.body) {
            fields.extend(pairs(text).into_iter().map(|(name, value)| (name, Value::from(value))));
        }
        fields
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

async fn chunks(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(stream.read_u8().await?);
        }
        let size = std::str::from_utf8(&line).unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).await?;
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

/// Decodes `a=1&b=2`.
pub(super) fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (byte, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(status: u16, body: &Value) -> Answer {
        Answer::bytes(status, "application/json", body.to_string().into_bytes())
    }

    pub(super) fn bytes(status: u16, kind: &str, body: Vec<u8>) -> Answer {
        Answer { status, headers: vec![("Content-Type".to_owned(), kind.to_owned())], body }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) async fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut text = format!("HTTP/1.1 {} Answer\r\n", self.status);
        if self.status != 204 {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        // One piece: a second one would wait until the first is confirmed.
        let whole = [text.as_bytes(), &self.body].concat();
        stream.write_all(&whole).await
    }
}

/// What happens to a request.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Answer(Answer),
    /// The connection ends.
    Cut,
    /// Nothing is ever answered.
    Mute,
}

/// Serves on a free port of the loopback interface until the runtime ends.
pub(super) async fn serve<H, R>(handler: H) -> SocketAddr
where
    H: Fn(Call) -> R + Send + Sync + 'static,
    R: Future<Output = Reply> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(handler);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let handler = Arc::clone(&handler);
            tokio::spawn(async move {
                while let Ok(Some(call)) = Call::read(&mut stream).await {
                    match handler(call).await {
                        Reply::Answer(answer) if answer.write(&mut stream).await.is_ok() => {}
                        Reply::Answer(_) | Reply::Cut => return,
                        Reply::Mute => std::future::pending().await,
                    }
                }
            });
        }
    });
    address
}
