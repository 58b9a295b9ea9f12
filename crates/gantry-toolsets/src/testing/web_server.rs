//! A web site for tests that look at requests part by part: a provider, a page, a canary.

use gantry_net::{Client, ClientOptions, HostPattern};

use super::site::{Site, answer};

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
    fn read(request: &str) -> Asked {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let mut first = lines.next().unwrap().split(' ');
        let (method, target) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Asked { method, target, headers: lines.filter_map(pair).collect(), body: body.to_owned() }
    }

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

    fn bytes(&self) -> Vec<u8> {
        let lines: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        answer(&format!("{} Said", self.status), &lines, &self.body)
    }
}

/// A [`Site`] whose requests and answers are taken apart.
pub struct WebServer {
    site: Site,
}

impl WebServer {
    pub fn start(say: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> WebServer {
        WebServer { site: Site::start(move |request| say(&Asked::read(request)).bytes()) }
    }

    /// One that says the same to everybody.
    pub fn saying(said: Said) -> WebServer {
        WebServer::start(move |_| said.clone())
    }

    /// Without a slash at the end.
    pub fn url(&self) -> String {
        self.site.url("")
    }

    pub fn port(&self) -> u16 {
        self.site.port
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.site.seen().iter().map(|request| Asked::read(request)).collect()
    }

    pub fn connections(&self) -> usize {
        self.site.connections()
    }
}

/// A guarded client that may reach servers of the test, and nothing else that is not public.
pub fn client_to_loopback() -> Client {
    let allowed_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    Client::new(ClientOptions { allowed_hosts, ..ClientOptions::default() })
}
