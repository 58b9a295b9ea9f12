//! The folder of one node on its machine: who may enter, what lies where, and which process is the node now.
#![expect(clippy::disallowed_methods, reason = "the node's own folder, which no caller names")]

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_protocol::{NameError, check_node_id};
use rustix::fs::{FlockOperation, flock};

/// Who holds the lock is a number; more than this is not ours.
const MAX_LOCK_BYTES: u64 = 64;
const MAX_BADGE_BYTES: u64 = 256;

/// Somebody who only looks whether the lock is held has it for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Where a node keeps its own; nothing is made by naming it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHome {
    id: String,
    folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(
        "the node \"{id}\" runs on this machine already: process {pid} (`gantry node stop --id {id}` ends a service)"
    )]
    AlreadyRunning { id: String, pid: u32 },
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl NodeHome {
    /// `data_dir` is Gantry's own directory, closed to every tool.
    pub fn new(data_dir: &Path, id: &str) -> Result<NodeHome, NameError> {
        check_node_id(id)?;
        Ok(NodeHome { id: id.to_owned(), folder: data_dir.join("nodes").join(id) })
    }

    /// The ids of all nodes that ever ran from this data directory, sorted.
    pub fn all(data_dir: &Path) -> Vec<NodeHome> {
        let entries = std::fs::read_dir(data_dir.join("nodes")).into_iter().flatten().flatten();
        let mut homes: Vec<NodeHome> =
            entries.filter_map(|entry| NodeHome::new(data_dir, entry.file_name().to_str()?).ok()).collect();
        homes.sort_by(|a, b| a.id.cmp(&b.id));
        homes
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a node with this id was ever started here.
    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// Sessions and their output.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("processes")
    }

    /// Files in the making.
    pub fn pending(&self) -> PathBuf {
        self.folder.join("pending")
    }

    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    pub fn state_file(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    /// Says under which token the node was started, in a form that tells nothing of it: a node that is renamed keeps its token.
    fn badge_file(&self) -> PathBuf {
        self.folder.join("badge")
    }

    fn badge(&self) -> Option<String> {
        NodeHome::read(&self.badge_file(), MAX_BADGE_BYTES).ok()
    }

    /// Wears a badge, so that the node is known again under another id.
    pub fn wear(&self, badge: &str) -> Result<(), HomeError> {
        let path = self.badge_file();
        self.replace(&path, badge).map_err(|source| HomeError::Io { path, source })
    }

    /// Whether a node with another token has been here.
    pub fn is_of_another(&self, badge: &str) -> bool {
        self.badge_of_another(badge).is_some()
    }

    /// Whether this badge is worn here.
    pub fn is_of(&self, badge: &str) -> bool {
        self.badge().as_deref() == Some(badge)
    }

    /// The badge that is worn here, if it is another one.
    pub fn badge_of_another(&self, badge: &str) -> Option<String> {
        self.badge().filter(|worn| worn != badge)
    }

    /// Sessions that the wearer of a badge left under this id, once another node has got the id.
    pub fn left_by(&self, badge: &str) -> PathBuf {
        // A badge is hexadecimal. What is none is nobody's, and leads nowhere else.
        let is_badge = !badge.is_empty() && badge.bytes().all(|byte| byte.is_ascii_alphanumeric());
        self.left().join(if is_badge { badge } else { "-" })
    }

    /// Whether something is kept for the wearer of a badge, be it only that it was here.
    pub fn has_left_by(&self, badge: &str) -> bool {
        self.left_by(badge).is_dir()
    }

    /// Sessions that nodes left under this id before it was another's.
    pub fn left_by_all(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.left()).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Nothing is left there any more, and nobody is known by it again.
    pub fn forget_left_by(&self, badge: &str) {
        // What stays is empty, and only looked through once more.
        let _ = std::fs::remove_dir_all(self.left_by(badge));
    }

    fn left(&self) -> PathBuf {
        self.folder.join("left")
    }

    /// The homes that this node had under other ids, in the same data directory: those with the same badge.
    pub fn former(&self, data_dir: &Path, badge: &str) -> Vec<NodeHome> {
        let is_former = |home: &NodeHome| home.id != self.id && home.is_of(badge);
        NodeHome::all(data_dir).into_iter().filter(is_former).collect()
    }

    /// Nobody is known by it again.
    pub fn take_off_badge(&self) {
        // A badge that stays only means that the home is looked through once more.
        let _ = std::fs::remove_file(self.badge_file());
    }

    fn lock_file(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Makes the folder, for its owner only, and becomes the node; or names the process that is.
    pub fn take(&self) -> Result<NodeLock, HomeError> {
        let failed = |source| HomeError::Io { path: self.folder.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        std::fs::set_permissions(&self.folder, Permissions::from_mode(0o700)).map_err(failed)?;
        for folder in [self.logs(), self.processes(), self.pending()] {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.lock_file()).map_err(failed)?;
        for attempt in 0.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if attempt < TRIES => std::thread::sleep(PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let pid = holder(&file).unwrap_or_default();
                    return Err(HomeError::AlreadyRunning { id: self.id.clone(), pid });
                }
                Err(err) => return Err(failed(err.into())),
            }
        }
        file.set_len(0).map_err(failed)?;
        file.write_all_at(std::process::id().to_string().as_bytes(), 0).map_err(failed)?;
        Ok(NodeLock { file })
    }

    /// The process that is this node now, if one is.
    pub fn running(&self) -> Option<u32> {
        let file = File::open(self.lock_file()).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => holder(&file),
            _ => None,
        }
    }

    /// Asks the process that is this node to stop. False when there is none.
    pub fn ask_to_stop(&self) -> io::Result<bool> {
        let pid = self.running().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        let Some(pid) = pid else { return Ok(false) };
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        Ok(true)
    }

    /// Replaces a small file of the node's own; a reader finds the old or the new one, whole.
    pub(crate) fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let temp = path.with_extension("tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&temp)?.write_all(text.as_bytes())?;
        std::fs::rename(&temp, path)
    }

    pub(crate) fn read(path: &Path, most: u64) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(most).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Held as long as the node runs.
#[derive(Debug)]
pub struct NodeLock {
    file: File,
}

impl Drop for NodeLock {
    fn drop(&mut self) {
        // Emptied before the lock goes, so that the next holder is never taken for this one.
        let _ = self.file.set_len(0);
    }
}

fn holder(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_LOCK_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_is_the_node_and_others_are_told_which() {
        let folder = tempfile::tempdir().unwrap();
        let home = NodeHome::new(folder.path(), "laptop").unwrap();
        assert_eq!(home.running(), None);
        let lock = home.take().unwrap();
        assert_eq!(home.running(), Some(std::process::id()));
        let told = home.take().unwrap_err().to_string();
        assert!(told.contains(&format!("process {}", std::process::id())), "{told}");
        let mode = std::fs::metadata(home.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(lock);
        assert_eq!(home.running(), None);
        home.take().unwrap();
    }

    #[test]
    fn an_id_cannot_lead_out_of_the_data_directory() {
        for id in ["..", "a/b", "", "gsv", "A", "a\0b"] {
            assert!(NodeHome::new(Path::new("/data"), id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_node_is_known_again_by_its_badge_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = |id: &str| NodeHome::new(folder.path(), id).unwrap();
        for (id, badge) in [("old", Some("x")), ("other", Some("y")), ("none", None), ("new", Some("x"))] {
            home(id).take().unwrap();
            badge.iter().for_each(|badge| home(id).wear(badge).unwrap());
        }
        assert_eq!(home("new").former(folder.path(), "x"), [home("old")]);
        assert!(home("other").is_of_another("x") && !home("old").is_of_another("x"));
        assert!(!home("none").is_of_another("x"));
        home("old").take_off_badge();
        assert_eq!(home("new").former(folder.path(), "x"), []);
    }

    #[test]
    fn what_was_left_under_an_id_lies_in_its_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = NodeHome::new(folder.path(), "laptop").unwrap();
        for badge in ["a1", "", "..", "/", "../../other", "of another gateway"] {
            let left = home.left_by(badge);
            assert_eq!(left.parent(), Some(home.folder().join("left").as_path()), "{badge:?}");
            assert_ne!(left.file_name(), None, "{badge:?}");
        }
        assert_eq!(home.left_by_all(), [""; 0].map(PathBuf::from));
        std::fs::create_dir_all(home.left_by("a1")).unwrap();
        assert_eq!(home.left_by_all(), [home.left_by("a1")]);
        home.forget_left_by("a1");
        assert_eq!(home.left_by_all(), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn nodes_of_a_data_directory_are_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(NodeHome::all(folder.path()), []);
        for id in ["b", "a"] {
            NodeHome::new(folder.path(), id).unwrap().take().unwrap();
        }
        let ids: Vec<_> = NodeHome::all(folder.path()).iter().map(|home| home.id().to_owned()).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}
