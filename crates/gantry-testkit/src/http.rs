//! HTTP/1.1 by hand, so that odd requests can be made and odd answers seen.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::Up;

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, buffer: Vec::new() }
    }

    pub(crate) fn ask(
        &mut self,
        up: &Up,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.begin(up, method, path, headers, body);
        self.read().unwrap()
    }

    /// Sends a request and does not wait. A header that is given empty is left out.
    pub(crate) fn begin(&mut self, up: &Up, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let defaults = [
            ("Host", up.address.to_string()),
            ("Authorization", format!("Bearer {}", up.token)),
            ("Content-Length", body.len().to_string()),
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
        text += "\r\n";
        // A server that answers early may close before all is sent.
        let _ = self.write(&[text.as_bytes(), body].concat());
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn patience(&self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
    }

    /// The next answer. An error if the connection ends or nothing comes.
    pub(crate) fn read(&mut self) -> io::Result<Response> {
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

    /// A body that comes in pieces, until its end.
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

    /// Whether the other side hangs up, saying nothing more.
    pub(crate) fn is_closed_within(&mut self, time: Duration) -> bool {
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

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All headers of that name.
    pub(crate) fn header_values(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|err| panic!("{err} in {} {}", self.status, self.text()))
    }

    /// The code of an error that is not a tool's own.
    pub(crate) fn code(&self) -> String {
        let json = self.json();
        let error = &json["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{json}");
        error["code"].as_str().unwrap_or_else(|| panic!("no code in {json}")).to_owned()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
