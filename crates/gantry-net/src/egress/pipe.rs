//! Moves bytes between sockets without copying them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

const PIPE_BYTES: usize = 1024 * 1024;

/// `Pipe` holds pages on their way between two sockets.
pub(super) struct Pipe {
    exit: OwnedFd,
    entry: OwnedFd,
}

impl Pipe {
    pub(super) fn open() -> io::Result<Pipe> {
        let (exit, entry) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller pipe also works, if the user's quota is used up.
        let _ = fcntl_setpipe_size(&entry, PIPE_BYTES);
        Ok(Pipe { exit, entry })
    }

    /// Moves bytes until the end or the limit.
    pub(super) async fn pump(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        mut left: u64,
        count: &AtomicU64,
    ) -> io::Result<()> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIPE_BYTES);
            // The pipe is empty here, so only the socket can make this wait.
            let fill = || Ok(splice(from, None, &self.entry, None, most, flags)?);
            let mut held = from.async_io(Interest::READABLE, fill).await?;
            if held == 0 {
                break;
            }
            left -= held as u64;
            while held > 0 {
                let empty = || Ok(splice(&self.exit, None, to, None, held, flags)?);
                let moved = to.async_io(Interest::WRITABLE, empty).await?;
                held -= moved;
                count.fetch_add(moved as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
