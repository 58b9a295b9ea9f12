//! Maps sessions to their owners. The process engine knows only ids. It stores a note with each
//! session that may outlive this process, and the session is restored from that note after a
//! restart.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gantry_process::{Processes, SessionId};
use gantry_tool::{Call, Masker, ToolError};

use super::command_note::CommandNote;
use crate::whole_secrets::cut_end;

/// The most characters of a command in a listing.
const SHOWN_COMMAND_CHARS: usize = 500;

/// The commands of `Bash` that the process engine still knows.
#[derive(Default)]
pub(super) struct Sessions {
    known: Mutex<HashMap<SessionId, Session>>,
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    owner: Owner,
    /// The command; a long one is shortened and ends in an ellipsis.
    pub(super) command: String,
    pub(super) workdir: PathBuf,
    pub(super) offline: bool,
    /// False for a foreground command: only its log can be read.
    backgrounded: bool,
}

/// A caller together with its agent: two agents do not share sessions, even for the same client.
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
    pub(super) fn new(
        call: &Call,
        command: &str,
        workdir: PathBuf,
        offline: bool,
        masker: &Masker,
    ) -> Session {
        let command = match command.char_indices().nth(SHOWN_COMMAND_CHARS) {
            Some((end, _)) => format!("{}…", cut_end(masker, command[..end].to_owned(), &command[end..])),
            None => command.to_owned(),
        };
        Session { owner: Owner::of(call), command, workdir, offline, backgrounded: false }
    }

    pub(super) fn in_background(self) -> Session {
        Session { backgrounded: true, ..self }
    }

    /// Returns the note to store with the session.
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

    /// Restores a session from its note. Only background sessions have one.
    fn from_note(note: &str) -> Option<Session> {
        let CommandNote { principal, agent, command, workdir, offline } = CommandNote::parse(note)?;
        Some(Session { owner: Owner { principal, agent }, command, workdir, offline, backgrounded: true })
    }

    fn is_visible_to(&self, call: &Call) -> bool {
        call.principal.is_operator() || self.owner == Owner::of(call)
    }
}

impl Sessions {
    /// Adds a session, and removes those that the engine has dropped.
    pub(super) fn add(&self, processes: &Processes, id: SessionId, session: Session) {
        let mut known = self.known();
        known.retain(|id, _| processes.knows(*id));
        known.insert(id, session);
    }

    /// Returns a session of the caller. A session of another caller is reported as not found.
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
                .with_hint("finished sessions are kept for 30 minutes; action \"list\" shows all")
        })
    }

    /// Like [`Sessions::find`], for actions that need a background session.
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
            .with_hint("it ran in the foreground and has ended; only its log can be read"))
    }

    /// Returns the session if it is a background session of the caller.
    pub(super) fn find_own_background(
        &self,
        processes: &Processes,
        call: &Call,
        id: SessionId,
    ) -> Option<Session> {
        let session = self.get(processes, id)?;
        (session.backgrounded && session.is_visible_to(call)).then_some(session)
    }

    /// Returns the working directory of a session of the caller.
    pub(super) fn workdir(&self, processes: &Processes, call: &Call, id: &str) -> Option<PathBuf> {
        let session = self.get(processes, id.parse().ok()?)?;
        session.is_visible_to(call).then_some(session.workdir)
    }

    /// Returns the command line of a session of the caller.
    pub(super) fn command(&self, processes: &Processes, call: &Call, id: &str) -> Option<String> {
        let session = self.get(processes, id.parse().ok()?)?;
        session.is_visible_to(call).then_some(session.command)
    }

    fn get(&self, processes: &Processes, id: SessionId) -> Option<Session> {
        let known = self.known().get(&id).cloned();
        known.or_else(|| Session::from_note(&processes.note(id)?))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
