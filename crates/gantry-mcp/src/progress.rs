//! How far a call is, for a client that asked to be told.

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
    told: watch::Receiver<Option<Progress>>,
    started: Instant,
    next: Instant,
    beat: Instant,
    /// Only ever more: the protocol wants progress to grow.
    last: Option<u64>,
    over: bool,
}

/// Nobody is told anything without a token.
pub(crate) fn reports(token: Option<ProgressToken>) -> (Option<ProgressSink>, Reports) {
    let (telling, told) = watch::channel(None);
    let now = Instant::now();
    let sink = token.is_some().then(|| {
        ProgressSink::new(move |progress| {
            telling.send_replace(Some(progress));
        })
    });
    let reports =
        Reports { token, told, started: now, next: now, beat: now + HEARTBEAT, last: None, over: false };
    (sink, reports)
}

impl Reports {
    /// The next report that is due; never, if nobody wants one.
    pub(crate) async fn next(&mut self) -> ProgressNotificationParam {
        let Some(token) = self.token.clone() else { return std::future::pending().await };
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
                    return told_of(token, progress);
                }
                () = tokio::time::sleep_until(self.beat) => {
                    self.beat += HEARTBEAT;
                    if self.last.is_some() {
                        continue;
                    }
                    let done = self.started.elapsed().as_secs();
                    return told_of(token, Progress { done, total: None, message: "still running".into() });
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the protocol counts in floating point")]
fn told_of(token: ProgressToken, progress: Progress) -> ProgressNotificationParam {
    let mut param = ProgressNotificationParam::new(token, progress.done as f64);
    param.total = progress.total.map(|total| total as f64);
    param.message = Some(progress.message).filter(|message| !message.is_empty());
    param
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
        let (sink, mut reports) = reports(Some(ProgressToken(NumberOrString::Number(1))));
        let sink = sink.unwrap();
        sink.report(progress(1));
        assert_eq!(reports.next().await.progress, 1.0);
        let began = Instant::now();
        sink.report(progress(2));
        sink.report(progress(3));
        assert_eq!(reports.next().await.progress, 3.0, "the newest");
        assert!(began.elapsed() >= PAUSE);
        sink.report(progress(2));
        let nothing = tokio::time::timeout(HEARTBEAT * 3, reports.next()).await;
        assert!(nothing.is_err(), "never less, and no heartbeat between: {nothing:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_call_is_said_to_run_still() {
        let (_sink, mut silent) = reports(Some(ProgressToken(NumberOrString::Number(1))));
        let (first, second) = (silent.next().await, silent.next().await);
        assert!(second.progress > first.progress && first.message.as_deref() == Some("still running"));
        let (sink, mut unwanted) = reports(None);
        assert!(sink.is_none());
        assert!(tokio::time::timeout(HEARTBEAT * 3, unwanted.next()).await.is_err());
    }
}
