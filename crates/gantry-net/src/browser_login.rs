//! What every login with a browser needs: a port of this machine that the browser returns to, a state that ties the return
//! to the login, and PKCE.

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Timeout of one request to the page.
const VISIT_LIMIT: Duration = Duration::from_secs(5);
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Maximum requests to the page.
const MAX_VISITS: usize = 100;

/// The secrets of one login.
pub struct LoginSecrets {
    /// Sent with the code, to prove that the same program began the login.
    pub verifier: String,
    /// Comes back with the code.
    pub state: String,
}

impl LoginSecrets {
    pub fn new() -> LoginSecrets {
        LoginSecrets { verifier: random(), state: random() }
    }

    /// The value of `code_challenge`, for the method `S256`.
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

impl Default for LoginSecrets {
    fn default() -> LoginSecrets {
        LoginSecrets::new()
    }
}

/// 256 random bits.
fn random() -> String {
    let bytes = [*uuid::Uuid::new_v4().as_bytes(), *uuid::Uuid::new_v4().as_bytes()].concat();
    URL_SAFE_NO_PAD.encode(blake3::hash(&bytes).as_bytes())
}

/// The parameters with which the browser returned.
pub struct Returned(Url);

impl Returned {
    /// Reads the address that the browser went to. `None` unless it has this state.
    pub fn read(address: &str, state: &str) -> Option<Returned> {
        let returned = Returned(Url::parse(address).ok()?);
        (returned.parameter("state").as_deref() == Some(state)).then_some(returned)
    }

    pub fn parameter(&self, name: &str) -> Option<String> {
        self.0.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }
}

/// A page on this machine that the browser is sent to after a login.
pub struct LoginPage {
    listener: TcpListener,
    path: &'static str,
    port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum LoginPageError {
    #[error("cannot wait for the browser: {0}")]
    Listen(#[from] std::io::Error),
    #[error("too many requests without the login's state")]
    TooManyVisits,
}

impl LoginPage {
    /// Listens on a free port of 127.0.0.1. `path` begins with a slash.
    pub async fn open(path: &'static str) -> Result<LoginPage, LoginPageError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        Ok(LoginPage { listener, path, port })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for `redirect_uri`.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.path)
    }

    /// Waits until the browser returns with this state. `read` decides whether the login worked, which the page shows.
    /// Requests without the state are rejected and change nothing.
    pub async fn wait<T, E>(
        &self,
        state: &str,
        read: impl Fn(&Returned) -> Result<T, E>,
    ) -> Result<Result<T, E>, LoginPageError> {
        for _ in 0..MAX_VISITS {
            let (mut stream, _) = self.listener.accept().await?;
            let Ok(Some(target)) = tokio::time::timeout(VISIT_LIMIT, request_target(&mut stream)).await
            else {
                continue;
            };
            let returned = Returned::read(&format!("http://localhost{target}"), state);
            let returned = returned.filter(|returned| returned.0.path() == self.path);
            let outcome = returned.map(|returned| read(&returned));
            let (status, text) = match &outcome {
                None => ("404 Not Found", "Not found."),
                Some(Ok(_)) => ("200 OK", "You are logged in. You can close this page."),
                Some(Err(_)) => ("400 Bad Request", "The login failed. See the terminal for the reason."),
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
                text.len()
            );
            let _ = tokio::time::timeout(VISIT_LIMIT, stream.write_all(answer.as_bytes())).await;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Err(LoginPageError::TooManyVisits)
    }
}

async fn request_target(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    // Read the whole head, because closing with unread data may lose the answer.
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if bytes.len() > MAX_REQUEST_BYTES || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut words = text.lines().next()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next().map(str::to_owned))?
}
