//! What a node left running goes with it when it gets another id: its sessions lie in a folder of its id.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gantry_node::{HomeError, NodeHome, NodeLock};
use gantry_process::move_sessions;

/// How long the process of the former id may take to learn that it was sent away.
const LEAVING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Brings what is running to the home of the node's new id, so that nobody who gets the old id finds it. The node itself is over.
pub(super) fn hand_over(data_dir: &Path, home: &NodeHome, new_id: &str, badge: &str) {
    let moved = NodeHome::new(data_dir, new_id).map_err(anyhow::Error::from).and_then(|new| {
        let _lock = new.take()?;
        // Of another gateway perhaps: ids are its own.
        ensure!(!new.is_of_another(badge), "{new_id} is another node here");
        new.wear(badge)?;
        Ok(move_sessions(&home.processes(), &new.processes())?)
    });
    match moved {
        Ok(count) => {
            home.take_off_badge();
            tracing::info!(newId = new_id, processes = count, "handedOver");
        }
        // Started with its new id and the token it has, the node takes them.
        Err(err) => tracing::info!(newId = new_id, reason = %format_args!("{err:#}"), "processesStay"),
    }
}

/// Goes on with what the node left running under former ids, if that did not learn of the new one. What another node left
/// under this id is kept for that one.
pub(super) fn take_over(data_dir: &Path, home: &NodeHome, badge: &str) -> Result<()> {
    let formers = home.former(data_dir, badge);
    let displaced = || NodeHome::all(data_dir).into_iter().filter(|other| other.has_left_by(badge));
    // A token that nobody has worn here may be a renewed one of the node whose home this is. One that is known from
    // elsewhere is another node's, which has got this id.
    let is_known = !formers.is_empty() || displaced().next().is_some();
    if let Some(worn) = home.badge_of_another(badge).filter(|_| is_known) {
        let count = move_sessions(&home.processes(), &home.left_by(&worn))
            .context("cannot set aside what another node left under this id")?;
        tracing::info!(processes = count, "setAside");
    }
    home.wear(badge)?;
    for former in formers {
        match take_from(&former, home, badge) {
            Ok(Some(count)) => tracing::info!(formerId = former.id(), processes = count, "renamed"),
            // Another node is there now, and has set them aside.
            Ok(None) => {}
            Err(err) => {
                let error = format!("{err:#}");
                tracing::warn!(formerId = former.id(), error, "formerProcessesStay");
            }
        }
    }
    // After the former homes: their new nodes may have set something aside meanwhile.
    for other in displaced() {
        match move_sessions(&other.left_by(badge), &home.processes()) {
            Ok(count) => {
                other.forget_left_by(badge);
                tracing::info!(formerId = other.id(), processes = count, "renamed");
            }
            Err(err) => {
                let error = err.to_string();
                tracing::warn!(formerId = other.id(), error, "formerProcessesStay");
            }
        }
    }
    Ok(())
}

/// Moves what was left in a former home, once nobody runs there any more. `None` when it has become another's.
fn take_from(former: &NodeHome, home: &NodeHome, badge: &str) -> Result<Option<usize>> {
    let Some(_lock) = once_gone(former, badge)? else { return Ok(None) };
    let count = move_sessions(&former.processes(), &home.processes())?;
    former.take_off_badge();
    Ok(Some(count))
}

/// `None` when it has become another's, which whoever runs there may make it at any time.
fn once_gone(former: &NodeHome, badge: &str) -> Result<Option<NodeLock>, HomeError> {
    let until = Instant::now() + LEAVING;
    while former.is_of(badge) {
        match former.take() {
            Err(HomeError::AlreadyRunning { .. }) if Instant::now() < until => std::thread::sleep(PAUSE),
            taken => return Ok(Some(taken?).filter(|_| former.is_of(badge))),
        }
    }
    Ok(None)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests set up their own world")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Of the name of a session; a number follows.
    const PREFIX: &str = "00000000-0000-4000-8000-";

    /// Nodes on one data directory, by the badges they wear. A session is a folder named by its id.
    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { folder: tempfile::tempdir().unwrap() }
        }

        fn home(&self, id: &str) -> NodeHome {
            NodeHome::new(self.folder.path(), id).unwrap()
        }

        /// Starts a node and stops it again, after it has begun a session, if one is given.
        fn ran(&self, id: &str, badge: &str, session: Option<u64>) -> Vec<u64> {
            let home = self.home(id);
            let _lock = home.take().unwrap();
            take_over(self.folder.path(), &home, badge).unwrap();
            let sessions = home.processes().join("sessions");
            if let Some(session) = session {
                std::fs::create_dir_all(sessions.join(format!("{PREFIX}{session:012}"))).unwrap();
            }
            let entries = std::fs::read_dir(&sessions).into_iter().flatten().flatten();
            let number = |name: &str| name.strip_prefix(PREFIX)?.parse().ok();
            let mut found: Vec<u64> =
                entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
            found.sort();
            found
        }
    }

    #[test]
    fn nodes_that_swap_names_keep_their_own_whoever_starts_first() {
        for order in [["e", "f"], ["f", "e"]] {
            let machine = Machine::new();
            machine.ran("e", "e1", Some(1));
            machine.ran("f", "f1", Some(2));
            let swapped = BTreeMap::from([("e", ("f1", vec![2])), ("f", ("e1", vec![1]))]);
            for _ in 0..2 {
                for id in order {
                    let (badge, own) = &swapped[id];
                    assert_eq!(&machine.ran(id, badge, None), own, "{id} of {order:?}");
                }
            }
            // And back.
            assert_eq!(machine.ran("e", "e1", None), [1]);
            assert_eq!(machine.ran("f", "f1", None), [2]);
        }
    }

    /// The one that starts second has the other's home listed before that one has worn its own badge there.
    #[test]
    fn a_home_that_has_become_anothers_is_left_to_it() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        machine.ran("f", "f1", Some(2));
        let (e, f) = (machine.home("e"), machine.home("f"));
        assert_eq!(machine.ran("e", "f1", None), [2]);
        assert_eq!(take_from(&e, &f, "e1").unwrap(), None);
        assert!(!e.is_of("e1") && e.is_of("f1"));
        assert_eq!(machine.ran("f", "e1", None), [1]);
        assert_eq!(machine.ran("e", "f1", None), [2]);
    }

    #[test]
    fn three_nodes_in_a_ring_keep_their_own_also_when_one_had_nothing() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        machine.ran("f", "f1", None);
        machine.ran("g", "g1", Some(3));
        assert_eq!(machine.ran("f", "e1", None), [1]);
        assert_eq!(machine.ran("g", "f1", None), [0; 0]);
        assert_eq!(machine.ran("e", "g1", None), [3]);
    }

    #[test]
    fn a_node_with_a_renewed_token_goes_on_with_its_own() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        assert_eq!(machine.ran("e", "e2", None), [1]);
        assert_eq!(machine.home("e").left_by_all().len(), 0);
    }

    #[test]
    fn what_is_nobodys_stays_under_the_id_it_was_left_under() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        machine.ran("f", "f1", Some(2));
        assert_eq!(machine.ran("e", "f1", None), [2]);
        assert_eq!(machine.ran("g", "g1", None), [0; 0]);
        assert_eq!(machine.home("e").left_by_all(), [machine.home("e").left_by("e1")]);
    }
}
