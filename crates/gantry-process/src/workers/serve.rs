//! The worker's side: [`main`] serves jobs on standard input until the engine closes it.

use std::future::Future;
use std::io::Error;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::END_LIMIT;
use super::frame::Frame;
use super::memory_limit::{self, MemoryLimit};

/// Runs a worker. `prepare` gets the setup and returns the function that runs one job; its error is reported to the
/// engine. A job's token is cancelled when the engine no longer waits for it.
pub fn main<P, J, F>(prepare: P) -> ExitCode
where
    P: FnOnce(&[u8], &MemoryLimit) -> Result<J, String>,
    J: Fn(Frame, CancellationToken) -> F,
    F: Future<Output = Frame>,
{
    crate::hide_from_others();
    crate::survive_file_size_limit();
    crate::keeper::leave_terminal();
    // One thread waits for jobs and commands; file work has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.and_then(|runtime| {
        let served = runtime.block_on(serve(prepare));
        // File work that does not end must not keep the process alive.
        runtime.shutdown_background();
        served
    });
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn serve<P, J, F>(prepare: P) -> Result<(), Error>
where
    P: FnOnce(&[u8], &MemoryLimit) -> Result<J, String>,
    J: Fn(Frame, CancellationToken) -> F,
    F: Future<Output = Frame>,
{
    let stream = StdUnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let Some(setup) = Frame::receive(&mut stream).await? else { return Ok(()) };
    let prepared = memory_limit::apply(&setup.header)
        .map_err(|err| format!("cannot limit its memory: {err}"))
        .and_then(|limit| prepare(&setup.body, &limit));
    let run = match prepared {
        Ok(run) => run,
        Err(reason) => {
            return Frame { header: reason.into_bytes(), ..Frame::default() }.send(&mut stream).await;
        }
    };
    drop(setup);
    Frame::default().send(&mut stream).await?;
    while let Some(job) = Frame::receive(&mut stream).await? {
        let cancel = CancellationToken::new();
        let answer = run(job, cancel.clone());
        tokio::pin!(answer);
        let mut unexpected = [0];
        // The engine sends nothing while a job runs: whatever arrives is the end of the connection.
        let finished = tokio::select! {
            answer = &mut answer => Some(answer),
            _ = stream.read(&mut unexpected) => None,
        };
        let Some(finished) = finished else {
            cancel.cancel();
            let Ok(last) = tokio::time::timeout(END_LIMIT, answer).await else { return Ok(()) };
            return last.send(&mut stream).await;
        };
        finished.send(&mut stream).await?;
    }
    Ok(())
}
