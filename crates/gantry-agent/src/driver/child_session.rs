//! The driver's part of a child session: how it starts, who pays for it, and how it ends when its parent
//! no longer waits.

use gantry_protocol::SessionEvent;
use gantry_store::{DatabaseError, LoadedSession};

use super::{Done, Driver};
use crate::child::{Child, ChildName, Payer};
use crate::context::Window;
use crate::entry::{Entry, Incoming};
use crate::models::Asker;
use crate::sessions::now_ms;
use crate::state::{CallStatus, PendingCall, State};
use crate::step::{self, Limits, Step};

/// The highest number of budgets that apply to one run.
const MAX_BUDGETS: usize = 64;

impl Driver {
    pub(super) async fn start_as_child(
        &mut self,
        child: Box<Child>,
        incoming: Incoming,
        done: Done<Option<SessionEvent>>,
    ) -> Result<(), DatabaseError> {
        if self.child().is_none() {
            self.apply(vec![Entry::ChildStarted(child)])?;
        }
        self.accept_message(incoming, None, None, done).await?;
        // A session without a model makes its call at once. Both are written together.
        if self.fixed_call().is_some() {
            return Ok(());
        }
        // The start of the next child waits for this write, not for the child's first step.
        self.flush().await
    }

    pub(super) fn child(&self) -> Option<&Child> {
        self.state().and_then(|state| state.child.as_deref())
    }

    /// Returns the account of a run: that of the message that started it, that of the child, or its own.
    pub(super) fn payer(&self, run: &str) -> Payer {
        let child = self.child();
        let own = child.map(|child| child.budgets.clone()).unwrap_or_default();
        let sender = self.state().and_then(|state| state.run.as_ref()).filter(|known| known.id == run);
        match (sender.and_then(|run| run.payer.clone()), child) {
            // A message from elsewhere does not raise a child's own budget.
            (Some(Payer { account, mut budgets }), _) => {
                let more = own.into_iter().filter(|budget| !budgets.contains(budget)).collect::<Vec<_>>();
                budgets.extend(more.into_iter().take(MAX_BUDGETS.saturating_sub(budgets.len())));
                Payer { account, budgets }
            }
            (None, Some(child)) => Payer { account: child.account.clone(), budgets: own },
            (None, None) => Payer { account: Asker::account(&self.key.key, run), budgets: own },
        }
    }

    /// Whether no questions may be asked, because a session above is autonomous.
    pub(super) fn is_unattended(&self) -> bool {
        self.child().is_some_and(|child| child.unattended)
    }

    /// The child's name and key for its questions.
    pub(super) fn child_name(&self) -> Option<ChildName> {
        let child = self.child()?;
        Some(ChildName { name: child.name.clone(), session_key: self.key.key.clone() })
    }

    /// Whether this is a child whose parent no longer waits for it.
    pub(super) async fn is_orphan(&self) -> Result<bool, DatabaseError> {
        let (Some(state), Some(child)) = (self.state(), self.child()) else { return Ok(false) };
        if child.background.is_some() {
            return Ok(false);
        }
        let is_running =
            state.run.as_ref().is_some_and(|run| run.answers.iter().any(|of| of.id == child.message));
        if !is_running && !state.queue.iter().any(|message| message.id == child.message) {
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

    /// Stops the run of an orphan before it does anything.
    pub(super) async fn end_orphan(&mut self) -> Result<(), DatabaseError> {
        let Some(state) = self.state() else { return Ok(()) };
        let limits = Limits { requests: 0, window: Window::UNKNOWN };
        let mut entries = match step::next(state, &limits, now_ms()) {
            Step::Record(start) if state.run.is_none() => start,
            _ => Vec::new(),
        };
        entries.push(Entry::StopAsked { by: "the end of its parent's call".into() });
        self.append(entries).await
    }
}

/// Folds a stored session into its state.
pub(super) fn folded(session: &LoadedSession) -> Result<State, DatabaseError> {
    let entries = session.events.iter().map(|event| serde_json::from_str::<Entry>(&event.data));
    let entries: Vec<Entry> = entries
        .collect::<Result<_, _>>()
        .map_err(|cause| DatabaseError::Damaged { doing: "load the session", cause })?;
    Ok(State::fold(entries))
}
