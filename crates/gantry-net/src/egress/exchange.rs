//! One HTTP request and its answer. Bytes that follow the request are never forwarded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;

use super::framing::{Framing, SendError, Source, send};
use super::head::ResponseHead;
use super::peer::{Peer, take_head};
use super::record::{EgressOutcome, Traffic};
use super::refusal::Refusal;
use super::relay::pump;
use super::request::{PlainRequest, UpstreamProxy, write_headers};

const SWITCHING_PROTOCOLS: u16 = 101;
const NO_CONTENT: u16 = 204;
const NOT_MODIFIED: u16 = 304;
/// The proxy closes the client's connection after the answer, and says so.
const NOT_RETURNED: &[&str] = &["connection", "keep-alive", "proxy-connection", "upgrade"];

/// `Interrupted` says why an exchange failed, and whether the client already got a part of the
/// answer.
#[derive(Debug)]
pub(super) struct Interrupted {
    pub(super) refusal: Refusal,
    pub(super) answered: bool,
}

/// Sends the request and its body, and returns the answer to the client, at the same time.
pub(super) async fn exchange(
    client: &mut Peer,
    request: &PlainRequest,
    server: TcpStream,
    proxy: Option<&UpstreamProxy>,
    traffic: &Traffic,
    idle: Duration,
) -> Result<(), Interrupted> {
    let answered = AtomicBool::new(false);
    let interrupted = |refusal| Interrupted { refusal, answered: answered.load(Ordering::Relaxed) };
    let mut server = Peer::new(server);
    let (client_read, client_write) = client.tcp.split();
    let mut source = Source { ahead: &mut client.ahead, tcp: client_read };
    let Peer { tcp, ahead } = &mut server;
    let (server_read, mut server_write) = tcp.split();
    let mut answer = Source { ahead, tcp: server_read };

    let head = request.forwarded(proxy);
    let send = async {
        send(&head, &mut server_write, traffic).await?;
        source.send_body(request.framing, &mut server_write, traffic).await
    };
    let receive = receive(&mut answer, client_write, request.method == "HEAD", traffic, &answered);
    tokio::pin!(receive);
    tokio::select! {
        sent = send => match sent {
            Ok(()) => {}
            // The server may have answered before it closed.
            Err(SendError::Server) => {}
            Err(SendError::Client(refusal)) => return Err(interrupted(refusal)),
        },
        received = &mut receive => return received.map_err(interrupted),
        () = traffic.idle(idle) => return Err(interrupted(Refusal::idle())),
    }
    let ended = async {
        source.drain().await;
        // Passes on that the client has closed its side. A failure means that the server is gone.
        let _ = server_write.shutdown().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        received = &mut receive => received.map_err(interrupted),
        () = ended => Ok(()),
        () = traffic.idle(idle) => Err(interrupted(Refusal::idle())),
    }
}

async fn receive(
    server: &mut Source<'_>,
    mut client: WriteHalf<'_>,
    to_head: bool,
    traffic: &Traffic,
    answered: &AtomicBool,
) -> Result<(), Refusal> {
    let client_left = |_| Refusal::left();
    let mut left = loop {
        let bytes = take_head(server.ahead, &mut server.tcp).await;
        let bytes = bytes.map_err(|refusal| Refusal::failed(no_answer(&refusal)))?;
        traffic.down.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let head = ResponseHead::parse(&bytes)?;
        if head.status == SWITCHING_PROTOCOLS {
            return Err(Refusal::failed("the server switched to another protocol, which is not supported"));
        }
        let is_final = head.status >= 200;
        let mut forwarded = head.line.clone();
        forwarded.extend(b"\r\n");
        if is_final {
            forwarded.extend(b"Connection: close\r\n");
        }
        write_headers(&mut forwarded, &head.headers, NOT_RETURNED);
        forwarded.extend(b"\r\n");
        answered.store(true, Ordering::Relaxed);
        client.write_all(&forwarded).await.map_err(client_left)?;
        if is_final {
            break body_length(&head, to_head);
        }
    };
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(server.ahead.len());
    let ahead = server.ahead.split_to(count);
    left -= count as u64;
    traffic.down.fetch_add(ahead.len() as u64, Ordering::Relaxed);
    client.write_all(&ahead).await.map_err(client_left)?;
    let pumped = pump(&mut server.tcp, &mut client, left, &traffic.down).await;
    pumped.map_err(|err| Refusal::failed(format!("the connection broke: {err}")))
}

/// Returns the length of an answer's body, because some servers do not close the connection after
/// it. An answer without a clear length ends when the server or the client closes.
fn body_length(head: &ResponseHead, to_head: bool) -> u64 {
    if to_head || head.status == NO_CONTENT || head.status == NOT_MODIFIED {
        return 0;
    }
    match Framing::of(&head.headers, 1) {
        Ok(Framing::Length(length)) => length,
        Ok(Framing::NoBody | Framing::Chunked) | Err(_) => u64::MAX,
    }
}

fn no_answer(refusal: &Refusal) -> String {
    match &refusal.outcome {
        EgressOutcome::ClientLeft => "the server closed the connection without an answer".to_owned(),
        other => format!("the server's answer is invalid: {}", other.reason()),
    }
}
