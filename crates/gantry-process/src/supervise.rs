//! Looks after one command from order to end, in a task of its own.
//!
//! The task outlives whoever waits for it: when they go away, it ends the command and reaps the keeper; or, when the
//! session was detached, leaves it to its keeper.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::unix::pipe;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::time::Instant;

use crate::capture::{Captured, Collector};
use crate::command::{Command, Cwd};
use crate::error::ProcessError;
use crate::keeper::{KILL_LIMIT, TERM_GRACE};
use crate::keepers::Keepers;
use crate::link::Link;
use crate::lost;
use crate::order::{
    CLOSE_STDIN, DETACH, KILL, Keep, LogReport, Order, Output, Report, Step, TERMINATE, Text,
};
use crate::record::{Cause, EndRecord, Moment, SessionRecord};
use crate::session::Ended;
use crate::session_folder::SessionFolder;

mod reconnect;

/// After the command's end its pipes are at theirs, unless somebody outside its tree holds them open.
const DRAIN_LIMIT: Duration = Duration::from_millis(200);

/// A keeper that has not finished this long after it was asked to will not.
const KEEPER_LIMIT: Duration = TERM_GRACE.saturating_add(KILL_LIMIT).saturating_add(Duration::from_secs(2));

/// Requests that wait to be served; more of them wait in the asking calls.
const MAX_ASKS: usize = 16;

/// The keeper of a detached session ends it in time; only should it fail to, the engine asks again.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum Ask {
    Terminate,
    Kill,
    CloseStdin,
    /// Answered with the reason when it cannot be; not at all when the command is over.
    Detach(Vec<u8>, oneshot::Sender<Result<(), String>>),
}

/// The descriptors of a command besides its directory, and who reads its output.
pub(crate) struct Wiring {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) sinks: Vec<OwnedFd>,
    pub(crate) output: Output,
    pub(crate) keep: Option<KeepWiring>,
    pub(crate) collector: Collector,
}

/// What the keeper of a session that can be detached gets besides.
pub(crate) struct KeepWiring {
    pub(crate) folder: Arc<SessionFolder>,
    /// The folder, locked.
    pub(crate) handle: OwnedFd,
    pub(crate) feed: Option<OwnedFd>,
    pub(crate) timeout_ms: Option<u64>,
}

/// The two moments a supervisor tells of. Dropping `asks` ends the command, unless it was detached.
pub(crate) struct Supervised {
    pub(crate) started: oneshot::Receiver<Result<Started, ProcessError>>,
    pub(crate) ended: oneshot::Receiver<Over>,
    pub(crate) asks: mpsc::Sender<Ask>,
}

/// A command that is over.
pub(crate) struct Over {
    pub(crate) ended: Ended,
    pub(crate) captured: Captured,
    /// Whether it was in the hands of its keeper by then, with its end on record.
    pub(crate) detached: bool,
}

/// A detached session of an engine before us.
pub(crate) struct Adopted {
    pub(crate) ended: oneshot::Receiver<Over>,
    pub(crate) asks: mpsc::Sender<Ask>,
    /// Comes, or is dropped, when its keeper has answered or nobody will.
    pub(crate) ready: oneshot::Receiver<()>,
}

pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) started_at: SystemTime,
    /// The process that was started to keep it.
    pub(crate) guard: Option<i32>,
}

pub(crate) fn supervise(keepers: Arc<Keepers>, command: Command, wiring: Wiring) -> Supervised {
    let (started_tx, started) = oneshot::channel();
    let (ended_tx, ended) = oneshot::channel();
    let (asks, asks_rx) = mpsc::channel(MAX_ASKS);
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

/// Takes over a session that was detached before; `stdin` is given what feeds it.
pub(crate) fn adopt(
    folder: Arc<SessionFolder>,
    record: Arc<SessionRecord>,
    stdin: OwnedMutexGuard<Option<pipe::Sender>>,
) -> Adopted {
    let (ended_tx, ended) = oneshot::channel();
    let (ready_tx, ready) = oneshot::channel();
    let (asks, asks_rx) = mpsc::channel(MAX_ASKS);
    let mut supervisor = Supervisor {
        link: Link::found(),
        asks: asks_rx,
        collector: Collector::Nothing,
        started_tx: None,
        keeper: PathBuf::new(),
        program: String::new(),
        directory: String::new(),
        begun: Instant::now(),
        deadline: deadline_of(&record),
        pid: Some(record.process.pid),
        folder: Some(folder),
        record: Some(record),
        detached: true,
        detaching: None,
        greeting: Some((stdin, ready_tx)),
        asked: Vec::new(),
        timed_out: false,
        cancelled: false,
        killed: false,
        give_up: None,
    };
    tokio::spawn(async move {
        let mut collector = Collector::Nothing;
        let verdict = supervisor.watch(&mut collector).await;
        supervisor.finish(verdict, collector, ended_tx).await;
    });
    Adopted { ended, asks, ready }
}

fn deadline_of(record: &SessionRecord) -> Option<Instant> {
    let timeout = Duration::from_millis(record.timeout_ms?);
    let passed = record.started_at.time().elapsed().unwrap_or_default();
    Instant::now().checked_add(timeout.saturating_sub(passed).saturating_add(TIMEOUT_MARGIN))
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
    /// Of a session that can be detached.
    folder: Option<Arc<SessionFolder>>,
    /// Of a session that another engine started.
    record: Option<Arc<SessionRecord>>,
    detached: bool,
    /// Who waits to hear that it is.
    detaching: Option<oneshot::Sender<Result<(), String>>>,
    /// Served when the keeper of an adopted session has answered for the first time.
    greeting: Option<(OwnedMutexGuard<Option<pipe::Sender>>, oneshot::Sender<()>)>,
    /// What a new connection has to be told first.
    asked: Vec<u8>,
    timed_out: bool,
    cancelled: bool,
    killed: bool,
    /// When the keeper is given up, once it was asked to finish.
    give_up: Option<Instant>,
}

enum Verdict {
    Refused(ProcessError),
    Ended(EndRecord),
    KeeperLost,
    /// Detached, and we are not wanted any more.
    Left,
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
        let mut descriptors = Vec::with_capacity(6);
        let stdin = wiring.stdin.is_some();
        descriptors.extend(wiring.stdin);
        descriptors.extend(wiring.sinks);
        let mut deadline = command.timeout;
        let (mut keep, mut folder) = (None, None);
        if let Some(wiring) = wiring.keep {
            descriptors.push(wiring.handle);
            descriptors.extend(wiring.feed);
            keep = Some(Keep { timeout_ms: wiring.timeout_ms });
            folder = Some(wiring.folder);
            deadline = deadline.and_then(|timeout| timeout.checked_add(TIMEOUT_MARGIN));
        }
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
            keep,
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
            deadline: deadline.and_then(|timeout| begun.checked_add(timeout)),
            pid: None,
            folder,
            record: None,
            detached: false,
            detaching: None,
            greeting: None,
            asked: Vec::new(),
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
                    Some(Report::Detached) => self.answer_detach(Ok(())),
                    Some(Report::NotDetached { reason }) => self.answer_detach(Err(reason)),
                    Some(Report::Ended(end)) => break Verdict::Ended(end),
                    None if self.detached => {
                        if let Some(verdict) = self.reconnect().await {
                            break verdict;
                        }
                    }
                    None => break Verdict::KeeperLost,
                },
                ask = self.asks.recv(), if asked_for => match ask {
                    Some(Ask::Kill) => {
                        self.killed = true;
                        self.request(KILL).await;
                    }
                    Some(Ask::Terminate) => self.cancel().await,
                    Some(Ask::CloseStdin) => {
                        self.note_request(CLOSE_STDIN);
                        self.link.request(&[CLOSE_STDIN]).await;
                    }
                    Some(Ask::Detach(record, answer)) => self.detach(&record, answer).await,
                    None if self.detached => break Verdict::Left,
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

    async fn finish(mut self, verdict: Verdict, collector: Collector, ended_tx: oneshot::Sender<Over>) {
        let end = match verdict {
            Verdict::Left => return,
            Verdict::Refused(err) => {
                if let Some(started) = self.started_tx.take() {
                    let _ = started.send(Err(err));
                }
                self.link.reap().await;
                return;
            }
            Verdict::Ended(end) => end,
            Verdict::KeeperLost => self.lose().await,
        };
        if let Some(started) = self.started_tx.take() {
            let source = std::io::Error::other(format!("it ended before it could start `{}`", self.program));
            let _ = started.send(Err(ProcessError::Keeper { keeper: self.keeper.clone(), source }));
        }
        let mut captured = collector.finish().await;
        let mut ended = Ended::from(&end);
        if captured.report.total > 0 {
            ended.log_dropped = captured.report.dropped;
            ended.log_error = captured.report.error.take();
        }
        ended.timed_out |= self.timed_out;
        // Of a detached session every engine has to tell the same, so the record decides; others are ours alone.
        if !self.detached {
            ended.ended_at = SystemTime::now();
            ended.duration = self.begun.elapsed();
            ended.cancelled = self.cancelled;
            ended.killed = self.killed;
        }
        self.link.reap().await;
        // Nobody waits any more, so nobody will know of the log.
        let over = Over { ended, captured, detached: self.detached };
        if let Err(Over { captured: Captured { log: Some(log), .. }, .. }) = ended_tx.send(over) {
            let _ = std::fs::remove_file(&log.path);
        }
    }

    /// Ends what the keeper has left, and writes down what it could not.
    async fn lose(&mut self) -> EndRecord {
        match &self.record {
            Some(record) => lost::end_strays(record).await,
            None => lost::end_orphans(&mut self.link, self.pid).await,
        }
        let end = EndRecord {
            code: None,
            signal: None,
            survivors: 0,
            log: LogReport::default(),
            cause: Cause::KeeperLost,
            ended_at: Moment::now(),
            duration_ms: self.age_ms(),
        };
        if let Some(folder) = self.folder.as_ref().filter(|_| self.detached) {
            // If it cannot be written, the next engine comes to the same conclusion.
            let _ = folder.write_end(&end);
        }
        end
    }

    fn age_ms(&self) -> u64 {
        let age = match &self.record {
            Some(record) => record.started_at.time().elapsed().unwrap_or_default(),
            None => self.begun.elapsed(),
        };
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }

    fn started(&mut self, pid: i32) {
        self.pid = Some(pid);
        if let Some(started) = self.started_tx.take() {
            // How long its keeper took to start is not the command's time.
            self.begun = Instant::now();
            let started_at = SystemTime::now();
            let _ = started.send(Ok(Started { pid, started_at, guard: self.link.child_pid() }));
        }
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        self.request(TERMINATE).await;
    }

    /// Asks for the end.
    async fn request(&mut self, request: u8) {
        self.give_up.get_or_insert_with(|| Instant::now() + KEEPER_LIMIT);
        self.note_request(request);
        self.link.request(&[request]).await;
    }

    async fn detach(&mut self, record: &[u8], answer: oneshot::Sender<Result<(), String>>) {
        let Ok(length) = u32::try_from(record.len()) else { return };
        self.detaching = Some(answer);
        self.link.request(&[&[DETACH][..], &length.to_le_bytes(), record].concat()).await;
    }

    fn answer_detach(&mut self, answer: Result<(), String>) {
        self.detached |= answer.is_ok();
        if let Some(detaching) = self.detaching.take() {
            let _ = detaching.send(answer);
        }
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
