//! Looks after one command from order to end, in a task of its own.
//!
//! The task outlives whoever waits for it: when they go away, it ends the command and reaps the keeper.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::capture::{Captured, Collector};
use crate::command::{Command, Cwd};
use crate::error::ProcessError;
use crate::exit::{Exit, Signal};
use crate::keeper::{KILL_LIMIT, TERM_GRACE};
use crate::keepers::Keepers;
use crate::link::Link;
use crate::lost;
use crate::order::{KILL, LogReport, Order, Output, Report, Step, TERMINATE, Text};
use crate::session::Ended;

/// After the command's end its pipes are at theirs, unless somebody outside its tree holds them open.
const DRAIN_LIMIT: Duration = Duration::from_millis(200);

/// A keeper that has not finished this long after it was asked to will not.
const KEEPER_LIMIT: Duration = TERM_GRACE.saturating_add(KILL_LIMIT).saturating_add(Duration::from_secs(2));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Terminate,
    Kill,
}

/// The descriptors of a command besides its directory, and who reads its output.
pub(crate) struct Wiring {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) sinks: Vec<OwnedFd>,
    pub(crate) output: Output,
    pub(crate) collector: Collector,
}

/// The two moments a supervisor tells of. Dropping `asks` ends the command.
pub(crate) struct Supervised {
    pub(crate) started: oneshot::Receiver<Result<Started, ProcessError>>,
    pub(crate) ended: oneshot::Receiver<(Ended, Captured)>,
    pub(crate) asks: mpsc::Sender<Ask>,
}

pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) started_at: SystemTime,
}

pub(crate) fn supervise(keepers: Arc<Keepers>, command: Command, wiring: Wiring) -> Supervised {
    let (started_tx, started) = oneshot::channel();
    let (ended_tx, ended) = oneshot::channel();
    let (asks, asks_rx) = mpsc::channel(4);
    tokio::spawn(async move {
        let mut supervisor = match Supervisor::start(&keepers, command, wiring, asks_rx, started_tx).await {
            Ok(supervisor) => supervisor,
            Err((started, err)) => {
                let _ = started.send(Err(err));
                return;
            }
        };
        let mut collector = std::mem::replace(&mut supervisor.collector, Collector::Nothing);
        let verdict = supervisor.watch(&mut collector).await;
        supervisor.finish(verdict, collector, ended_tx).await;
        keepers.start_spare();
    });
    Supervised { started, ended, asks }
}

type StartedSender = oneshot::Sender<Result<Started, ProcessError>>;

struct Supervisor {
    link: Link,
    asks: mpsc::Receiver<Ask>,
    collector: Collector,
    started_tx: Option<StartedSender>,
    /// These three for error messages.
    keeper: PathBuf,
    program: String,
    directory: String,
    begun: Instant,
    deadline: Option<Instant>,
    pid: Option<i32>,
    timed_out: bool,
    cancelled: bool,
    killed: bool,
    /// When the keeper is given up, once it was asked to finish.
    give_up: Option<Instant>,
}

enum Verdict {
    Refused(ProcessError),
    Ended { exit: Exit, survivors: usize, log: LogReport },
    KeeperLost,
}

impl Supervisor {
    async fn start(
        keepers: &Keepers,
        command: Command,
        wiring: Wiring,
        asks: mpsc::Receiver<Ask>,
        started: StartedSender,
    ) -> Result<Self, (StartedSender, ProcessError)> {
        let begun = Instant::now();
        let program = command.program.to_string_lossy().into_owned();
        let mut link = match keepers.take() {
            Ok(link) => link,
            Err(source) => {
                return Err((
                    started,
                    ProcessError::Keeper { keeper: keepers.options.keeper.clone(), source },
                ));
            }
        };
        let mut descriptors = Vec::with_capacity(4);
        let stdin = wiring.stdin.is_some();
        descriptors.extend(wiring.stdin);
        descriptors.extend(wiring.sinks);
        let (cwd, directory) = match command.cwd {
            Cwd::Path(path) => (Some(Text::from(&path)), path.display().to_string()),
            Cwd::Dir(directory) => {
                descriptors.push(directory);
                (None, "the given directory".to_owned())
            }
        };
        let order = Order {
            program: Text::from(&command.program),
            args: command.args.iter().map(Text::from).collect(),
            env: command.env.iter().map(|(name, value)| (Text::from(name), Text::from(value))).collect(),
            cwd,
            stdin,
            output: wiring.output,
            sandbox: command.sandbox,
        };
        if let Err(source) = link.order(&order, descriptors).await {
            link.kill_keeper();
            link.reap().await;
            return Err((started, ProcessError::Program { program, source }));
        }
        Ok(Self {
            link,
            asks,
            collector: wiring.collector,
            started_tx: Some(started),
            keeper: keepers.options.keeper.clone(),
            program,
            directory,
            begun,
            deadline: command.timeout.and_then(|timeout| begun.checked_add(timeout)),
            pid: None,
            timed_out: false,
            cancelled: false,
            killed: false,
            give_up: None,
        })
    }

    /// Serves everything that can happen until the command is over, then takes what is left in its pipes.
    async fn watch(&mut self, collector: &mut Collector) -> Verdict {
        let collect = collector.collect();
        tokio::pin!(collect);
        let mut collected = false;
        let mut asked_for = true;
        let verdict = loop {
            tokio::select! {
                report = self.link.report() => match report {
                    Some(Report::Started { pid }) => self.started(pid),
                    Some(Report::Refused { step, errno, reason }) => break Verdict::Refused(self.refusal(step, errno, reason)),
                    Some(Report::Ended { code, signal, survivors, log }) => {
                        break Verdict::Ended { exit: Exit { code, signal: signal.map(Signal) }, survivors, log };
                    }
                    None => break Verdict::KeeperLost,
                },
                ask = self.asks.recv(), if asked_for => match ask {
                    Some(Ask::Kill) => {
                        self.killed = true;
                        self.request(KILL).await;
                    }
                    Some(Ask::Terminate) => self.cancel().await,
                    None => {
                        asked_for = false;
                        self.cancel().await;
                    }
                },
                () = at(self.deadline) => {
                    self.deadline = None;
                    if self.give_up.is_none() {
                        self.timed_out = true;
                        self.request(TERMINATE).await;
                    }
                }
                () = at(self.give_up) => break Verdict::KeeperLost,
                () = &mut collect, if !collected => collected = true,
            }
        };
        if !collected {
            let _ = tokio::time::timeout(DRAIN_LIMIT, &mut collect).await;
        }
        verdict
    }

    async fn finish(
        mut self,
        verdict: Verdict,
        collector: Collector,
        ended_tx: oneshot::Sender<(Ended, Captured)>,
    ) {
        let (exit, survivors, log, keeper_lost) = match verdict {
            Verdict::Refused(err) => {
                if let Some(started) = self.started_tx.take() {
                    let _ = started.send(Err(err));
                }
                self.link.reap().await;
                return;
            }
            Verdict::Ended { exit, survivors, log } => (exit, survivors, log, false),
            Verdict::KeeperLost => {
                lost::end_orphans(&mut self.link, self.pid).await;
                (Exit::UNKNOWN, 0, LogReport::default(), true)
            }
        };
        if let Some(started) = self.started_tx.take() {
            let source = std::io::Error::other(format!("it ended before it could start `{}`", self.program));
            let _ = started.send(Err(ProcessError::Keeper { keeper: self.keeper.clone(), source }));
        }
        let captured = collector.finish().await;
        let log = if captured.report.total > 0 { captured.report.clone() } else { log };
        let ended = Ended {
            exit,
            ended_at: SystemTime::now(),
            duration: self.begun.elapsed(),
            timed_out: self.timed_out,
            cancelled: self.cancelled,
            killed: self.killed,
            keeper_lost,
            survivors,
            log_dropped: log.dropped,
            log_error: log.error,
        };
        self.link.reap().await;
        // Nobody waits any more, so nobody will know of the log.
        if let Err((_, Captured { log: Some(log), .. })) = ended_tx.send((ended, captured)) {
            let _ = std::fs::remove_file(&log.path);
        }
    }

    fn started(&mut self, pid: i32) {
        self.pid = Some(pid);
        if let Some(started) = self.started_tx.take() {
            let started_at = SystemTime::now();
            let _ = started.send(Ok(Started { pid, started_at }));
        }
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        self.request(TERMINATE).await;
    }

    async fn request(&mut self, request: u8) {
        self.give_up.get_or_insert_with(|| Instant::now() + KEEPER_LIMIT);
        self.link.request(request).await;
    }

    fn refusal(&self, step: Step, errno: Option<i32>, reason: String) -> ProcessError {
        let source = match errno {
            Some(errno) => std::io::Error::from_raw_os_error(errno),
            None => std::io::Error::other(reason.clone()),
        };
        match step {
            Step::Sandbox => ProcessError::SandboxUnavailable { reason },
            Step::Directory => ProcessError::Directory { directory: self.directory.clone(), source },
            Step::Program => ProcessError::Program { program: self.program.clone(), source },
            Step::Order => ProcessError::Prepare(source),
        }
    }
}

/// Never, when there is no such moment.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
