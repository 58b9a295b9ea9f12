//! Sessions at `/mcp`: their owners, their last use, and which one ends when the limit is reached.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum concurrent sessions. Since revision 2026-07-28 the protocol has no sessions.
pub(super) const MAX_SESSIONS: usize = 256;
/// Maximum sessions of one token, so that one client cannot use all of them.
pub(super) const MAX_OF_ONE: usize = 64;

#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<String, Session>>>);

struct Session {
    owner: String,
    used: Instant,
    /// Active answers and event streams.
    open: usize,
}

/// Whether an owner may open another session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// Yes, after this session ends: the longest idle one of the owner, or of the owner with the most.
    InPlaceOf(String),
    /// No, because all sessions of this owner are in use.
    NoneOfTheirs,
    /// No, because all sessions of the gateway are in use.
    None,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_of(&self, id: &str, owner: &str) -> bool {
        self.all().get(id).is_some_and(|session| session.owner == owner)
    }

    /// Removes sessions that have ended by themselves.
    pub(super) fn keep_only(&self, alive: &HashSet<String>) {
        self.all().retain(|id, _| alive.contains(id));
    }

    /// Adds a session that the SDK has opened, if there is room. The check and the change are one
    /// step, so that sessions opened at the same time cannot exceed the limits. The caller closes
    /// the session that makes room, or the new one if there is no room.
    pub(super) fn begin(&self, id: &str, owner: &str) -> Room {
        let mut all = self.all();
        let room = room(&all, owner);
        if let Room::InPlaceOf(oldest) = &room {
            all.remove(oldest);
        }
        if matches!(room, Room::Free | Room::InPlaceOf(_)) {
            let session = Session { owner: owner.to_owned(), used: Instant::now(), open: 0 };
            all.insert(id.to_owned(), session);
        }
        room
    }

    pub(super) fn forget(&self, id: &str) {
        self.all().remove(id);
    }

    pub(super) fn room(&self, owner: &str) -> Room {
        room(&self.all(), owner)
    }

    /// Returns sessions that were idle for this long.
    pub(super) fn idle_for(&self, limit: Duration) -> Vec<String> {
        let is_idle = |session: &Session| session.open == 0 && session.used.elapsed() >= limit;
        let all = self.all();
        all.iter().filter(|(_, session)| is_idle(session)).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the ids that have no owner here.
    pub(super) fn unknown_of(&self, ids: Vec<String>) -> HashSet<String> {
        let all = self.all();
        ids.into_iter().filter(|id| !all.contains_key(id)).collect()
    }

    /// Marks a session as in use until the guard is dropped.
    pub(super) fn in_use(&self, id: &str) -> InUse {
        if let Some(session) = self.all().get_mut(id) {
            session.used = Instant::now();
            session.open += 1;
        }
        InUse { sessions: self.clone(), id: id.to_owned() }
    }
}

fn room(all: &HashMap<String, Session>, owner: &str) -> Room {
    let theirs = || all.iter().filter(|(_, session)| session.owner == owner);
    let count = theirs().count();
    if count < MAX_OF_ONE && all.len() < MAX_SESSIONS {
        return Room::Free;
    }
    if let Some(oldest) = oldest_idle(all, owner) {
        return Room::InPlaceOf(oldest);
    }
    if count >= MAX_OF_ONE {
        return Room::NoneOfTheirs;
    }
    // Idle sessions must not block others: the owner with the most loses one.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    all.values().for_each(|session| *counts.entry(&session.owner).or_default() += 1);
    let mut owners: Vec<_> = counts.into_iter().filter(|(_, held)| *held > count + 1).collect();
    owners.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
    owners.iter().find_map(|(owner, _)| oldest_idle(all, owner)).map_or(Room::None, Room::InPlaceOf)
}

fn oldest_idle(all: &HashMap<String, Session>, owner: &str) -> Option<String> {
    let idle = all.iter().filter(|(_, session)| session.owner == owner && session.open == 0);
    idle.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
}

pub(super) struct InUse {
    sessions: Sessions,
    id: String,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.all().get_mut(&self.id) {
            session.used = Instant::now();
            session.open = session.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(counts: &[(&str, usize)]) -> Sessions {
        let sessions = Sessions::default();
        for (owner, count) in counts {
            for number in 0..*count {
                assert_eq!(sessions.begin(&format!("{owner}{number}"), owner), Room::Free);
            }
        }
        sessions
    }

    #[tokio::test(start_paused = true)]
    async fn owner_at_the_limit_loses_the_oldest_idle_session() {
        let sessions = Sessions::default();
        for number in 0..MAX_OF_ONE {
            assert_eq!(sessions.begin(&number.to_string(), "a"), Room::Free);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let first = sessions.in_use("0");
        assert_eq!(sessions.room("a"), Room::InPlaceOf("1".to_owned()));
        assert_eq!(sessions.room("b"), Room::Free, "others do not notice");
        drop(sessions.in_use("1"));
        assert_eq!(sessions.room("a"), Room::InPlaceOf("2".to_owned()), "used just now");
        let all: Vec<InUse> = (0..MAX_OF_ONE).map(|number| sessions.in_use(&number.to_string())).collect();
        assert_eq!(sessions.room("a"), Room::NoneOfTheirs);
        assert_eq!(sessions.begin("new", "a"), Room::NoneOfTheirs);
        assert!(!sessions.is_of("new", "a"), "a session without room is not added");
        drop((first, all));
        let Room::InPlaceOf(oldest) = sessions.begin("new", "a") else { panic!("one of them is idle") };
        assert!(sessions.is_of("new", "a") && !sessions.is_of(&oldest, "a"));
    }

    #[tokio::test]
    async fn idle_sessions_do_not_block_other_owners() {
        let full = with(&[("a", 64), ("b", 64), ("c", 64), ("d", 64)]);
        let Room::InPlaceOf(oldest) = full.begin("e0", "e") else { panic!("all of them are idle") };
        assert!(full.is_of("e0", "e") && !full.is_of(&oldest, "e"));
        assert!(full.all().len() == MAX_SESSIONS, "one made room for the other");
        let ids: Vec<String> = full.all().keys().cloned().collect();
        let in_use: Vec<InUse> = ids.iter().map(|id| full.in_use(id)).collect();
        assert_eq!(full.room("f"), Room::None, "sessions in use are never ended");
        drop(in_use);
        assert!(matches!(full.room("a"), Room::InPlaceOf(id) if id.starts_with('a')));
        full.keep_only(&(0..64).map(|number| format!("a{number}")).collect());
        assert_eq!((full.room("e"), full.is_of("a1", "a"), full.is_of("b1", "b")), (Room::Free, true, false));
    }

    #[tokio::test(start_paused = true)]
    async fn session_in_use_is_not_idle() {
        let sessions = with(&[("a", 2)]);
        let limit = Duration::from_secs(60);
        let listening = sessions.in_use("a0");
        tokio::time::advance(limit).await;
        assert_eq!(sessions.idle_for(limit), ["a1"]);
        drop(listening);
        assert_eq!(sessions.idle_for(limit), ["a1"], "it was in use until now");
        tokio::time::advance(limit).await;
        assert_eq!(sessions.idle_for(limit).len(), 2);
    }
}
