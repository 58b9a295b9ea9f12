//! Decides what became of a detached session whose connection is lost: it is over, lost, or
//! waiting.

use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::{Conclusion, KEEPER_LIMIT, Supervisor, SupervisorRequest, at};
use crate::keeper::control_protocol::{CLOSE_STDIN, KILL, TERMINATE};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between attempts to reach a keeper that lives but does not answer, for example
/// because it was stopped.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Returns `None` if the session continues over a new connection.
    pub(super) async fn reconnect(&mut self) -> Option<Conclusion> {
        let Some(folder) = self.folder.clone() else { return Some(Conclusion::KeeperLost) };
        let mut pause = FIRST_PAUSE;
        loop {
            // A keeper records its exit before it goes, so these two checks must run in this order.
            let lives = folder.keeper_lives();
            if self.requests.is_closed() {
                return Some(Conclusion::Detached);
            }
            if let Some(end) = folder.end() {
                return Some(Conclusion::Ended(end));
            }
            // Without the key the keeper accepts nobody.
            if !lives || matches!(folder.key(), Ok(None)) {
                return Some(Conclusion::KeeperLost);
            }
            if let Ok((stream, feed)) = folder.connect().await {
                if self.requests.is_closed() {
                    return Some(Conclusion::Detached);
                }
                self.link.connect(stream);
                if let Some((mut stdin, ready)) = self.greeting.take() {
                    *stdin = feed.and_then(|feed| pipe::Sender::from_owned_fd(feed).ok());
                    let _ = ready.send(());
                }
                // Requests that the keeper had not read from the previous connection are lost, so
                // all of them are sent again.
                self.link.request(&self.sent_requests).await;
                return None;
            }
            tokio::select! {
                request = self.requests.recv() => match request {
                    None => return Some(Conclusion::Detached),
                    Some(ask) => self.queue_request(ask),
                },
                () = at(self.give_up) => return Some(Conclusion::KeeperLost),
                () = tokio::time::sleep(pause) => pause = (2 * pause).min(LONGEST_PAUSE),
            }
        }
    }

    /// Remembers a request until there is a connection. A request to end sets a deadline.
    fn queue_request(&mut self, request: SupervisorRequest) {
        let request = match request {
            SupervisorRequest::Terminate => TERMINATE,
            SupervisorRequest::Kill => KILL,
            SupervisorRequest::CloseStdin => CLOSE_STDIN,
            SupervisorRequest::Detach(_, answer) => {
                let _ = answer.send(Ok(()));
                return;
            }
        };
        if request != CLOSE_STDIN {
            self.give_up.get_or_insert_with(|| Instant::now() + KEEPER_LIMIT);
        }
        self.note_request(request);
    }

    /// Each request is sent once, and once more after each reconnect.
    pub(super) fn note_request(&mut self, request: u8) {
        if !self.sent_requests.contains(&request) {
            self.sent_requests.push(request);
        }
    }
}
