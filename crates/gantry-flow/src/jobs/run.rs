//! Executes one run of a job: in a session of its own, or as a message to the agent's main session.

use std::sync::Arc;
use std::time::Duration;

use gantry_agent::{
    AccountBudget, BackgroundChange, BackgroundSpec, BackgroundWork, NewMessage, Payer, Sent, SessionError,
    SessionEvent,
};
use gantry_protocol::{CronPause, OutboxBody, RunEvent, RunKind};
use gantry_store::{ACCOUNT_SEPARATOR, CronRunRow, FinishedRun, JobAfterRun, NewOutboxMessage, RUN_MESSAGE};
use gantry_tool::Label;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::definition::{CarriedAnswer, JobSpec, RunSnapshot};
use super::info::Job;
use crate::domain::Flow;
use crate::outbox::owner_copies;
use crate::run_events::RunName;
use crate::slots::Slot;
use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS, duration_text, local_text};

/// The pauses after consecutive errors. The last one repeats.
const BACKOFF_MS: [i64; 5] = [30 * SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS];
/// The job is paused after this many errors in a row.
const MAX_ERRORS: i64 = 10;
/// The owner is notified of these errors in a row.
const NOTIFIED_ERRORS: [i64; 2] = [1, 3];
/// Minutes until an unanswered question counts as a no.
const APPROVAL_MINUTES: u32 = 24 * 60;
/// Characters of an answer in the history, and of one that the next run gets.
const SUMMARY_CHARS: usize = 2_000;
const ANSWER_CHARS: usize = 4_000;
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Returns how long a job or a task waits after an error. `before` is the number of errors in a row before it.
pub(crate) fn backoff_ms(before: i64) -> i64 {
    let place = usize::try_from(before).unwrap_or(0).min(BACKOFF_MS.len() - 1);
    BACKOFF_MS[place]
}

/// How a run ended.
struct Ended {
    state: &'static str,
    outcome: Result<String, String>,
    labels: Vec<Label>,
}

impl Ended {
    fn error(error: impl Into<String>) -> Ended {
        Ended { state: "error", outcome: Err(error.into()), labels: Vec::new() }
    }
}

/// A run in progress: its place among the concurrent runs, its time limit and its cancellation.
struct Progress<'a> {
    flow: &'a Flow,
    run: &'a CronRunRow,
    slot: Option<Slot>,
    cancel: CancellationToken,
    deadline: i64,
    parked_at: Option<i64>,
}

/// Runs a claimed run to its end and records it. `slot` is its place among the concurrent runs.
pub(super) async fn execute(flow: Arc<Flow>, run: CronRunRow, slot: Option<Slot>) {
    let cancel = flow.jobs.begin(&run.id);
    let now = flow.parts.clock.now();
    let started = run.started.unwrap_or(now);
    let ended = match serde_json::from_str::<RunSnapshot>(&run.snapshot) {
        Ok(snapshot) => {
            let deadline = started.saturating_add(snapshot.spec.timeout_ms());
            let session_key = run.session.clone();
            flow.publish(
                run_name(&run, &snapshot),
                RunEvent::Started { session_key, resumed: run.epoch > 1 },
            );
            let mut progress = Progress { flow: &flow, run: &run, slot, cancel, deadline, parked_at: None };
            if run.state == "parked" {
                progress.parked_at = Some(flow.parts.clock.now());
                progress.slot = None;
            }
            let ended = match &snapshot.spec {
                JobSpec::Task { .. } => task(&mut progress, &snapshot).await,
                JobSpec::SystemEvent { text } => system_event(&mut progress, &snapshot, text).await,
            };
            ended.map(|ended| (Some(snapshot), ended))
        }
        Err(err) => Some((None, Ended::error(format!("the stored run cannot be read: {err}")))),
    };
    // Without an end the gateway stops, and the next process continues the run.
    if let Some((snapshot, ended)) = ended {
        finish(&flow, &run, snapshot.as_ref(), &ended).await;
        if let Some(snapshot) = &snapshot {
            let duration_ms = flow.parts.clock.now().saturating_sub(started).max(0);
            let (status, error) = (ended.state.to_owned(), ended.outcome.err());
            flow.publish(run_name(&run, snapshot), RunEvent::Ended { status, error, duration_ms });
        }
    }
    flow.jobs.end(&run.id);
    flow.slot_freed();
    flow.parts.outbox.wake();
}

fn run_name<'a>(run: &'a CronRunRow, snapshot: &'a RunSnapshot) -> RunName<'a> {
    RunName {
        kind: RunKind::Schedule,
        run: &run.id,
        source: &run.job,
        name: &snapshot.name,
        agent: &snapshot.authority.agent,
    }
}

/// The account of a run's costs, below the account of its job and day.
fn account(flow: &Flow, run: &CronRunRow) -> Payer {
    let started = run.started.unwrap_or(run.queued);
    let day = jiff::Timestamp::from_millisecond(started)
        .map_or_else(|_| String::new(), |time| time.to_zoned(flow.parts.zone.clone()).date().to_string());
    let daily = format!("cron:{}:{day}", run.job);
    let account = format!("{daily}{ACCOUNT_SEPARATOR}{}", run.id);
    let config = &flow.parts.config;
    let budgets = vec![
        AccountBudget::background(&account, config.run_budget_usd),
        AccountBudget::background(&daily, config.daily_budget_usd),
    ];
    Payer { account, budgets }
}

/// Runs a turn in a session of its own. Returns `None` if the gateway stops.
async fn task(progress: &mut Progress<'_>, snapshot: &RunSnapshot) -> Option<Ended> {
    let (flow, run) = (progress.flow, progress.run);
    let JobSpec::Task { message, deliver, model, thinking, .. } = &snapshot.spec else {
        return Some(Ended::error("the run is not a task"));
    };
    let (thinking, effort) = match thinking.as_deref().map(gantry_agent::thinking) {
        Some(Ok((thinking, effort))) => (Some(thinking), effort),
        Some(Err(why)) => return Some(Ended::error(why)),
        None => (None, None),
    };
    let Payer { account, budgets } = account(flow, run);
    let spec = BackgroundSpec {
        conversation: format!("cron:{}", run.id),
        label: snapshot.name.clone(),
        work: BackgroundWork::Message(task_text(flow, snapshot, message, *deliver)),
        authority: snapshot.authority.clone(),
        labels: snapshot.context.as_ref().map(|carried| carried.labels.clone()).unwrap_or_default(),
        role: None,
        model: model.clone(),
        thinking,
        effort,
        tools: Vec::new(),
        max_turns: None,
        account,
        budgets,
        approval_minutes: APPROVAL_MINUTES,
    };
    let mut session = match flow.parts.sessions.start_background(spec).await {
        Ok(session) => session,
        Err(SessionError::Stopping) => return None,
        Err(err) => return Some(Ended::error(err.to_string())),
    };
    let mut stopped: Option<(&'static str, String)> = None;
    loop {
        let change = tokio::select! {
            change = session.next() => change,
            why = progress.must_stop(), if stopped.is_none() => {
                session.stop(&why.1).await;
                stopped = Some(why);
                continue;
            }
        };
        match change {
            BackgroundChange::Waiting => progress.park(&session.key.key, snapshot).await,
            BackgroundChange::Working => progress.unpark(&session.key.key, snapshot).await,
            BackgroundChange::Ended(end) => {
                let (state, outcome) = match (stopped, end.outcome) {
                    (Some((state, why)), Err(_)) => (state, Err(why)),
                    (_, Ok(answer)) => ("ok", Ok(answer)),
                    (None, Err(error)) if end.stopped => ("cancelled", Err(error)),
                    (None, Err(error)) => ("error", Err(error)),
                };
                return Some(Ended { state, outcome, labels: end.labels });
            }
        }
    }
}

/// The first message of a task's session.
fn task_text(flow: &Flow, snapshot: &RunSnapshot, message: &str, deliver: bool) -> String {
    let when = local_text(snapshot.scheduled_at, &flow.parts.zone);
    let mut text = format!("[scheduled run of {:?}, {when}]\n{message}", snapshot.name);
    if let Some(carried) = &snapshot.context {
        let answer = &carried.text;
        text.push_str(&format!("\n\n[the answer of the last run]\n{answer}\n[end of that answer]"));
    }
    if deliver {
        text.push_str("\n\n[Your answer is sent to the user by itself.]");
    }
    text
}

/// Sends a message to the agent's main session and waits for the answer. Returns `None` if the gateway stops.
async fn system_event(progress: &mut Progress<'_>, snapshot: &RunSnapshot, text: &str) -> Option<Ended> {
    let (flow, run) = (progress.flow, progress.run);
    let sessions = &flow.parts.sessions;
    let key = match sessions.key(&format!("agent:{}:main", snapshot.authority.agent), None) {
        Ok(key) => key,
        Err(err) => return Some(Ended::error(err.to_string())),
    };
    let when = local_text(snapshot.scheduled_at, &flow.parts.zone);
    let from = format!("cron:{}", run.job);
    let message = NewMessage {
        // The first line keeps the text from being read as a command.
        text: format!("[scheduled event {:?}, {when}]\n{text}", snapshot.name),
        id: Some(format!("cron-run:{}", run.id)),
        reply_to: json!({"cron": run.job}),
        from,
        labels: snapshot.authority.labels.clone(),
        payer: Some(account(flow, run)),
        workspace: None,
        channel_event: None,
        images: Vec::new(),
    };
    let mut events = sessions.listen(&key);
    let id = match sessions.send(&key, message).await {
        Ok(Sent::Accepted { message }) => message,
        Ok(Sent::Settled { event, .. }) => return settled(&event),
        Ok(Sent::Command(text)) => {
            return Some(Ended::error(format!("the message was read as a command: {text}")));
        }
        Err(SessionError::Stopping) => return None,
        Err(err) => return Some(Ended::error(err.to_string())),
    };
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            (state, why) = progress.must_stop() => {
                return Some(Ended { state, outcome: Err(why), labels: Vec::new() });
            }
        };
        match event {
            Ok(event) if event.settles(&id) => return settled(&event),
            Ok(event) => match *event {
                SessionEvent::Suspended => return None,
                SessionEvent::Approval { .. } | SessionEvent::Asked { .. } => {
                    progress.park(&key.key, snapshot).await;
                }
                SessionEvent::ApprovalAnswered { .. } | SessionEvent::AskedAnswered { .. } => {
                    progress.unpark(&key.key, snapshot).await;
                }
                _ => {}
            },
            Err(RecvError::Lagged(_)) => {
                if let Some(event) = sessions.settled(&key, &id).await {
                    return settled(&event);
                }
            }
            Err(RecvError::Closed) => return None,
        }
    }
}

fn settled(event: &SessionEvent) -> Option<Ended> {
    let (state, outcome) = match event {
        SessionEvent::Final { text, .. } => ("ok", Ok(text.clone())),
        SessionEvent::Stopped { by, .. } => ("cancelled", Err(format!("stopped by {by}"))),
        SessionEvent::Error { message, .. } => ("error", Err(message.clone())),
        _ => return None,
    };
    Some(Ended { state, outcome, labels: Vec::new() })
}

impl Progress<'_> {
    /// Returns when the run has to end, with its state and the reason.
    async fn must_stop(&self) -> (&'static str, String) {
        loop {
            let now = self.flow.parts.clock.now();
            // The time of a parked run does not count.
            let left = if self.parked_at.is_some() { i64::MAX } else { self.deadline };
            if now >= left {
                let limit = self.deadline.saturating_sub(self.run.started.unwrap_or(now));
                return ("error", format!("the run reached its time limit of {}", duration_text(limit)));
            }
            tokio::select! {
                () = self.cancel.cancelled() => return ("cancelled", "the run was cancelled".to_owned()),
                () = self.flow.parts.clock.wait_until(left.min(now.saturating_add(HOUR_MS))) => {}
            }
        }
    }

    /// Frees the run's place while it waits for a person.
    async fn park(&mut self, session: &str, snapshot: &RunSnapshot) {
        if self.parked_at.is_some() {
            return;
        }
        self.parked_at = Some(self.flow.parts.clock.now());
        let (name, agent) = (&snapshot.name, &snapshot.authority.agent);
        let text = format!(
            "{name:?} waits for an answer. `gantry sessions questions {session}` shows the question."
        );
        let key = format!("cron-parked:{}", self.run.id);
        let from = format!("cron:{}", self.run.job);
        let notice = self.flow.notice(agent, "A scheduled run asks", &text, &key, &from, &[]);
        if let Err(err) = self.flow.parts.database.park_cron_run(self.run, true).await {
            tracing::warn!(run = self.run.id, error = %err, "run_not_parked");
        }
        if let Err(err) = self.flow.send_messages(&[notice]).await {
            tracing::warn!(run = self.run.id, error = %err, "notice_failed");
        }
        self.slot = None;
        self.flow.slot_freed();
        let session_key = session.to_owned();
        self.flow.publish(run_name(self.run, snapshot), RunEvent::Waiting { session_key, step: None });
    }

    async fn unpark(&mut self, session: &str, snapshot: &RunSnapshot) {
        let Some(parked) = self.parked_at.take() else { return };
        self.deadline = self.deadline.saturating_add(self.flow.parts.clock.now().saturating_sub(parked));
        // The session works already, so the run does not wait for a place.
        self.slot = self.flow.slots.take();
        if let Err(err) = self.flow.parts.database.park_cron_run(self.run, false).await {
            tracing::warn!(run = self.run.id, error = %err, "run_not_continued");
        }
        let session_key = session.to_owned();
        self.flow.publish(run_name(self.run, snapshot), RunEvent::Continued { session_key, step: None });
    }
}

/// Records the end of a run. Repeats until the database accepts it.
async fn finish(flow: &Flow, run: &CronRunRow, snapshot: Option<&RunSnapshot>, ended: &Ended) {
    loop {
        match record(flow, run, snapshot, ended).await {
            Ok(_) => return,
            Err(err) => tracing::warn!(run = run.id, error = %err, "run_end_not_recorded"),
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn record(
    flow: &Flow,
    run: &CronRunRow,
    snapshot: Option<&RunSnapshot>,
    ended: &Ended,
) -> Result<bool, gantry_store::DatabaseError> {
    let database = &flow.parts.database;
    let now = flow.parts.clock.now();
    let cost = database.spending("", "", &account(flow, run).account).await?.run;
    let (error, answer) = match &ended.outcome {
        Ok(answer) => (None, Some(answer)),
        Err(error) => (Some(error.clone()), None),
    };
    let cut = |text: &String, chars: usize| text.chars().take(chars).collect::<String>();
    let mut messages = Vec::new();
    let mut delivery = "none";
    if let (Some(snapshot), Some(answer)) = (snapshot, answer) {
        match &snapshot.spec {
            // The answer is in the session already. It also goes to the owner's last active chat.
            JobSpec::SystemEvent { .. } => {
                delivery = "sent";
                let body = OutboxBody {
                    agent: snapshot.authority.agent.clone(),
                    text: answer.clone(),
                    from: format!("cron:{}", run.job),
                    ..OutboxBody::default()
                };
                let key = format!("cron-event:{}", run.id);
                messages.extend(owner_copies(&flow.parts.outbox, &snapshot.authority.agent, &key, &body));
            }
            JobSpec::Task { deliver: true, to, .. } => {
                delivery = "queued";
                messages.extend(flow.parts.outbox.prepare(NewOutboxMessage {
                    dedupe: format!("{RUN_MESSAGE}{}", run.id),
                    channel: to.channel.clone(),
                    target: to.to.clone(),
                    body: OutboxBody {
                        agent: snapshot.authority.agent.clone(),
                        title: snapshot.name.clone(),
                        text: answer.clone(),
                        from: format!("cron:{}", run.job),
                        labels: ended.labels.iter().map(|label| label.name().to_owned()).collect(),
                        chat: None,
                    },
                    expires: None,
                }));
            }
            JobSpec::Task { .. } => {}
        }
    }
    let job = match run.kind.as_str() {
        "manual" => None,
        _ => database.cron_job(&run.job).await?.and_then(|row| Job::of(row).ok()),
    };
    let job = job.map(|job| after_run(flow, run, &job, ended, now, &mut messages));
    let finished = FinishedRun {
        run,
        state: ended.state,
        error,
        summary: answer.map(|answer| cut(answer, SUMMARY_CHARS)),
        answer: answer.and_then(|answer| {
            let carried = CarriedAnswer { text: cut(answer, ANSWER_CHARS), labels: ended.labels.clone() };
            serde_json::to_string(&carried).ok()
        }),
        cost,
        delivery,
        messages,
        job,
    };
    database.finish_cron_run(&finished, now).await
}

/// What the end of a scheduled run means for its job.
fn after_run(
    flow: &Flow,
    run: &CronRunRow,
    job: &Job,
    ended: &Ended,
    now: i64,
    messages: &mut Vec<NewOutboxMessage>,
) -> JobAfterRun {
    let before = job.row.state.errors;
    let is_once = job.definition.schedule.is_once();
    let mut after = JobAfterRun { errors: before, disable: is_once, ..JobAfterRun::default() };
    match ended.state {
        "ok" => {
            after.errors = 0;
            after.delete = is_once && job.definition.delete_after_run;
        }
        "error" => {
            after.errors = before + 1;
            after.not_before = Some(now.saturating_add(backoff_ms(before)));
            let error = ended.outcome.as_ref().err().map(String::as_str).unwrap_or_default();
            let pauses = after.errors >= MAX_ERRORS && !is_once;
            if pauses {
                let reason = format!("{} errors in a row; the last one: {error}", after.errors);
                let pause = CronPause { reason, at: now, count: after.errors };
                after.paused = serde_json::to_string(&pause).ok();
            }
            if pauses || NOTIFIED_ERRORS.contains(&after.errors) {
                messages.push(failure_notice(flow, run, job, after.errors, error, pauses));
            }
        }
        _ => {}
    }
    after
}

fn failure_notice(
    flow: &Flow,
    run: &CronRunRow,
    job: &Job,
    errors: i64,
    error: &str,
    pauses: bool,
) -> NewOutboxMessage {
    let name = &job.definition.name;
    let id = &job.row.id;
    let (title, text) = match pauses {
        true => (
            "A job is paused",
            format!(
                "{name:?} failed {errors} times in a row and is paused: {error}\nTo continue, run `gantry cron resume {id}`."
            ),
        ),
        false => (
            "A scheduled run failed",
            format!(
                "{name:?} failed ({errors} in a row): {error}\n`gantry cron history {id}` shows its runs."
            ),
        ),
    };
    let key = format!("cron-failed:{}", run.id);
    flow.notice(&job.row.agent, title, &text, &key, &format!("cron:{id}"), &job.authority.labels)
}
