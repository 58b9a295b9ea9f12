//! Sends progress reports over the current connection, at most ten per second and call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_link::Link;
use gantry_protocol::{CallProgress, event, raw};
use gantry_tool::{Progress, ProgressSink};

const EVERY: Duration = Duration::from_millis(100);

/// The current connection, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Current {
    link: Arc<Mutex<Option<Link>>>,
}

impl Current {
    pub(crate) fn set(&self, link: Option<Link>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    pub(crate) fn get(&self) -> Option<Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(crate) fn sink(current: Current, call_id: String) -> ProgressSink {
    let last = Mutex::new(None);
    ProgressSink::new(move |progress| {
        let is_done = progress.total == Some(progress.done);
        if !is_due(&mut last.lock().unwrap_or_else(PoisonError::into_inner), Instant::now()) && !is_done {
            return;
        }
        let Some(link) = current.get() else { return };
        let Progress { done, total, message } = progress;
        // A report that does not fit into the queue is dropped; the next one is newer.
        link.try_event(
            event::CALL_PROGRESS,
            raw(&CallProgress { call: call_id.clone(), done, total, message }),
        );
    })
}

fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now.saturating_duration_since(last) >= EVERY);
    if due {
        *last = Some(now);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_reports_a_second() {
        let start = Instant::now();
        let mut last = None;
        let sent = (0..1_000).filter(|ms| is_due(&mut last, start + Duration::from_millis(*ms))).count();
        assert_eq!(sent, 10);
    }
}
