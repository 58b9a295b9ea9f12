//! Finds out what became of a detached session when there is no connection to its keeper: over, lost, or waiting.

use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::{Ask, KEEPER_LIMIT, Supervisor, Verdict, at};
use crate::order::{CLOSE_STDIN, KILL, TERMINATE};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A keeper that lives but does not answer (it was stopped, say) is asked this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Returns `None` when the session goes on over a new connection.
    pub(super) async fn reconnect(&mut self) -> Option<Verdict> {
        let Some(folder) = self.folder.clone() else { return Some(Verdict::KeeperLost) };
        let mut pause = FIRST_PAUSE;
        loop {
            // The keeper leaves its end before it goes, so the order of these two looks matters.
            let lives = folder.keeper_lives();
            if self.asks.is_closed() {
                return Some(Verdict::Left);
            }
            if let Some(end) = folder.end() {
                return Some(Verdict::Ended(end));
            }
            // Without its key its keeper hears nobody.
            if !lives || matches!(folder.key(), Ok(None)) {
                return Some(Verdict::KeeperLost);
            }
            if let Ok((stream, feed)) = folder.connect().await {
                if self.asks.is_closed() {
                    return Some(Verdict::Left);
                }
                self.link.connect(stream);
                if let Some((mut stdin, ready)) = self.greeting.take() {
                    *stdin = feed.and_then(|feed| pipe::Sender::from_owned_fd(feed).ok());
                    let _ = ready.send(());
                }
                // Whatever the keeper had not read of the connection before is lost, so all is said again.
                self.link.request(&self.asked).await;
                return None;
            }
            tokio::select! {
                ask = self.asks.recv() => match ask {
                    None => return Some(Verdict::Left),
                    Some(ask) => self.put_off(ask),
                },
                () = at(self.give_up) => return Some(Verdict::KeeperLost),
                () = tokio::time::sleep(pause) => pause = (2 * pause).min(LONGEST_PAUSE),
            }
        }
    }

    /// Asked for again when there is a connection. An end is only waited for so long.
    fn put_off(&mut self, ask: Ask) {
        let request = match ask {
            Ask::Terminate => TERMINATE,
            Ask::Kill => KILL,
            Ask::CloseStdin => CLOSE_STDIN,
            Ask::Detach(_, answer) => {
                let _ = answer.send(Ok(()));
                return;
            }
        };
        if request != CLOSE_STDIN {
            self.give_up.get_or_insert_with(|| Instant::now() + KEEPER_LIMIT);
        }
        self.note_request(request);
    }

    /// Each is asked for once, or again after a reconnect.
    pub(super) fn note_request(&mut self, request: u8) {
        if !self.asked.contains(&request) {
            self.asked.push(request);
        }
    }
}
