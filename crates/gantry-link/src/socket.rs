//! The WebSocket below a link, whichever side opened it.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{ClientBuilder, Config, Limits, ServerBuilder, WebSocketStream};

use crate::handshake::HandshakeError;
use crate::intake::Metered;
use gantry_protocol::MAX_CONNECT_BYTES;

/// Either side, over TCP or TLS. Until the handshake is over, frames are small.
pub type Socket<S> = WebSocketStream<Metered<S>>;

/// More than one frame is queued before the socket is written to, so that a burst costs one system call.
const FLUSH_THRESHOLD: usize = 256 * 1024;

/// Asks for the upgrade on a connection that was dialled.
pub async fn upgrade<S>(stream: S, uri: &str) -> Result<Socket<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let builder = ClientBuilder::new().uri(uri).map_err(|err| HandshakeError::Address(err.to_string()))?;
    let builder = builder.config(config()).limits(small());
    let (socket, _) = builder
        .connect_on(Metered::new(stream))
        .await
        .map_err(|err| HandshakeError::Upgrade(err.to_string()))?;
    Ok(socket)
}

/// A connection that a server has upgraded.
pub fn accepted<S>(stream: S) -> Socket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    ServerBuilder::new().config(config()).limits(small()).serve(Metered::new(stream))
}

fn config() -> Config {
    Config::default().flush_threshold(FLUSH_THRESHOLD)
}

fn small() -> Limits {
    Limits::default().max_payload_len(Some(MAX_CONNECT_BYTES))
}
