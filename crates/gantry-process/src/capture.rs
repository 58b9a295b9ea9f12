//! Collects the output of a foreground command in bounded memory.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use crate::command::Capture;
use crate::keeper::control_protocol::{LogReport, Output};
use crate::log::Log;
use crate::log::directory::LogDirectory;
use crate::session::{SessionId, Stream};
use crate::text::{self, TailSize};

const CHUNK: usize = 64 * 1024;

pub(crate) enum Collector {
    Merged {
        source: pipe::Receiver,
        tail: Box<Tail>,
    },
    Separate {
        stdout: (pipe::Receiver, Head),
        stderr: (pipe::Receiver, Head),
    },
    /// A session has no collector, because its keeper writes the log.
    Nothing,
}

#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
    pub(crate) log: Option<Log>,
    pub(crate) report: LogReport,
}

impl Collector {
    /// Returns the collector and the pipe ends that the command writes to.
    pub(crate) fn new(
        capture: Capture,
        beyond: usize,
        spill: Spill,
    ) -> Result<(Self, Vec<OwnedFd>, Output), Error> {
        match capture {
            Capture::Merged { keep_tail } => {
                let (source, sink) = pipe()?;
                let tail = Box::new(Tail::new(TailSize { chars: keep_tail, before: beyond }, spill));
                Ok((Self::Merged { source, tail }, vec![sink], Output::Merged))
            }
            Capture::Separate { stdout, stderr } => {
                let (stdout_source, stdout_sink) = pipe()?;
                let (stderr_source, stderr_sink) = pipe()?;
                let collector = Self::Separate {
                    stdout: (stdout_source, Head::new(stdout, beyond)),
                    stderr: (stderr_source, Head::new(stderr, beyond)),
                };
                Ok((collector, vec![stdout_sink, stderr_sink], Output::Separate))
            }
        }
    }

    /// Reads until all pipes end. Dropping the future at any point keeps what was read so far.
    pub(crate) async fn collect(&mut self) {
        match self {
            Self::Merged { source, tail } => {
                let mut buffer = vec![0; CHUNK];
                // A read error is treated as the end of the pipe.
                while let Ok(count @ 1..) = source.read(&mut buffer).await {
                    tail.take(&buffer[..count]).await;
                }
            }
            Self::Separate { stdout, stderr } => {
                tokio::join!(read_head(stdout), read_head(stderr));
            }
            Self::Nothing => {}
        }
    }

    pub(crate) async fn finish(self) -> Captured {
        match self {
            Self::Merged { tail, .. } => tail.finish().await,
            Self::Separate { stdout: (_, stdout), stderr: (_, stderr) } => {
                Captured { stdout: stdout.finish(), stderr: stderr.finish(), ..Captured::default() }
            }
            Self::Nothing => Captured::default(),
        }
    }
}

async fn read_head((source, head): &mut (pipe::Receiver, Head)) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = source.read(&mut buffer).await {
        head.take(&buffer[..count]);
    }
}

fn pipe() -> Result<(pipe::Receiver, OwnedFd), Error> {
    let (source, sink) = std::io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(source.into())?, sink.into()))
}

/// `Head` keeps the first bytes of a stream.
pub(crate) struct Head {
    limit: usize,
    /// How many bytes after the limit are kept too.
    beyond: usize,
    bytes: Vec<u8>,
    total: u64,
}

impl Head {
    fn new(limit: usize, beyond: usize) -> Self {
        Self { limit, beyond, bytes: Vec::new(), total: 0 }
    }

    fn take(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        // Keeps one byte more than the limit, so that `finish` can detect truncation.
        let room = self.limit.saturating_add(self.beyond.max(1)).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }

    fn finish(self) -> Stream {
        let (text, beyond) = text::head(&self.bytes, self.limit);
        let truncated = self.total > self.limit as u64;
        Stream { text, beyond, total_bytes: self.total, truncated }
    }
}

/// `Tail` keeps the last characters of a stream. If that is not the whole stream, all of it goes to
/// a log.
pub(crate) struct Tail {
    keep: TailSize,
    /// Holds all bytes until there are more than `window`. After that it holds between one and two
    /// windows, always including the last `window` bytes.
    bytes: Vec<u8>,
    total: u64,
    spill: Spill,
}

impl Tail {
    fn new(keep: TailSize, spill: Spill) -> Self {
        Self { keep, bytes: Vec::new(), total: 0, spill }
    }

    fn window(&self) -> usize {
        self.keep.bytes()
    }

    async fn take(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        self.bytes.extend_from_slice(chunk);
        if self.spill.open() {
            self.spill.write(chunk).await;
        } else if self.bytes.len() > self.window() {
            self.spill.write(&self.bytes).await;
        }
        if self.bytes.len() > self.window().saturating_mul(2) {
            self.bytes.drain(..self.bytes.len() - self.window());
        }
    }

    async fn finish(mut self) -> Captured {
        let whole = self.total == self.bytes.len() as u64;
        let (tail, truncated) = if whole {
            let (tail, chars) = text::tail(&self.bytes, self.keep);
            (tail, chars > self.keep.chars as u64)
        } else {
            (text::decode_from_cut(&self.bytes, self.keep), true)
        };
        if truncated && !self.spill.open() {
            self.spill.write(&self.bytes).await;
        }
        let stdout = Stream { text: tail.text, beyond: tail.before, total_bytes: self.total, truncated };
        let (log, report) = self.spill.finish(self.total).await;
        Captured { stdout, stderr: Stream::default(), log, report }
    }
}

/// `Spill` is a log that is created only when the output does not fit into memory.
pub(crate) struct Spill {
    pub(crate) directory: Arc<LogDirectory>,
    pub(crate) id: SessionId,
    pub(crate) state: SpillState,
}

pub(crate) enum SpillState {
    Closed,
    Open(Box<OpenSpill>),
    Failed(String),
}

pub(crate) struct OpenSpill {
    file: tokio::fs::File,
    log: Log,
    report: LogReport,
}

impl Spill {
    fn open(&self) -> bool {
        !matches!(self.state, SpillState::Closed)
    }

    async fn write(&mut self, bytes: &[u8]) {
        if let SpillState::Closed = self.state {
            self.state = self.create().await;
        }
        let SpillState::Open(open) = &mut self.state else { return };
        let OpenSpill { file, report, log } = &mut **open;
        let room = usize::try_from(log.limit() - (report.total - report.dropped)).unwrap_or(usize::MAX);
        report.total += bytes.len() as u64;
        let part = &bytes[..bytes.len().min(room)];
        if report.error.is_none() {
            match file.write_all(part).await {
                Ok(()) => report.dropped += (bytes.len() - part.len()) as u64,
                Err(err) => report.error = Some(format!("writing the log failed: {err}")),
            }
        }
    }

    async fn create(&self) -> SpillState {
        let (directory, id) = (Arc::clone(&self.directory), self.id);
        let made = tokio::task::spawn_blocking(move || -> Result<SpillState, String> {
            let (file, log) = directory.create(id).map_err(|err| err.to_string())?;
            let file = tokio::fs::File::from_std(file);
            Ok(SpillState::Open(Box::new(OpenSpill { file, log, report: LogReport::default() })))
        });
        match made.await {
            Ok(Ok(open)) => open,
            Ok(Err(reason)) => SpillState::Failed(reason),
            Err(err) => SpillState::Failed(err.to_string()),
        }
    }

    async fn finish(self, total: u64) -> (Option<Log>, LogReport) {
        match self.state {
            SpillState::Closed => (None, LogReport::default()),
            SpillState::Failed(reason) => (None, LogReport { total, dropped: total, error: Some(reason) }),
            SpillState::Open(open) => {
                let OpenSpill { mut file, log, mut report } = *open;
                if let Err(err) = file.flush().await {
                    report.error.get_or_insert(format!("writing the log failed: {err}"));
                }
                report.total = total;
                report.dropped = total.saturating_sub(log.len());
                (Some(log), report)
            }
        }
    }
}
