//! How far a call is, for a client that asked to be told: with a token for progress, or by the level of its log.

use std::time::Duration;

use gantry_tool::{Progress, ProgressSink};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::watch;
use tokio::time::Instant;

/// Not more often than anybody can look.
const PAUSE: Duration = Duration::from_millis(100);

/// A call that does not say how far it is, is at least said to run still: clients give up on silence.
const HEARTBEAT: Duration = Duration::from_secs(5);

pub(crate) struct Reports {
    token: Option<ProgressToken>,
    wanted: bool,
    told: watch::Receiver<Option<Progress>>,
    started: Instant,
    next: Instant,
    beat: Instant,
    /// Only ever more: the protocol wants progress to grow.
    last: Option<u64>,
    over: bool,
}

/// Nobody is told anything without a token, unless it is logged.
pub(crate) fn reports(token: Option<ProgressToken>, logged: bool) -> (Option<ProgressSink>, Reports) {
    let (telling, told) = watch::channel(None);
    let now = Instant::now();
    let wanted = token.is_some() || logged;
    let sink = wanted.then(|| {
        ProgressSink::new(move |progress| {
            telling.send_replace(Some(progress));
        })
    });
    let beat = now + HEARTBEAT;
    let reports = Reports { token, wanted, told, started: now, next: now, beat, last: None, over: false };
    (sink, reports)
}

impl Reports {
    /// The next report that is due; never, if nobody wants one.
    pub(crate) async fn next(&mut self) -> Progress {
        if !self.wanted {
            return std::future::pending().await;
        }
        loop {
            tokio::select! {
                told = self.told.changed(), if !self.over => {
                    if told.is_err() {
                        self.over = true;
                        continue;
                    }
                    tokio::time::sleep_until(self.next).await;
                    let Some(progress) = self.told.borrow_and_update().clone() else { continue };
                    if self.last.is_some_and(|last| progress.done <= last) {
                        continue;
                    }
                    self.last = Some(progress.done);
                    self.next = Instant::now() + PAUSE;
                    return progress;
                }
                () = tokio::time::sleep_until(self.beat), if self.token.is_some() => {
                    self.beat += HEARTBEAT;
                    if self.last.is_some() {
                        continue;
                    }
                    let done = self.started.elapsed().as_secs();
                    return Progress { done, total: None, message: "still running".into() };
                }
                else => return std::future::pending().await,
            }
        }
    }

    /// As the protocol tells it, to a client that gave a token.
    #[expect(clippy::cast_precision_loss, reason = "the protocol counts in floating point")]
    pub(crate) fn param(&self, progress: &Progress) -> Option<ProgressNotificationParam> {
        let mut param = ProgressNotificationParam::new(self.token.clone()?, progress.done as f64);
        param.total = progress.total.map(|total| total as f64);
        param.message = Some(progress.message.clone()).filter(|message| !message.is_empty());
        Some(param)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    fn progress(done: u64) -> Progress {
        Progress { done, total: Some(10), message: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_grows_and_is_not_told_too_often() {
        let (sink, mut reports) = reports(Some(ProgressToken(NumberOrString::Number(1))), false);
        let sink = sink.unwrap();
        sink.report(progress(1));
        assert_eq!(reports.next().await.done, 1);
        let began = Instant::now();
        sink.report(progress(2));
        sink.report(progress(3));
        assert_eq!(reports.next().await.done, 3, "the newest");
        assert!(began.elapsed() >= PAUSE);
        sink.report(progress(2));
        let nothing = tokio::time::timeout(HEARTBEAT * 3, reports.next()).await;
        assert!(nothing.is_err(), "never less, and no heartbeat between: {nothing:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_call_is_said_to_run_still() {
        let (_sink, mut silent) = reports(Some(ProgressToken(NumberOrString::Number(1))), false);
        let (first, second) = (silent.next().await, silent.next().await);
        assert!(second.done > first.done && first.message == "still running");
        assert_eq!(silent.param(&first).unwrap().message.as_deref(), Some("still running"));
        let (sink, mut unwanted) = reports(None, false);
        assert!(sink.is_none());
        assert!(tokio::time::timeout(HEARTBEAT * 3, unwanted.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_has_what_is_said_and_no_heartbeat() {
        let (sink, mut logged) = reports(None, true);
        let sink = sink.unwrap();
        assert!(tokio::time::timeout(HEARTBEAT * 3, logged.next()).await.is_err());
        sink.report(progress(4));
        let report = logged.next().await;
        assert_eq!((report.done, logged.param(&report)), (4, None), "no token, no progress of the protocol");
        drop(sink);
        assert!(
            tokio::time::timeout(HEARTBEAT * 3, logged.next()).await.is_err(),
            "and nothing after its end"
        );
    }
}
