//! Moves a node's background commands to its new id after a rename. Their records are in a folder named by the id.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gantry_node::{HomeError, NodeHome, NodeLock};
use gantry_process::move_sessions;

/// How long the process under the former id may take to exit.
const LEAVING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Moves running commands to the home of the node's new id, so that a later node with the old id does not get them.
pub(super) fn hand_over(data_dir: &Path, home: &NodeHome, new_id: &str, badge: &str) {
    let moved = NodeHome::new(data_dir, new_id).map_err(anyhow::Error::from).and_then(|new| {
        let _lock = new.take()?;
        // Ids are unique only within one gateway, so the new id may belong to a node of another one.
        ensure!(!new.is_of_another(badge), "another node uses the id {new_id} on this machine");
        new.wear(badge)?;
        Ok(move_sessions(&home.processes(), &new.processes())?)
    });
    match moved {
        Ok(count) => {
            home.take_off_badge();
            tracing::info!(newId = new_id, processes = count, "handedOver");
        }
        // The node moves them itself when it starts with its new id and the same token.
        Err(err) => tracing::info!(newId = new_id, reason = %format_args!("{err:#}"), "processesStay"),
    }
}

/// Takes over commands that the node left running under former ids, if the rename did not move them. Commands that another
/// node left under this id are set apart for that node.
pub(super) fn take_over(data_dir: &Path, home: &NodeHome, badge: &str) -> Result<()> {
    let formers = home.former(data_dir, badge);
    let displaced = || NodeHome::all(data_dir).into_iter().filter(|other| other.has_left_by(badge));
    // An unknown token may be a renewed token of this same node. A token that is known under another id belongs to another
    // node, which now has this id.
    let is_known = !formers.is_empty() || displaced().next().is_some();
    if let Some(worn) = home.badge_of_another(badge).filter(|_| is_known) {
        let count = move_sessions(&home.processes(), &home.left_by(&worn))
            .context("cannot move the background commands of another node away from this id")?;
        tracing::info!(processes = count, "setAside");
    }
    home.wear(badge)?;
    for former in formers {
        match take_from(&former, home, badge) {
            Ok(Some(count)) => tracing::info!(formerId = former.id(), processes = count, "renamed"),
            // Another node uses that id now and has set them apart.
            Ok(None) => {}
            Err(err) => {
                let error = format!("{err:#}");
                tracing::warn!(formerId = former.id(), error, "formerProcessesStay");
            }
        }
    }
    // This runs after the former homes, because their new nodes may have set commands apart meanwhile.
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

/// Moves commands out of a former home once its node has exited. Returns `None` if another node owns that home now.
fn take_from(former: &NodeHome, home: &NodeHome, badge: &str) -> Result<Option<usize>> {
    let Some(_lock) = once_gone(former, badge)? else { return Ok(None) };
    let count = move_sessions(&former.processes(), &home.processes())?;
    former.take_off_badge();
    Ok(Some(count))
}

/// Waits until the node of a former home has exited. Returns `None` if another node takes the home first.
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

    /// Prefix of a session's name; a number follows.
    const PREFIX: &str = "00000000-0000-4000-8000-";

    /// Nodes on one data directory. A session is a folder named by its id.
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

        /// Starts a node, optionally begins a session, and stops the node.
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
    fn nodes_that_swap_ids_keep_their_own_sessions_in_any_start_order() {
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
            // They swap back.
            assert_eq!(machine.ran("e", "e1", None), [1]);
            assert_eq!(machine.ran("f", "f1", None), [2]);
        }
    }

    /// The second node lists the first one's home before the first one has claimed it.
    #[test]
    fn home_claimed_by_another_node_is_left_alone() {
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
    fn three_nodes_that_rotate_ids_keep_their_own_sessions() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        machine.ran("f", "f1", None);
        machine.ran("g", "g1", Some(3));
        assert_eq!(machine.ran("f", "e1", None), [1]);
        assert_eq!(machine.ran("g", "f1", None), [0; 0]);
        assert_eq!(machine.ran("e", "g1", None), [3]);
    }

    #[test]
    fn node_with_a_renewed_token_keeps_its_sessions() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        assert_eq!(machine.ran("e", "e2", None), [1]);
        assert_eq!(machine.home("e").left_by_all().len(), 0);
    }

    #[test]
    fn sessions_without_an_owner_stay_under_their_old_id() {
        let machine = Machine::new();
        machine.ran("e", "e1", Some(1));
        machine.ran("f", "f1", Some(2));
        assert_eq!(machine.ran("e", "f1", None), [2]);
        assert_eq!(machine.ran("g", "g1", None), [0; 0]);
        assert_eq!(machine.home("e").left_by_all(), [machine.home("e").left_by("e1")]);
    }
}
