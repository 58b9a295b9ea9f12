//! Supervises one command from its order to its end, in a separate task.
//!
//! The task outlives its callers. When they go away, it ends the command and reaps the keeper. If
//! the session was detached, it leaves the command to its keeper.

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
use crate::keeper::control_protocol::{
    CLOSE_STDIN, DETACH, JoinNetwork, KILL, Keep, LaunchStep, LogReport, MAX_DESCRIPTORS, Order, OsText,
    Output, Report, TERMINATE,
};
use crate::keeper::{KILL_LIMIT, TERM_GRACE};
use crate::session::Ended;
use crate::session::folder::SessionFolder;
use crate::session::record::{Cause, EndRecord, Moment, SessionRecord};
use crate::supervise::keeper_link::Link;
use crate::supervise::spare_keeper::Keepers;

pub(crate) mod keeper_link;
mod keeper_lost;
mod reconnect;
pub(crate) mod spare_keeper;

/// After the command's end its pipes end too, unless a process outside its tree holds them open.
const DRAIN_LIMIT: Duration = Duration::from_millis(200);

/// A keeper that has not finished this long after a request to end is given up.
const KEEPER_LIMIT: Duration = TERM_GRACE.saturating_add(KILL_LIMIT).saturating_add(Duration::from_secs(2));

/// How many requests wait in the queue. Further ones wait in their calls.
const MAX_QUEUED_REQUESTS: usize = 16;

/// The keeper of a detached session enforces its timeout. If it fails to, the engine asks again
/// after this margin.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum SupervisorRequest {
    Terminate,
    Kill,
    CloseStdin,
    /// Answers with the reason if the session cannot be detached. Does not answer if the command is
    /// over.
    Detach(Vec<u8>, oneshot::Sender<Result<(), String>>),
}

/// `Wiring` is the descriptors of a command, apart from its directory, and the collector of its
/// output.
pub(crate) struct Wiring {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) sinks: Vec<OwnedFd>,
    pub(crate) output: Output,
    pub(crate) keep: Option<KeepWiring>,
    pub(crate) collector: Collector,
}

/// `KeepWiring` is what the keeper of a detachable session gets in addition.
pub(crate) struct KeepWiring {
    pub(crate) folder: Arc<SessionFolder>,
    /// The folder's handle, which holds its lock.
    pub(crate) handle: OwnedFd,
    pub(crate) feed: Option<OwnedFd>,
    pub(crate) timeout_ms: Option<u64>,
}

/// `Supervised` reports two events: the start and the end. Dropping `requests` ends the command,
/// unless it was detached.
pub(crate) struct Supervised {
    pub(crate) started: oneshot::Receiver<Result<Started, ProcessError>>,
    pub(crate) ended: oneshot::Receiver<EndedCommand>,
    pub(crate) requests: mpsc::Sender<SupervisorRequest>,
}

/// `EndedCommand` is how a command ended, and its output.
pub(crate) struct EndedCommand {
    pub(crate) ended: Ended,
    pub(crate) captured: Captured,
    /// Whether the session was detached by then, with its exit recorded.
    pub(crate) detached: bool,
}

/// `Adopted` is a detached session of a previous engine.
pub(crate) struct Adopted {
    pub(crate) ended: oneshot::Receiver<EndedCommand>,
    pub(crate) requests: mpsc::Sender<SupervisorRequest>,
    /// Fires, or is dropped, when the keeper has answered or nobody will.
    pub(crate) ready: oneshot::Receiver<()>,
}

pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) started_at: SystemTime,
    /// The PID of the guard.
    pub(crate) guard: Option<i32>,
}

pub(crate) fn supervise(keepers: Arc<Keepers>, command: Command, wiring: Wiring) -> Supervised {
    let (started_tx, started) = oneshot::channel();
    let (ended_tx, ended) = oneshot::channel();
    let (requests, requests_rx) = mpsc::channel(MAX_QUEUED_REQUESTS);
    tokio::spawn(async move {
        let mut supervisor = match Supervisor::start(&keepers, command, wiring, requests_rx, started_tx).await
        {
            Ok(supervisor) => supervisor,
            Err((started, err)) => {
                let _ = started.send(Err(err));
                return;
            }
        };
        let mut collector = std::mem::replace(&mut supervisor.collector, Collector::Nothing);
        let conclusion = supervisor.watch(&mut collector).await;
        supervisor.finish(conclusion, collector, ended_tx).await;
        keepers.start_spare();
    });
    Supervised { started, ended, requests }
}

/// Adopts a session that was detached before. Stores the write end of its standard input in
/// `stdin`.
pub(crate) fn adopt(
    folder: Arc<SessionFolder>,
    record: Arc<SessionRecord>,
    stdin: OwnedMutexGuard<Option<pipe::Sender>>,
) -> Adopted {
    let (ended_tx, ended) = oneshot::channel();
    let (ready_tx, ready) = oneshot::channel();
    let (requests, requests_rx) = mpsc::channel(MAX_QUEUED_REQUESTS);
    let mut supervisor = Supervisor {
        link: Link::unconnected(),
        requests: requests_rx,
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
        sent_requests: Vec::new(),
        timed_out: false,
        cancelled: false,
        killed: false,
        give_up: None,
    };
    tokio::spawn(async move {
        let mut collector = Collector::Nothing;
        let conclusion = supervisor.watch(&mut collector).await;
        supervisor.finish(conclusion, collector, ended_tx).await;
    });
    Adopted { ended, requests, ready }
}

fn deadline_of(record: &SessionRecord) -> Option<Instant> {
    let timeout = Duration::from_millis(record.timeout_ms?);
    let passed = record.started_at.time().elapsed().unwrap_or_default();
    Instant::now().checked_add(timeout.saturating_sub(passed).saturating_add(TIMEOUT_MARGIN))
}

type StartedSender = oneshot::Sender<Result<Started, ProcessError>>;

struct Supervisor {
    link: Link,
    requests: mpsc::Receiver<SupervisorRequest>,
    collector: Collector,
    started_tx: Option<StartedSender>,
    /// The next three fields are for error messages.
    keeper: PathBuf,
    program: String,
    directory: String,
    begun: Instant,
    deadline: Option<Instant>,
    pid: Option<i32>,
    /// Set for a session that can be detached.
    folder: Option<Arc<SessionFolder>>,
    /// Set for a session that another engine started.
    record: Option<Arc<SessionRecord>>,
    detached: bool,
    /// The caller that waits for the detach to finish.
    detaching: Option<oneshot::Sender<Result<(), String>>>,
    /// Used when the keeper of an adopted session answers for the first time.
    greeting: Option<(OwnedMutexGuard<Option<pipe::Sender>>, oneshot::Sender<()>)>,
    /// The requests to send first over a new connection.
    sent_requests: Vec<u8>,
    timed_out: bool,
    cancelled: bool,
    killed: bool,
    /// When the supervisor gives up on a keeper that was asked to end.
    give_up: Option<Instant>,
}

enum Conclusion {
    Refused(ProcessError),
    Ended(EndRecord),
    KeeperLost,
    /// The session is detached and this engine is shutting down.
    Detached,
}

impl Supervisor {
    async fn start(
        keepers: &Keepers,
        command: Command,
        wiring: Wiring,
        requests: mpsc::Receiver<SupervisorRequest>,
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
        let mut descriptors = Vec::with_capacity(MAX_DESCRIPTORS);
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
        let mut join = None;
        if let Some(network) = &command.network {
            match network.descriptors() {
                Ok((user, network)) => {
                    join = Some(JoinNetwork { with_user: user.is_some() });
                    descriptors.extend(user);
                    descriptors.push(network);
                }
                Err(source) => return Err((started, ProcessError::Prepare(source))),
            }
        }
        let (cwd, directory) = match command.cwd {
            Cwd::Path(path) => (Some(OsText::from(&path)), path.display().to_string()),
            Cwd::Dir(directory) => {
                descriptors.push(directory);
                (None, "the given directory".to_owned())
            }
        };
        let order = Order {
            program: OsText::from(&command.program),
            args: command.args.iter().map(OsText::from).collect(),
            env: command.env.iter().map(|(name, value)| (OsText::from(name), OsText::from(value))).collect(),
            cwd,
            stdin,
            output: wiring.output,
            keep,
            sandbox: command.sandbox,
            network: join,
            create_network: false,
            visit: None,
        };
        if let Err(source) = link.order(&order, descriptors).await {
            link.kill_keeper();
            link.reap().await;
            return Err((started, ProcessError::Program { program, source }));
        }
        Ok(Self {
            link,
            requests,
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
            sent_requests: Vec::new(),
            timed_out: false,
            cancelled: false,
            killed: false,
            give_up: None,
        })
    }

    /// Serves requests and events until the command is over, then reads what is left in its pipes.
    async fn watch(&mut self, collector: &mut Collector) -> Conclusion {
        let collect = collector.collect();
        tokio::pin!(collect);
        let mut collected = false;
        let mut callers_remain = true;
        let conclusion = loop {
            tokio::select! {
                report = self.link.report() => match report {
                    Some(Report::Started { pid }) => self.started(pid),
                    Some(Report::Refused { step, errno, reason }) => break Conclusion::Refused(self.refusal(step, errno, reason)),
                    Some(Report::Detached) => self.answer_detach(Ok(())),
                    Some(Report::NotDetached { reason }) => self.answer_detach(Err(reason)),
                    Some(Report::Ended(end)) => break Conclusion::Ended(end),
                    None if self.detached => {
                        if let Some(conclusion) = self.reconnect().await {
                            break conclusion;
                        }
                    }
                    None => break Conclusion::KeeperLost,
                },
                ask = self.requests.recv(), if callers_remain => match ask {
                    Some(SupervisorRequest::Kill) => {
                        self.killed = true;
                        self.request(KILL).await;
                    }
                    Some(SupervisorRequest::Terminate) => self.cancel().await,
                    Some(SupervisorRequest::CloseStdin) => {
                        self.note_request(CLOSE_STDIN);
                        self.link.request(&[CLOSE_STDIN]).await;
                    }
                    Some(SupervisorRequest::Detach(record, answer)) => self.detach(&record, answer).await,
                    None if self.detached => break Conclusion::Detached,
                    None => {
                        callers_remain = false;
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
                () = at(self.give_up) => break Conclusion::KeeperLost,
                () = &mut collect, if !collected => collected = true,
            }
        };
        if !collected {
            let _ = tokio::time::timeout(DRAIN_LIMIT, &mut collect).await;
        }
        conclusion
    }

    async fn finish(
        mut self,
        conclusion: Conclusion,
        collector: Collector,
        ended_tx: oneshot::Sender<EndedCommand>,
    ) {
        let end = match conclusion {
            Conclusion::Detached => return,
            Conclusion::Refused(err) => {
                if let Some(started) = self.started_tx.take() {
                    let _ = started.send(Err(err));
                }
                self.link.reap().await;
                return;
            }
            Conclusion::Ended(end) => end,
            Conclusion::KeeperLost => self.end_after_keeper_loss().await,
        };
        if let Some(started) = self.started_tx.take() {
            let source =
                std::io::Error::other(format!("the keeper ended before it could start `{}`", self.program));
            let _ = started.send(Err(ProcessError::Keeper { keeper: self.keeper.clone(), source }));
        }
        let mut captured = collector.finish().await;
        let mut ended = Ended::from(&end);
        if captured.report.total > 0 {
            ended.log_dropped = captured.report.dropped;
            ended.log_error = captured.report.error.take();
        }
        ended.timed_out |= self.timed_out;
        // All engines must report the same for a detached session, so its record decides. Other
        // sessions belong to this engine alone.
        if !self.detached {
            ended.ended_at = SystemTime::now();
            ended.duration = self.begun.elapsed();
            ended.cancelled = self.cancelled;
            ended.killed = self.killed;
        }
        self.link.reap().await;
        // Nobody waits any more, so nobody can learn of the log.
        let over = EndedCommand { ended, captured, detached: self.detached };
        if let Err(EndedCommand { captured: Captured { log: Some(log), .. }, .. }) = ended_tx.send(over) {
            let _ = std::fs::remove_file(&log.path);
        }
    }

    /// Ends what the keeper left, and records the exit that the keeper could not.
    async fn end_after_keeper_loss(&mut self) -> EndRecord {
        match &self.record {
            Some(record) => keeper_lost::end_strays(record).await,
            None => keeper_lost::end_orphans(&mut self.link, self.pid).await,
        }
        let end = EndRecord {
            code: None,
            signal: None,
            survivors: 0,
            log: LogReport::default(),
            cause: Cause::KeeperLost,
            ended_at: Moment::now(),
            duration_ms: self.age_ms(),
            quarantined: Vec::new(),
        };
        if let Some(folder) = self.folder.as_ref().filter(|_| self.detached) {
            // If this fails, the next engine comes to the same conclusion.
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
            // The start-up time of the keeper does not count as the command's time.
            self.begun = Instant::now();
            let started_at = SystemTime::now();
            let _ = started.send(Ok(Started { pid, started_at, guard: self.link.child_pid() }));
        }
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        self.request(TERMINATE).await;
    }

    /// Asks the keeper to end the command.
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

    fn refusal(&self, step: LaunchStep, errno: Option<i32>, reason: String) -> ProcessError {
        let source = match errno {
            Some(errno) => std::io::Error::from_raw_os_error(errno),
            None => std::io::Error::other(reason.clone()),
        };
        match step {
            LaunchStep::Sandbox => ProcessError::SandboxUnavailable { reason },
            LaunchStep::Directory => ProcessError::Directory { directory: self.directory.clone(), source },
            LaunchStep::Program => ProcessError::Program { program: self.program.clone(), source },
            LaunchStep::Order => ProcessError::Prepare(source),
        }
    }
}

/// Sleeps until `moment`, or for ever if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
