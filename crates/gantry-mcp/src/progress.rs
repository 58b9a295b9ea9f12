//! Reports a call's progress to a client that sent a progress token or set a log level.

use std::time::Duration;

use gantry_tool::{Progress, ProgressSink};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::watch;
use tokio::time::Instant;

/// Minimum time between two reports.
const PAUSE: Duration = Duration::from_millis(100);

/// A call without progress sends a heartbeat this often, because clients time out on silence.
const HEARTBEAT: Duration = Duration::from_secs(5);

pub(crate) struct Reports {
    token: Option<ProgressToken>,
    wanted: bool,
    reported: watch::Receiver<Option<Progress>>,
    started: Instant,
    next: Instant,
    beat: Instant,
    /// The last value sent. The protocol requires growing values.
    last: Option<u64>,
    over: bool,
}

/// Creates the receiver of progress and its reports. Without a token, progress is only logged.
pub(crate) fn reports(token: Option<ProgressToken>, logged: bool) -> (Option<ProgressSink>, Reports) {
    let (sender, reported) = watch::channel(None);
    let now = Instant::now();
    let wanted = token.is_some() || logged;
    let sink = wanted.then(|| {
        ProgressSink::new(move |progress| {
            sender.send_replace(Some(progress));
        })
    });
    let beat = now + HEARTBEAT;
    let reports = Reports { token, wanted, reported, started: now, next: now, beat, last: None, over: false };
    (sink, reports)
}

impl Reports {
    /// Waits for the next report. Never returns if the client wants none.
    pub(crate) async fn next(&mut self) -> Progress {
        if !self.wanted {
            return std::future::pending().await;
        }
        loop {
            tokio::select! {
                changed = self.reported.changed(), if !self.over => {
                    if changed.is_err() {
                        self.over = true;
                        continue;
                    }
                    tokio::time::sleep_until(self.next).await;
                    let Some(progress) = self.reported.borrow_and_update().clone() else { continue };
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

    /// Converts a report to the protocol's notification, for a client that sent a token.
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
    async fn progress_grows_and_is_throttled() {
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
    async fn silent_call_sends_heartbeats() {
        let (_sink, mut silent) = reports(Some(ProgressToken(NumberOrString::Number(1))), false);
        let (first, second) = (silent.next().await, silent.next().await);
        assert!(second.done > first.done && first.message == "still running");
        assert_eq!(silent.param(&first).unwrap().message.as_deref(), Some("still running"));
        let (sink, mut unwanted) = reports(None, false);
        assert!(sink.is_none());
        assert!(tokio::time::timeout(HEARTBEAT * 3, unwanted.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn log_has_progress_without_heartbeats() {
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
