//! A blocking client of the WebSocket protocol. It keeps every answer, so that a duplicate is seen.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// `Socket` is a connected client.
pub struct Socket {
    /// Answers to pings are written by another thread.
    writing: Arc<Mutex<TcpStream>>,
    heard: Arc<Heard>,
    next: AtomicU64,
}

#[derive(Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    answers: HashMap<u64, Vec<Value>>,
    /// Why there will be no more.
    closed: Option<String>,
}

impl Socket {
    pub fn connect(address: SocketAddr, token: &str) -> Socket {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let upgrade = format!(
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(upgrade.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        let heard = Arc::new(Heard::default());
        let socket = Socket {
            writing: Arc::new(Mutex::new(stream.try_clone().unwrap())),
            heard: heard.clone(),
            next: AtomicU64::new(1),
        };
        let answering = socket.writing.clone();
        std::thread::spawn(move || {
            let reason = listen(stream, &answering, &heard);
            heard.state.lock().unwrap().closed = Some(reason);
            heard.changed.notify_all();
        });
        let id = socket.request(
            "connect",
            &json!({"protocol": {"min": 1, "max": 1}, "role": "client", "id": "tester", "version": "0",
                    "platform": "linux-x64", "token": token}),
            None,
        );
        let welcome = socket.answer(id, Duration::from_secs(10)).unwrap();
        assert_eq!(welcome["ok"], true, "{welcome}");
        socket
    }

    /// Sends a request and returns its id, for [`Socket::answer`].
    pub fn request(&self, method: &str, params: &Value, deadline: Option<Duration>) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut frame = json!({"type": "req", "id": id, "method": method, "params": params});
        if let Some(deadline) = deadline {
            frame["deadlineMs"] = json!(deadline.as_millis() as u64);
        }
        let _ = write(&mut self.writing.lock().unwrap(), 1, frame.to_string().as_bytes());
        id
    }

    pub fn begin_call(&self, tool: &str, input: &Value, deadline: Duration) -> u64 {
        self.request("tool.call", &json!({"tool": tool, "input": input}), Some(deadline))
    }

    /// Returns the first answer to a request, or `None` when it times out or the socket closes.
    pub fn answer(&self, id: u64, within: Duration) -> Option<Value> {
        let until = Instant::now() + within;
        let mut state = self.heard.state.lock().unwrap();
        loop {
            if let Some(answers) = state.answers.get(&id) {
                return answers.first().cloned();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed.is_some() {
                return None;
            }
            state = self.heard.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Calls a tool and waits for the answer.
    pub fn call(&self, tool: &str, input: &Value) -> Value {
        let id = self.begin_call(tool, input, Duration::from_secs(60));
        self.answer(id, Duration::from_secs(70)).unwrap_or_else(|| panic!("{tool} was not answered"))
    }

    /// Returns the requests that were answered more than once.
    pub fn answered_twice(&self) -> Vec<u64> {
        let state = self.heard.state.lock().unwrap();
        state.answers.iter().filter(|(_, answers)| answers.len() > 1).map(|(id, _)| *id).collect()
    }

    /// Why the socket was closed, once it was.
    pub fn closed(&self, within: Duration) -> Option<String> {
        let state = self.heard.state.lock().unwrap();
        let waited = self.heard.changed.wait_timeout_while(state, within, |state| state.closed.is_none());
        waited.unwrap().0.closed.clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = self.writing.lock().unwrap().shutdown(std::net::Shutdown::Both);
    }
}

/// A masked frame, as clients have to send them.
fn write(stream: &mut TcpStream, opcode: u8, payload: &[u8]) -> std::io::Result<()> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length @ 126..65536 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    let mask = [7, 11, 13, 17];
    frame.extend(mask);
    frame.extend(payload.iter().enumerate().map(|(index, byte)| byte ^ mask[index % 4]));
    stream.write_all(&frame)
}

/// Reads until the end, and says what that was.
fn listen(mut stream: TcpStream, answering: &Mutex<TcpStream>, heard: &Heard) -> String {
    let mut message = Vec::new();
    loop {
        let (first, payload) = match read(&mut stream) {
            Ok(frame) => frame,
            Err(err) if err.kind() == ErrorKind::UnexpectedEof => return "ended without a reason".into(),
            Err(err) => return err.to_string(),
        };
        match first & 0x0f {
            8 => return String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned(),
            9 => {
                let _ = write(&mut answering.lock().unwrap(), 10, &payload);
            }
            10 => {}
            _ => {
                message.extend(payload);
                if first & 0x80 != 0 {
                    take(heard, &std::mem::take(&mut message));
                }
            }
        }
    }
}

fn read(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let length = match head[1] & 0x7f {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            u64::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length)?;
            u64::from_be_bytes(length)
        }
        length => u64::from(length),
    };
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload)?;
    Ok((head[0], payload))
}

fn take(heard: &Heard, text: &[u8]) {
    let frame: Value = serde_json::from_slice(text).unwrap();
    if frame["type"] == "res" {
        let mut state = heard.state.lock().unwrap();
        state.answers.entry(frame["id"].as_u64().unwrap()).or_default().push(frame);
        heard.changed.notify_all();
    }
}
