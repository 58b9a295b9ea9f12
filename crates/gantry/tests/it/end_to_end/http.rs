//! One HTTP request over a connection of its own.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// No test waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(150);

/// Whoever gives a deadline hears by then what came of it, and a little later at most.
const LATER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|err| panic!("{err} in {self:?}"))
    }
}

pub(crate) fn ask(
    address: SocketAddr,
    token: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    let deadline = headers.iter().find(|(name, _)| *name == "Gantry-Deadline-Ms");
    let deadline = deadline.and_then(|(_, ms)| ms.parse().ok()).map(Duration::from_millis);
    stream.set_read_timeout(Some(PATIENCE.max(deadline.unwrap_or_default() + LATER)))?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&answer).ok_or_else(|| Error::new(ErrorKind::UnexpectedEof, "the answer broke off"))
}

fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let body = answer.get(end + 4..end + 4 + length)?;
    Some(Response { status, body: String::from_utf8(body.to_vec()).ok()? })
}
