//! A web server for tests that check requests part by part: a search provider, a page, a canary.

use gantry_net::{Client, ClientOptions, HostPattern};

use super::site::{Site, answer};

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub method: String,
    /// Path and query as received.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl ReceivedRequest {
    fn read(request: &str) -> ReceivedRequest {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let mut first = lines.next().unwrap().split(' ');
        let (method, target) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        ReceivedRequest { method, target, headers: lines.filter_map(pair).collect(), body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }
}

/// A response of the server.
#[derive(Debug, Clone)]
pub struct TestResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl TestResponse {
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> TestResponse {
        TestResponse { status, headers: vec![("content-type", content_type.to_owned())], body: body.into() }
    }

    pub fn json(status: u16, body: &serde_json::Value) -> TestResponse {
        TestResponse::new(status, "application/json", body.to_string())
    }

    pub fn html(body: &str) -> TestResponse {
        TestResponse::new(200, "text/html; charset=utf-8", body)
    }

    fn bytes(&self) -> Vec<u8> {
        let lines: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        answer(&format!("{} Test", self.status), &lines, &self.body)
    }
}

/// A [`Site`] with parsed requests and responses.
pub struct WebServer {
    site: Site,
}

impl WebServer {
    pub fn start(respond: impl Fn(&ReceivedRequest) -> TestResponse + Send + Sync + 'static) -> WebServer {
        WebServer { site: Site::start(move |request| respond(&ReceivedRequest::read(request)).bytes()) }
    }

    /// Starts a server that returns the same response to every request.
    pub fn always(response: TestResponse) -> WebServer {
        WebServer::start(move |_| response.clone())
    }

    /// The URL without a final slash.
    pub fn url(&self) -> String {
        self.site.url("")
    }

    pub fn port(&self) -> u16 {
        self.site.port
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.site.seen().iter().map(|request| ReceivedRequest::read(request)).collect()
    }

    pub fn connections(&self) -> usize {
        self.site.connections()
    }
}

/// Returns a guarded client that may reach the test's servers and public addresses only.
pub fn client_to_loopback() -> Client {
    let allowed_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    Client::new(ClientOptions { allowed_hosts, ..ClientOptions::default() })
}
