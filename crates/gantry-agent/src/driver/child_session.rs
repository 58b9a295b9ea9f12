//! A session as somebody's child: how it is born, how it is named, and how it ends when its parent waits for it no more.

use gantry_store::{DatabaseError, LoadedSession};

use super::{Done, Driver};
use crate::child::{Child, ChildName, Payer};
use crate::context::Window;
use crate::entry::{Entry, Incoming};
use crate::event::Event;
use crate::model::Asker;
use crate::sessions::now_ms;
use crate::state::{CallStatus, PendingCall, State};
use crate::step::{self, Limits, Step};

/// Budgets of others that a message brings along, beside that of the run.
const MAX_BUDGETS: usize = 64;

impl Driver {
    pub(super) async fn be_born(
        &mut self,
        child: Box<Child>,
        incoming: Incoming,
        done: Done<Option<Event>>,
    ) -> Result<(), DatabaseError> {
        if self.child().is_none() {
            self.stage(vec![Entry::Born(child)])?;
        }
        self.take_in(incoming, None, done).await?;
        // Whoever begins the next child waits for this, and not for what it begins with.
        self.flush().await
    }

    pub(super) fn child(&self) -> Option<&Child> {
        self.state().and_then(|state| state.child.as_deref())
    }

    /// Who pays for a run: whoever wrote the message that began it, a child's family, or it is one of its own.
    pub(super) fn payer(&self, run: &str) -> Payer {
        let child = self.child();
        let own = child.map(|child| child.budgets.clone()).unwrap_or_default();
        let sender = self.state().and_then(|state| state.run.as_ref()).filter(|known| known.id == run);
        match (sender.and_then(|run| run.payer.clone()), child) {
            // What a child may spend in all is not more because others write to it.
            (Some(Payer { account, mut budgets }), _) => {
                let more = own.into_iter().filter(|budget| !budgets.contains(budget)).collect::<Vec<_>>();
                budgets.extend(more.into_iter().take(MAX_BUDGETS.saturating_sub(budgets.len())));
                Payer { account, budgets }
            }
            (None, Some(child)) => Payer { account: child.account.clone(), budgets: own },
            (None, None) => Payer { account: Asker::account(&self.key.key, run), budgets: own },
        }
    }

    /// Whether nobody may be asked, since somebody above works alone.
    pub(super) fn is_unattended(&self) -> bool {
        self.child().is_some_and(|child| child.unattended)
    }

    /// How a child is named to those who are asked.
    pub(super) fn child_name(&self) -> Option<ChildName> {
        let child = self.child()?;
        Some(ChildName { name: child.name.clone(), session_key: self.key.key.clone() })
    }

    /// Whether this is a child whose parent waits for it no more: then what it was begun for is over.
    pub(super) async fn is_orphan(&self) -> Result<bool, DatabaseError> {
        let (Some(state), Some(child)) = (self.state(), self.child()) else { return Ok(false) };
        let taken_up =
            state.run.as_ref().is_some_and(|run| run.answers.iter().any(|of| of.id == child.message));
        if !taken_up && !state.queue.iter().any(|message| message.id == child.message) {
            return Ok(false);
        }
        let Some(parent) = self.shared.parts.journal.load(&child.parent).await? else { return Ok(true) };
        let parent_state = folded(&parent)?;
        let waits = |call: &PendingCall| {
            !matches!(call.status, CallStatus::Ended(_))
                && parent_state.step(&child.parent, &call.id) == child.step
        };
        Ok(!parent_state.calls().iter().any(waits))
    }

    /// A run that nobody waits for any more ends before it does anything.
    pub(super) async fn end_orphan(&mut self) -> Result<(), DatabaseError> {
        let Some(state) = self.state() else { return Ok(()) };
        let limits = Limits { requests: 0, window: Window::UNKNOWN };
        let mut entries = match step::next(state, &limits, now_ms()) {
            Step::Record(begins) if state.run.is_none() => begins,
            _ => Vec::new(),
        };
        entries.push(Entry::StopAsked { by: "the end of its parent's call".into() });
        self.append(entries).await
    }
}

pub(super) fn folded(session: &LoadedSession) -> Result<State, DatabaseError> {
    let entries = session.events.iter().map(|event| serde_json::from_str::<Entry>(&event.data));
    let entries: Vec<Entry> = entries
        .collect::<Result<_, _>>()
        .map_err(|cause| DatabaseError::Damaged { doing: "load the session", cause })?;
    Ok(State::fold(entries))
}
