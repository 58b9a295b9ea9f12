//! A server that is a program: one message a line on its standard streams. Whatever it writes is bounded.

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

/// Of one message.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Lines that are no messages: some programs greet, none goes on and on.
const MAX_STRAY_LINES: usize = 100;
/// Messages that answer nothing, within a second. A server that talks faster is not listened to.
const MAX_UNASKED: usize = 5_000;
const UNASKED_WITHIN: Duration = Duration::from_secs(1);
/// A server that has not taken a message by then will not.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// For a server whose standard input was closed to leave by itself.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Of standard error, the newest.
const STDERR_BYTES: usize = 4 * 1024;

/// What became of a server's program, for whoever has to tell.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) process: Arc<PipedProcess>,
    /// Why we stopped listening, if it was us.
    broken: Arc<OnceLock<String>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
}

impl Program {
    /// The reason for its silence, with what it said last.
    pub(super) async fn last_words(&self) -> String {
        // The end of a program and the end of its output are told apart by milliseconds.
        let ended = self.process.wait(Duration::from_millis(200)).await;
        let why = match (self.broken.get(), ended) {
            (Some(broken), _) => broken.clone(),
            (None, Some(ended)) => match (ended.exit.code, ended.exit.signal) {
                (_, Some(signal)) => format!("it was ended by {signal}"),
                (Some(code), None) => format!("it exited with code {code}"),
                (None, None) => "it has ended".to_owned(),
            },
            (None, None) => "it has closed its standard output".to_owned(),
        };
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let said: Vec<String> = lines.into_iter().rev().map(shown).collect();
        if said.is_empty() { why } else { format!("{why}; it said: {}", said.join(" / ")) }
    }

    /// Whether it is not worth listening to any more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Lets it leave by itself for a moment, then ends it and all it has started.
    pub(super) async fn end(&self) {
        if self.process.wait(LEAVE_LIMIT).await.is_none() {
            self.process.terminate().await;
        }
    }
}

pub(super) struct Stdio {
    stdin: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    stdout: pipe::Receiver,
    /// What was read and not yet understood, beginning with a new line.
    inbox: Vec<u8>,
    /// How much of it has been searched for the end of the line.
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
    #[error("the message cannot be written: {0}")]
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

    /// The next line, without its end; `None` at the end of the stream. May be dropped and called again.
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
            // A pipe that cannot be read is a pipe at its end.
            if !matches!(self.stdout.read_buf(&mut self.inbox).await, Ok(1..)) {
                return None;
            }
        }
    }

    /// Whether there is still reason to listen to somebody who said this.
    fn bears(&mut self, message: &ServerJsonRpcMessage) -> bool {
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
                Ok(message) if self.bears(&message) => return Some(message),
                Ok(_) => {
                    self.give_up(format!(
                        "it sent more than {MAX_UNASKED} messages a second that nobody asked for"
                    ));
                    return None;
                }
                Err(_) => {
                    self.stray += 1;
                    if self.stray >= MAX_STRAY_LINES {
                        self.give_up(format!("it does not speak the protocol; it wrote: {}", shown(&text)));
                        return None;
                    }
                    // Kept as the reason in case nothing better follows.
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
        // Whoever still writes to a server that does not read must not keep it.
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
