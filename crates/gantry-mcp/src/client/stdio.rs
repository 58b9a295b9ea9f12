//! A server that is a program, with one message per line on its standard streams. Its output is bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gantry_process::{Piped, PipedProcess};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::sanitize::shown;
use super::wire::Lists;

/// Maximum size of one message.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum lines that are not messages. Some programs print a greeting.
const MAX_STRAY_LINES: usize = 100;
/// Maximum unsolicited messages per second. A server that sends more is disconnected.
const MAX_UNASKED: usize = 5_000;
const UNASKED_WITHIN: Duration = Duration::from_secs(1);
/// Timeout of a write.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a program may take to exit after its standard input is closed.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Bytes of standard error that are kept, the newest ones.
const STDERR_BYTES: usize = 4 * 1024;

/// `Program` reports why a server's program ended.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) process: Arc<PipedProcess>,
    /// Why Gantry closed the connection, if it did.
    broken: Arc<OnceLock<String>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
}

impl Program {
    /// Returns why the program ended, with its last output.
    pub(super) async fn last_words(&self) -> String {
        // The exit is reported some milliseconds after the end of the output.
        let ended = self.process.wait(Duration::from_millis(200)).await;
        let why = match (self.broken.get(), ended) {
            (Some(broken), _) => broken.clone(),
            (None, Some(ended)) => match (ended.exit.code, ended.exit.signal) {
                (_, Some(signal)) => format!("it was killed by {signal}"),
                (Some(code), None) => format!("it exited with code {code}"),
                (None, None) => "it exited".to_owned(),
            },
            (None, None) => "it closed its standard output".to_owned(),
        };
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let said: Vec<String> = lines.into_iter().rev().map(shown).collect();
        if said.is_empty() { why } else { format!("{why}; its last output: {}", said.join(" / ")) }
    }

    /// Returns whether the connection was given up.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Waits shortly for the program to exit, then ends it and its processes.
    pub(super) async fn end(&self) {
        if self.process.wait(LEAVE_LIMIT).await.is_none() {
            self.process.terminate().await;
        }
    }
}

pub(super) struct Stdio {
    stdin: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    stdout: pipe::Receiver,
    /// Unparsed input, starting with a new line.
    inbox: Vec<u8>,
    /// How much of it was searched for a line end.
    searched: usize,
    stray: usize,
    unasked: (Instant, usize),
    lists: Lists,
    program: Program,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum StdioError {
    #[error("it does not read its standard input")]
    NotRead,
    #[error("its standard input is closed")]
    Closed,
    #[error("cannot write the message: {0}")]
    Encode(serde_json::Error),
}

impl Stdio {
    pub(super) fn new(piped: Piped, lists: Lists) -> Stdio {
        let Piped { stdin, stdout, stderr, process } = piped;
        let program = Program { process: Arc::new(process), broken: Arc::default(), stderr: Arc::default() };
        tokio::spawn(keep_tail(stderr, program.stderr.clone()));
        Stdio {
            stdin: Arc::new(tokio::sync::Mutex::new(Some(stdin))),
            stdout,
            inbox: Vec::new(),
            searched: 0,
            stray: 0,
            unasked: (Instant::now(), 0),
            lists,
            program,
        }
    }

    pub(super) fn program(&self) -> Program {
        self.program.clone()
    }

    /// Returns the next line without its end, or `None` at the end of the stream. It is cancel-safe.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.inbox[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.inbox.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.inbox, rest);
                self.searched = 0;
                line.pop();
                return Some(line);
            }
            self.searched = self.inbox.len();
            if self.inbox.len() > MAX_MESSAGE_BYTES {
                self.give_up(format!("it sent a line longer than {MAX_MESSAGE_BYTES} bytes"));
                return None;
            }
            self.inbox.reserve(64 * 1024);
            // A read error counts as the end of the stream.
            if !matches!(self.stdout.read_buf(&mut self.inbox).await, Ok(1..)) {
                return None;
            }
        }
    }

    /// Counts unsolicited messages. Returns false if the server sends too many.
    fn is_tolerable(&mut self, message: &ServerJsonRpcMessage) -> bool {
        if matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)) {
            return true;
        }
        if self.unasked.0.elapsed() > UNASKED_WITHIN {
            self.unasked = (Instant::now(), 0);
        }
        self.unasked.1 += 1;
        self.unasked.1 <= MAX_UNASKED
    }

    fn give_up(&self, reason: String) {
        let _ = self.program.broken.set(reason);
    }
}

impl Transport<RoleClient> for Stdio {
    type Error = StdioError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), StdioError>> + Send + 'static {
        write(self.stdin.clone(), self.program.broken.clone(), message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let line = self.line().await?;
            tokio::task::coop::consume_budget().await;
            let text = String::from_utf8_lossy(&line);
            if text.trim().is_empty() {
                continue;
            }
            match self.lists.message(&text) {
                Ok(message) if self.is_tolerable(&message) => return Some(message),
                Ok(_) => {
                    self.give_up(format!("it sent more than {MAX_UNASKED} unsolicited messages per second"));
                    return None;
                }
                Err(_) => {
                    self.stray += 1;
                    if self.stray >= MAX_STRAY_LINES {
                        self.give_up(format!("it does not use the protocol; it wrote: {}", shown(&text)));
                        return None;
                    }
                    // Kept, in case it explains a later failure.
                    if self.stray == 1 {
                        let mut stderr = self.program.stderr.lock().unwrap_or_else(PoisonError::into_inner);
                        let note = format!("(on standard output) {}\n", shown(&text));
                        stderr.extend(note.as_bytes());
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), StdioError> {
        // A blocked write must not prevent closing.
        if let Ok(mut stdin) = tokio::time::timeout(LEAVE_LIMIT, self.stdin.lock()).await {
            *stdin = None;
        }
        self.program.end().await;
        Ok(())
    }
}

async fn write(
    stdin: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    broken: Arc<OnceLock<String>>,
    message: ClientJsonRpcMessage,
) -> Result<(), StdioError> {
    let mut line = serde_json::to_vec(&message).map_err(StdioError::Encode)?;
    line.push(b'\n');
    let writing = async {
        let mut stdin = stdin.lock().await;
        let feed = stdin.as_mut().ok_or(StdioError::Closed)?;
        feed.write_all(&line).await.map_err(|_| StdioError::Closed)
    };
    match tokio::time::timeout(WRITE_LIMIT, writing).await {
        Ok(written) => written,
        Err(_) => {
            let _ = broken.set(StdioError::NotRead.to_string());
            Err(StdioError::NotRead)
        }
    }
}

async fn keep_tail(mut stderr: pipe::Receiver, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(&buffer[..count]);
        let beyond = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..beyond);
    }
}
