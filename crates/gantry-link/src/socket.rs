//! The WebSocket below a link, for the client and the server side.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{ClientBuilder, Config, Limits, ServerBuilder, WebSocketStream};

use crate::handshake::HandshakeError;
use crate::intake::Metered;
use gantry_protocol::MAX_CONNECT_BYTES;

/// Either side, over TCP or TLS. Only small frames are accepted until the handshake is done.
pub type Socket<S> = WebSocketStream<Metered<S>>;

/// Frames up to this many bytes are collected before a write, so that a burst costs one system call.
const FLUSH_THRESHOLD: usize = 256 * 1024;

/// Requests the WebSocket upgrade on a dialled connection.
pub async fn upgrade<S>(stream: S, uri: &str) -> Result<Socket<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let builder = ClientBuilder::new().uri(uri).map_err(|err| HandshakeError::Address(err.to_string()))?;
    let builder = builder.config(config()).limits(handshake_limits());
    let (socket, _) = builder
        .connect_on(Metered::new(stream))
        .await
        .map_err(|err| HandshakeError::Upgrade(err.to_string()))?;
    Ok(socket)
}

/// Wraps a connection that a server has upgraded.
pub fn accepted<S>(stream: S) -> Socket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    ServerBuilder::new().config(config()).limits(handshake_limits()).serve(Metered::new(stream))
}

fn config() -> Config {
    Config::default().flush_threshold(FLUSH_THRESHOLD)
}

fn handshake_limits() -> Limits {
    Limits::default().max_payload_len(Some(MAX_CONNECT_BYTES))
}
