//! The handshake: `connect` is the first request, and every other frame before it is rejected.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_protocol::{
    CloseReason, ConnectParams, ConnectResult, ErrorCode, Frame, MAX_FRAME_BYTES, PROTOCOL_VERSION,
    WireError, method, raw,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{CloseCode, Message};

use crate::socket::Socket;

#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("invalid address: {0}")]
    Address(String),
    #[error("the WebSocket upgrade failed: {0}")]
    Upgrade(String),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("the first frame must be connect: {0}")]
    OutOfTurn(String),
    #[error("{0}")]
    Refused(WireError),
    #[error("invalid answer to connect: {0}")]
    Answer(String),
}

/// A `connect` that waits for its answer.
#[derive(Debug)]
pub struct ConnectRequest {
    pub id: u64,
    pub params: ConnectParams,
}

/// Waits for a peer's `connect`. Any other frame gets an error reply, and the socket is closed.
pub async fn receive_connect<S>(
    socket: &mut Socket<S>,
    within: Duration,
) -> Result<ConnectRequest, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let first = tokio::time::timeout(within, next_message(socket));
    let message = match first.await {
        Ok(Ok(message)) => message,
        Ok(Err(err)) => {
            // The frame was too large: closing sends the library's close frame, which says so.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.close()).await;
            return Err(err);
        }
        Err(_) => {
            let error = HandshakeError::TimedOut(within);
            reject(socket, None, WireError::new(ErrorCode::NotConnected, "connect did not come in time"))
                .await;
            return Err(error);
        }
    };
    let (id, reason) = match message.as_text().map(Frame::parse) {
        None => (None, "a binary frame".to_owned()),
        Some(Err(err)) => (err.id, err.message),
        Some(Ok(Frame::Request { id, method, params, .. })) if method == method::CONNECT => {
            match serde_json::from_str(params.get()) {
                Ok(params) => return Ok(ConnectRequest { id, params }),
                Err(err) => {
                    let message = format!("the parameters of connect are not valid: {err}");
                    reject(socket, Some(id), WireError::new(ErrorCode::BadParams, &*message)).await;
                    return Err(HandshakeError::OutOfTurn(message));
                }
            }
        }
        Some(Ok(Frame::Request { id, method, .. })) => {
            let shown: String = method.chars().take(40).collect();
            (Some(id), format!("the request \"{shown}\""))
        }
        Some(Ok(Frame::Response { id, .. } | Frame::Cancel { id })) => {
            (Some(id), "a response or a cancellation".to_owned())
        }
        Some(Ok(Frame::Event { .. })) => (None, "an event".to_owned()),
    };
    let error = WireError::new(ErrorCode::NotConnected, format!("connect comes first: {reason}"));
    reject(socket, id, error).await;
    Err(HandshakeError::OutOfTurn(reason))
}

impl ConnectRequest {
    /// Accepts the peer. Large frames are allowed from now on.
    pub async fn accept<S>(self, socket: &mut Socket<S>, result: &ConnectResult) -> Result<(), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        socket.limits_mut().set_max_payload_len(Some(MAX_FRAME_BYTES));
        let frame = Frame::Response { id: self.id, outcome: Ok(raw(result)) };
        socket.send(Message::text(frame.to_text())).await.map_err(lost)
    }

    /// Replies with the error and closes the socket.
    pub async fn refuse<S>(self, socket: &mut Socket<S>, error: WireError)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        reject(socket, Some(self.id), error).await;
    }
}

/// Sends `connect` to the peer that was dialled.
pub async fn connect<S>(
    socket: &mut Socket<S>,
    params: &ConnectParams,
    within: Duration,
) -> Result<ConnectResult, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let exchange = async {
        let request =
            Frame::Request { id: 0, method: method::CONNECT.into(), params: raw(params), deadline_ms: None };
        socket.send(Message::text(request.to_text())).await.map_err(lost)?;
        let message = next_message(socket).await?;
        let text = message.as_text().ok_or_else(|| HandshakeError::Answer("a binary frame".into()))?;
        match Frame::parse(text) {
            Ok(Frame::Response { outcome: Ok(result), .. }) => {
                serde_json::from_str(result.get()).map_err(|err| HandshakeError::Answer(err.to_string()))
            }
            Ok(Frame::Response { outcome: Err(error), .. }) => Err(HandshakeError::Refused(error)),
            Ok(_) => Err(HandshakeError::Answer("a frame of another kind".into())),
            Err(err) => Err(HandshakeError::Answer(err.message)),
        }
    };
    let result = tokio::time::timeout(within, exchange).await;
    let result = result.unwrap_or(Err(HandshakeError::TimedOut(within)))?;
    socket.limits_mut().set_max_payload_len(Some(MAX_FRAME_BYTES));
    Ok(result)
}

/// Returns the next text or binary message. The library answers pings.
async fn next_message<S>(socket: &mut Socket<S>) -> Result<Message, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match socket.next().await {
            Some(Ok(message)) if message.is_text() || message.is_binary() => return Ok(message),
            Some(Ok(message)) => {
                if let Some((code, reason)) = message.as_close() {
                    return Err(HandshakeError::Lost(format!("closed with {} {reason}", u16::from(code))));
                }
            }
            Some(Err(err)) => return Err(HandshakeError::Lost(err.to_string())),
            None => return Err(HandshakeError::Lost("closed".into())),
        }
    }
}

/// How long a rejected peer may take to receive the error.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

async fn reject<S>(socket: &mut Socket<S>, id: Option<u64>, error: WireError)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // No version is agreed on. The response has the message; peers of version 1 read nothing else.
    let reason = CloseReason::Refused { error: error.code }.to_text(PROTOCOL_VERSION);
    let frame = match id {
        Some(id) => Frame::Response { id, outcome: Err(error) },
        None => Frame::Event { event: "error".into(), seq: 1, data: raw(&error) },
    };
    let send_and_close = async {
        let _ = socket.send(Message::text(frame.to_text())).await;
        let _ = socket.send(Message::close(Some(CloseCode::POLICY_VIOLATION), &reason)).await;
        let _ = socket.close().await;
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, send_and_close).await;
}

fn lost(err: tokio_websockets::Error) -> HandshakeError {
    HandshakeError::Lost(err.to_string())
}
