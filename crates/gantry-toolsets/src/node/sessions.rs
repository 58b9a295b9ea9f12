//! Who started which command, so that sessions belong to their callers. The engine below knows ids, and keeps a note
//! with each session that may outlive us; what a session was is read from there after a restart.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gantry_process::{Processes, SessionId};
use gantry_tool::{Call, ToolError};

use super::command_note::CommandNote;

/// Characters of a command that a listing shows.
const SHOWN_COMMAND_CHARS: usize = 500;

/// The commands of `Bash` that the engine still knows.
#[derive(Default)]
pub(super) struct Sessions {
    known: Mutex<HashMap<SessionId, Session>>,
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    owner: Owner,
    /// As given; the beginning of a long one, which then ends in an ellipsis.
    pub(super) command: String,
    pub(super) workdir: PathBuf,
    pub(super) offline: bool,
    /// False for a command that was waited for: only its log can be read.
    backgrounded: bool,
}

/// A caller, acting as an agent: what one agent started is not another's, even for the same client.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    principal: String,
    agent: String,
}

impl Owner {
    fn of(call: &Call) -> Owner {
        Owner { principal: call.principal.to_string(), agent: call.agent.clone() }
    }
}

impl Session {
    pub(super) fn new(call: &Call, command: &str, workdir: PathBuf, offline: bool) -> Session {
        let command = match command.char_indices().nth(SHOWN_COMMAND_CHARS) {
            Some((end, _)) => format!("{}…", &command[..end]),
            None => command.to_owned(),
        };
        Session { owner: Owner::of(call), command, workdir, offline, backgrounded: false }
    }

    pub(super) fn in_background(self) -> Session {
        Session { backgrounded: true, ..self }
    }

    /// What is kept with the session, for whoever comes after us.
    pub(super) fn note(&self) -> String {
        let note = CommandNote {
            principal: self.owner.principal.clone(),
            agent: self.owner.agent.clone(),
            command: self.command.clone(),
            workdir: self.workdir.clone(),
            offline: self.offline,
        };
        note.to_text()
    }

    /// Only sessions in the background have a note.
    fn from_note(note: &str) -> Option<Session> {
        let CommandNote { principal, agent, command, workdir, offline } = CommandNote::parse(note)?;
        Some(Session { owner: Owner { principal, agent }, command, workdir, offline, backgrounded: true })
    }

    fn is_visible_to(&self, call: &Call) -> bool {
        call.principal.is_operator() || self.owner == Owner::of(call)
    }
}

impl Sessions {
    /// Remembers a session, and forgets those that the engine has forgotten.
    pub(super) fn add(&self, processes: &Processes, id: SessionId, session: Session) {
        let mut known = self.known();
        known.retain(|id, _| processes.knows(*id));
        known.insert(id, session);
    }

    /// A session of the caller. Somebody else's is as good as none.
    pub(super) fn find(
        &self,
        processes: &Processes,
        call: &Call,
        id: &str,
    ) -> Result<(SessionId, Session), ToolError> {
        let parsed: Option<SessionId> = id.parse().ok();
        let found = parsed.and_then(|id| Some((id, self.get(processes, id)?)));
        found.filter(|(id, session)| session.is_visible_to(call) && processes.knows(*id)).ok_or_else(|| {
            let shown: String = id.chars().take(64).collect();
            ToolError::failed(format!("session not found: {shown}"))
                .with_hint("finished sessions are kept for 30 minutes; action \"list\" shows what there is")
        })
    }

    /// As [`Sessions::find`], for actions that need a session in the background.
    pub(super) fn find_backgrounded(
        &self,
        processes: &Processes,
        call: &Call,
        id: &str,
    ) -> Result<(SessionId, Session), ToolError> {
        let (id, session) = self.find(processes, call, id)?;
        if session.backgrounded {
            return Ok((id, session));
        }
        Err(ToolError::failed(format!("session is not backgrounded: {id}"))
            .with_hint("it was waited for and has ended; only its log can be read"))
    }

    /// The caller's own session in the background, if it is one.
    pub(super) fn listed(&self, processes: &Processes, call: &Call, id: SessionId) -> Option<Session> {
        let session = self.get(processes, id)?;
        (session.backgrounded && session.is_visible_to(call)).then_some(session)
    }

    /// Where a session of the caller runs.
    pub(super) fn workdir(&self, processes: &Processes, call: &Call, id: &str) -> Option<PathBuf> {
        let session = self.get(processes, id.parse().ok()?)?;
        session.is_visible_to(call).then_some(session.workdir)
    }

    fn get(&self, processes: &Processes, id: SessionId) -> Option<Session> {
        let known = self.known().get(&id).cloned();
        known.or_else(|| Session::from_note(&processes.note(id)?))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
