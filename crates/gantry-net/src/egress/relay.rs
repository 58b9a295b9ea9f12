//! Copies bytes both ways between two connections, and counts them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::peer::Peer;
use super::record::Traffic;
use super::refusal::Refusal;

/// A quiet connection needs little memory; a busy one fills its buffer, which then grows.
const FIRST_BUFFER: usize = 16 * 1024;
const MAX_BUFFER: usize = 256 * 1024;

/// Relays until both sides have closed. A side that closes first can still receive.
pub(super) async fn relay(
    client: &mut Peer,
    server: &mut Peer,
    traffic: &Traffic,
    idle: Duration,
) -> Result<(), Refusal> {
    let (up, down) = (client.ahead.split(), server.ahead.split());
    let (mut client_read, mut client_write) = client.tcp.split();
    let (mut server_read, mut server_write) = server.tcp.split();
    let upward = async {
        server_write.write_all(&up).await?;
        traffic.up.fetch_add(up.len() as u64, Ordering::Relaxed);
        pump(&mut client_read, &mut server_write, &traffic.up).await
    };
    let downward = async {
        client_write.write_all(&down).await?;
        traffic.down.fetch_add(down.len() as u64, Ordering::Relaxed);
        pump(&mut server_read, &mut client_write, &traffic.down).await
    };
    let both = async { tokio::try_join!(upward, downward) };
    tokio::select! {
        ended = both => match ended {
            Ok(_) => Ok(()),
            Err(err) => Err(Refusal::failed(format!("the connection broke: {err}"))),
        },
        () = traffic.idle(idle) => Err(Refusal::idle()),
    }
}

/// Copies until the end, then closes this direction. It reads no more than it can write.
pub(super) async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; FIRST_BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        count.fetch_add(read as u64, Ordering::Relaxed);
        if read == buffer.len() && read < MAX_BUFFER {
            buffer = vec![0; read * 4];
        }
    }
}
