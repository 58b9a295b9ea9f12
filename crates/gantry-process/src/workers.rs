//! `Workers` is a pool of worker processes. Each runs one job at a time, so a job that crashes or needs too much memory
//! ends alone.
//!
//! A worker starts when a job needs one and ends when it was idle for a while. It speaks over its standard input, a
//! socket: a setup first, then one job after the other (`frame.rs`). The engine's side is here, the worker's side in
//! [`serve`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exit::{Exit, Signal};
use queue::{Queue, Turn};
use worker::Worker;

mod frame;
pub mod memory_limit;
mod queue;
pub mod serve;
mod worker;

pub use frame::Frame;

/// How long a worker may take to accept its setup.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a worker may take to end its job after a cancel: longer than its keeper needs.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(8);

/// The waits between failed starts double from the first to the longest.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct WorkersOptions {
    /// The program that runs [`serve::main`] when it gets `args`.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// What every worker gets first.
    pub setup: Vec<u8>,
    pub count: usize,
    /// An idle worker ends after this time.
    pub idle: Duration,
    /// The memory that a worker may allocate. Commands that it starts have their own limits.
    pub memory_bytes: u64,
    /// How many jobs may wait for a worker.
    pub max_waiting: usize,
}

impl WorkersOptions {
    pub fn new(program: PathBuf, setup: Vec<u8>) -> Self {
        Self {
            program,
            args: Vec::new(),
            setup,
            count: 4,
            idle: Duration::from_secs(60),
            memory_bytes: 256 << 20,
            max_waiting: 1_000,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("cannot start a worker process: {reason}; the next start is possible in {} s", wait.as_secs_f64().ceil())]
    Start { reason: String, wait: Duration },
    #[error("all workers are busy, and {0} calls are waiting for one")]
    Busy(usize),
    #[error("the worker process of this call ended ({})", ended_by(exit))]
    Lost { exit: Exit, memory_bytes: u64 },
    #[error("cannot send the call to its worker process: {0}")]
    Send(std::io::Error),
    #[error("cancelled")]
    Cancelled,
    #[error("the workers are shutting down")]
    ShuttingDown,
}

impl WorkerError {
    /// Suggests what to do next, where there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            // A failed allocation aborts the process.
            Self::Lost { exit: Exit { signal: Some(Signal(6 | 9)), .. }, memory_bytes } => Some(format!(
                "a worker may use {} MB of memory and is ended when it needs more",
                memory_bytes >> 20
            )),
            Self::Lost { .. } => Some("the next call gets a new worker".to_owned()),
            Self::Start { .. } => Some(
                "the gantry program may have been moved or replaced while it ran; start it again".to_owned(),
            ),
            Self::Busy(_) => Some("wait for running calls, or raise workers.count in gantry.toml".to_owned()),
            Self::Send(_) | Self::Cancelled | Self::ShuttingDown => None,
        }
    }
}

fn ended_by(exit: &Exit) -> String {
    match (exit.signal, exit.code) {
        (Some(signal), _) => signal.to_string(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "it does not answer".to_owned(),
    }
}

/// A handle to the pool; clones share it. Workers end when the last handle is gone.
#[derive(Debug, Clone)]
pub struct Workers {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: WorkersOptions,
    queue: Queue,
    state: Mutex<State>,
    /// The tasks that end workers.
    ending: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// What every worker gets first, and how often it was replaced.
    setup: Arc<Vec<u8>>,
    generation: u64,
    /// The one that was idle for the shortest time is last.
    idle: Vec<Idle>,
    /// A task ends idle workers.
    is_reaping: bool,
    /// Failed starts in a row.
    failures: u32,
    failed: Option<FailedStart>,
}

#[derive(Debug)]
struct Idle {
    worker: Worker,
    since: Instant,
}

#[derive(Debug, Clone)]
struct FailedStart {
    reason: String,
    retry_at: Instant,
}

impl Workers {
    pub fn new(options: WorkersOptions) -> Self {
        let queue = Queue::new(options.count, options.max_waiting);
        let state = State { setup: Arc::new(options.setup.clone()), ..State::default() };
        let inner = Inner {
            options,
            queue,
            state: Mutex::new(state),
            ending: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs a job on a worker. Waits for one if all are busy; callers of different names take turns. Cancelling, or
    /// dropping the future, ends the worker and everything it started, and another worker takes its place.
    pub async fn run(
        &self,
        caller: &str,
        job: Frame,
        cancel: &CancellationToken,
    ) -> Result<Frame, WorkerError> {
        let inner = &self.inner;
        let turn = tokio::select! {
            turn = inner.queue.turn(caller) => turn.map_err(WorkerError::Busy)?,
            () = cancel.cancelled() => return Err(WorkerError::Cancelled),
            () = inner.stop.cancelled() => return Err(WorkerError::ShuttingDown),
        };
        let worker = inner.worker().await?;
        let mut busy = Busy { inner: Arc::clone(inner), held: Some((worker, turn)) };
        let Some((worker, _)) = &mut busy.held else { return Err(WorkerError::ShuttingDown) };
        let answered = tokio::select! {
            answered = worker.run(job) => Some(answered),
            () = cancel.cancelled() => None,
            () = inner.stop.cancelled() => None,
        };
        match answered {
            Some(Ok(answer)) => {
                busy.release();
                Ok(answer)
            }
            Some(Err(worker::JobError::Send(err))) => Err(WorkerError::Send(err)),
            Some(Err(worker::JobError::Lost)) => {
                let exit = worker.exit().await;
                Err(WorkerError::Lost { exit, memory_bytes: inner.options.memory_bytes })
            }
            // The worker ends its job and answers once more, then exits.
            None => worker.finish().await.ok_or(WorkerError::Cancelled),
        }
    }

    /// Replaces the setup. Idle workers end, busy ones end after their job, and new ones get it.
    pub fn replace_setup(&self, setup: Vec<u8>) {
        let mut state = self.inner.state();
        (state.setup, state.generation) = (Arc::new(setup), state.generation + 1);
        std::mem::take(&mut state.idle).into_iter().for_each(|idle| self.inner.end(idle.worker));
    }

    /// Ends all workers and the jobs they run. Returns when they are gone.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        let idle = std::mem::take(&mut self.inner.state().idle);
        idle.into_iter().for_each(|idle| self.inner.end(idle.worker));
        self.inner.ending.close();
        self.inner.ending.wait().await;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an idle worker, or starts one. The caller holds a turn, so there are never more than `count`.
    async fn worker(&self) -> Result<Worker, WorkerError> {
        loop {
            let Some(Idle { mut worker, .. }) = self.state().idle.pop() else { break };
            if worker.is_alive() {
                return Ok(worker);
            }
        }
        let now = Instant::now();
        if let Some(FailedStart { reason, retry_at }) = self.state().failed.clone()
            && now < retry_at
        {
            return Err(WorkerError::Start { reason, wait: retry_at - now });
        }
        let options = &self.options;
        let (setup, generation) = {
            let state = self.state();
            (state.setup.clone(), state.generation)
        };
        let started = tokio::time::timeout(START_LIMIT, Worker::start(options, &setup, generation)).await;
        let started = started.unwrap_or_else(|_| Err(std::io::Error::other("it does not answer")));
        let mut state = self.state();
        match started {
            Ok(worker) => {
                (state.failures, state.failed) = (0, None);
                Ok(worker)
            }
            Err(err) => {
                let wait = FIRST_BACKOFF.saturating_mul(1 << state.failures.min(5)).min(LONGEST_BACKOFF);
                state.failures = state.failures.saturating_add(1);
                let reason = format!("{}: {err}", options.program.display());
                state.failed = Some(FailedStart { reason: reason.clone(), retry_at: Instant::now() + wait });
                Err(WorkerError::Start { reason, wait })
            }
        }
    }

    fn keep_idle(self: &Arc<Self>, worker: Worker) {
        if self.stop.is_cancelled() {
            return self.end(worker);
        }
        let mut state = self.state();
        if worker.generation != state.generation {
            return self.end(worker);
        }
        state.idle.push(Idle { worker, since: Instant::now() });
        if !std::mem::replace(&mut state.is_reaping, true) {
            tokio::spawn(reap_idle(Arc::downgrade(self), self.options.idle));
        }
    }

    fn end(&self, worker: Worker) {
        self.ending.spawn(worker.end());
    }
}

/// Ends workers that were idle for `limit`, until none is idle.
async fn reap_idle(pool: std::sync::Weak<Inner>, limit: Duration) {
    loop {
        let next = {
            let Some(inner) = pool.upgrade() else { return };
            let mut state = inner.state();
            let now = Instant::now();
            let expired = state.idle.iter().take_while(|idle| now >= idle.since + limit).count();
            state.idle.drain(..expired).for_each(|idle| inner.end(idle.worker));
            let Some(oldest) = state.idle.first() else {
                state.is_reaping = false;
                return;
            };
            oldest.since + limit
        };
        tokio::time::sleep_until(next).await;
    }
}

/// `Busy` is a worker with a job. Dropping it before the answer ends the worker and starts another in its place.
struct Busy {
    inner: Arc<Inner>,
    held: Option<(Worker, Turn)>,
}

impl Busy {
    fn release(&mut self) {
        if let Some((worker, turn)) = self.held.take() {
            self.inner.keep_idle(worker);
            drop(turn);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Some((worker, turn)) = self.held.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let inner = Arc::clone(&self.inner);
        let ending = self.inner.ending.clone();
        runtime.spawn(ending.track_future(async move {
            worker.end().await;
            if inner.stop.is_cancelled() {
                return;
            }
            // A start that fails is reported to the next call.
            if let Ok(replacement) = inner.worker().await {
                inner.keep_idle(replacement);
            }
            drop(turn);
        }));
    }
}
