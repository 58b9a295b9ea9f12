//! A hand-written HTTP/1.1 client, which can send invalid requests and see every header.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::Gateway;

/// No test waits longer for one response.
const PATIENCE: Duration = Duration::from_secs(150);

/// The gateway answers a call with a deadline at most this much after the deadline.
const LATER: Duration = Duration::from_secs(10);

/// `Connection` is one TCP connection to a gateway.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Clone, PartialEq)]
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Connection {
        Connection::try_open(address).unwrap()
    }

    fn try_open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(90)))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    pub fn ask(
        &mut self,
        gateway: &Gateway,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.begin(gateway, method, path, headers, body);
        self.read().unwrap()
    }

    /// Sends a request and does not wait. A header with an empty value is left out.
    pub fn begin(
        &mut self,
        gateway: &Gateway,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        let text = head(gateway.address, &gateway.token, method, path, headers, body.len());
        // A server that answers early may close before all is sent.
        let _ = self.write(&[text.as_bytes(), body].concat());
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sets the read timeout.
    pub fn patience(&self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
    }

    /// Reads the next response. Fails when the connection ends or times out.
    pub fn read(&mut self) -> io::Result<Response> {
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break self.buffer.drain(..end + 4).collect::<Vec<u8>>();
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {head:?}")))?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let mut response = Response { status, headers, body: Vec::new() };
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = self.chunks()?;
            return Ok(response);
        }
        let length = response.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        while self.buffer.len() < length {
            self.more()?;
        }
        response.body = self.buffer.drain(..length).collect();
        Ok(response)
    }

    /// Reads a chunked body to its end.
    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match find(&self.buffer, b"\r\n") {
                    Some(end) => break end,
                    None => self.more()?,
                }
            };
            let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let length = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16);
            let length = length.map_err(io::Error::other)?;
            while self.buffer.len() < length + 2 {
                self.more()?;
            }
            body.extend(self.buffer.drain(..length));
            self.buffer.drain(..2);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// Reports whether the other side closes the connection without sending anything more.
    pub fn is_closed_within(&mut self, time: Duration) -> bool {
        self.patience(time);
        match self.stream.read(&mut [0; 1024]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(err) => err.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.buffer.extend_from_slice(&chunk[..read]);
                Ok(())
            }
        }
    }
}

/// Shows the body as text, for messages of failed tests.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.text())
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the values of all headers of that name.
    pub fn header_values(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|err| panic!("{err} in {} {}", self.status, self.text()))
    }

    /// Returns the code of an error response, which must also have a message.
    pub fn code(&self) -> String {
        let json = self.json();
        let error = &json["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{json}");
        error["code"].as_str().unwrap_or_else(|| panic!("no code in {json}")).to_owned()
    }
}

/// Sends one request on a new connection. The read timeout grows with the request's own deadline.
pub(crate) fn request(
    address: SocketAddr,
    token: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let mut connection = Connection::try_open(address)?;
    let deadline = headers.iter().find(|(name, _)| *name == "Gantry-Deadline-Ms");
    let deadline = deadline.and_then(|(_, ms)| ms.parse().ok()).map(Duration::from_millis);
    connection.patience(PATIENCE.max(deadline.unwrap_or_default() + LATER));
    let text = head(address, token, method, path, headers, body.len());
    connection.write(&[text.as_bytes(), body].concat())?;
    connection.read()
}

fn head(
    address: SocketAddr,
    token: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    length: usize,
) -> String {
    let defaults = [
        ("Host", address.to_string()),
        ("Authorization", format!("Bearer {token}")),
        ("Content-Length", length.to_string()),
    ];
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in &defaults {
        if !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
            text += &format!("{name}: {value}\r\n");
        }
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n"
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
