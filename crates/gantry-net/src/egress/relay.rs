//! Copies bytes both ways between two connections, and counts them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::peer::Peer;
use super::record::Traffic;
use super::refusal::Refusal;

/// A quiet connection needs little memory. A busy one fills its buffer, which then grows.
const FIRST_BUFFER: usize = 16 * 1024;
/// In one measurement of plain HTTP on a loaded machine, copying was faster than `splice`.
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
        pump(&mut client_read, &mut server_write, u64::MAX, &traffic.up).await
    };
    let downward = async {
        client_write.write_all(&down).await?;
        traffic.down.fetch_add(down.len() as u64, Ordering::Relaxed);
        pump(&mut server_read, &mut client_write, u64::MAX, &traffic.down).await
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

/// Moves bytes until the end or the limit, then closes this direction. It reads no more than it can
/// write.
pub(super) async fn pump(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    limit: u64,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut left = limit;
    let mut buffer = vec![0; FIRST_BUFFER];
    while left > 0 {
        let read = from.read(at_most(&mut buffer, left)).await?;
        if read == 0 {
            break;
        }
        to.write_all(&buffer[..read]).await?;
        count.fetch_add(read as u64, Ordering::Relaxed);
        left -= read as u64;
        if read == buffer.len() && read < MAX_BUFFER {
            buffer = vec![0; read * 4];
        }
    }
    to.shutdown().await
}

fn at_most(buffer: &mut [u8], limit: u64) -> &mut [u8] {
    let length = usize::try_from(limit).unwrap_or(usize::MAX).min(buffer.len());
    &mut buffer[..length]
}
