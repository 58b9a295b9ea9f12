//! A web site on this machine whose responses a test defines, and which records its requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub struct Site {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Site {
    /// `answer` turns a whole request into a whole response: head, blank line, body.
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let site = Site { port, seen: Arc::default(), connections: Arc::default() };
        let (seen, connections, answer) = (site.seen.clone(), site.connections.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || {
                    let _ = serve(stream, &seen, &*answer);
                });
            }
        });
        site
    }

    /// Returns the text of each request as its response.
    pub fn echo() -> Site {
        Site::start(|request| page("text/plain", request))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns every request so far, head and body.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Returns a response of 200 with a body.
pub fn page(content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    answer("200 OK", &format!("Content-Type: {content_type}\r\n"), body)
}

/// Returns a response. `headers` are lines that end with CR LF.
pub fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str) -> Vec<u8>,
) -> std::io::Result<()> {
    let (mut bytes, mut block) = (Vec::new(), [0; 4096]);
    let request = loop {
        let read = stream.read(&mut block)?;
        bytes.extend_from_slice(&block[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if read == 0 {
                return Ok(());
            }
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        if read == 0 || body.len() >= length.unwrap_or(0) {
            break text;
        }
    };
    seen.lock().unwrap().push(request.clone());
    stream.write_all(&answer(&request))
}
