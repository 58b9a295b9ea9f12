//! Who gets the next worker. Callers of different names take turns, so that one busy agent does not block the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[derive(Debug, Clone)]
pub(super) struct Queue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    max_waiting: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: usize,
    /// The first caller is next. It goes to the end with the rest of its jobs.
    callers: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    caller: String,
    jobs: VecDeque<oneshot::Sender<Turn>>,
}

/// `Turn` is the right to use one worker. Dropping it passes the right on.
#[derive(Debug)]
pub(super) struct Turn {
    queue: Option<Arc<Inner>>,
}

impl Queue {
    pub(super) fn new(count: usize, max_waiting: usize) -> Self {
        let state = State { free: count, waiting: 0, callers: VecDeque::new() };
        Self { inner: Arc::new(Inner { max_waiting, state: Mutex::new(state) }) }
    }

    /// Waits for a turn. The error is the number of waiting jobs, if there are too many.
    pub(super) async fn turn(&self, caller: &str) -> Result<Turn, usize> {
        let given = {
            let mut state = self.inner.state();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Turn { queue: Some(Arc::clone(&self.inner)) });
            }
            state.drop_abandoned(self.inner.max_waiting);
            if state.waiting >= self.inner.max_waiting {
                return Err(state.waiting);
            }
            state.enqueue(caller)
        };
        let waiting = self.inner.max_waiting;
        given.await.map_err(|_| waiting)
    }
}

impl State {
    fn enqueue(&mut self, caller: &str) -> oneshot::Receiver<Turn> {
        let (job, given) = oneshot::channel();
        self.waiting += 1;
        match self.callers.iter_mut().find(|waiting| waiting.caller == caller) {
            Some(waiting) => waiting.jobs.push_back(job),
            None => self.callers.push_back(Waiting { caller: caller.to_owned(), jobs: [job].into() }),
        }
        given
    }

    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let mut first = self.callers.pop_front()?;
        let job = first.jobs.pop_front();
        if !first.jobs.is_empty() {
            self.callers.push_back(first);
        }
        self.waiting = self.waiting.saturating_sub(1);
        job
    }

    /// Removes jobs whose callers have gone, when the queue is full.
    fn drop_abandoned(&mut self, max_waiting: usize) {
        if self.waiting < max_waiting {
            return;
        }
        for waiting in &mut self.callers {
            waiting.jobs.retain(|job| !job.is_closed());
        }
        self.callers.retain(|waiting| !waiting.jobs.is_empty());
        self.waiting = self.callers.iter().map(|waiting| waiting.jobs.len()).sum();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        loop {
            let job = {
                let mut state = queue.state();
                let Some(job) = state.next() else {
                    state.free += 1;
                    return;
                };
                job
            };
            match job.send(Turn { queue: Some(Arc::clone(&queue)) }) {
                Ok(()) => return,
                // The caller has gone: the next one gets the turn.
                Err(mut unused) => unused.queue = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_take_turns() {
        let queue = Queue::new(1, 100);
        let first = queue.turn("a").await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for caller in ["a", "a", "a", "b", "c"] {
            let (queue, order) = (queue.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _turn = queue.turn(caller).await.unwrap();
                order.lock().unwrap().push(caller);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a", "b", "c", "a", "a"]);
    }

    #[tokio::test]
    async fn full_queue_rejects_and_an_abandoned_place_is_free_again() {
        let queue = Queue::new(1, 1);
        let held = queue.turn("a").await.unwrap();
        let mut waiting = Box::pin(queue.turn("a"));
        assert!(futures_poll(&mut waiting).await.is_none());
        assert_eq!(queue.turn("b").await.unwrap_err(), 1);
        drop(waiting);
        let mut next = Box::pin(queue.turn("b"));
        assert!(futures_poll(&mut next).await.is_none());
        drop(held);
        next.await.unwrap();
        // The turn came back after its holder was dropped.
        queue.turn("c").await.unwrap();
    }

    /// Polls a future once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(std::time::Duration::ZERO, future).await.ok()
    }
}
