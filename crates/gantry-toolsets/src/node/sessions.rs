//! Who started which command, so that sessions belong to their callers. The engine below knows ids only.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gantry_process::{Processes, SessionId};
use gantry_tool::{Call, ToolError};

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
        let found = parsed.and_then(|id| Some((id, self.known().get(&id)?.clone())));
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
    pub(super) fn listed(&self, call: &Call, id: SessionId) -> Option<Session> {
        let session = self.known().get(&id)?.clone();
        (session.backgrounded && session.is_visible_to(call)).then_some(session)
    }

    /// Where a session of the caller runs.
    pub(super) fn workdir(&self, call: &Call, id: &str) -> Option<PathBuf> {
        let id: SessionId = id.parse().ok()?;
        let known = self.known();
        let session = known.get(&id).filter(|session| session.is_visible_to(call))?;
        Some(session.workdir.clone())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
