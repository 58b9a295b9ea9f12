//! The folder of one node on its machine: its permissions, its files, and the lock that says which process is the node.
#![expect(clippy::disallowed_methods, reason = "the node's own folder, which no caller names")]

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_protocol::{NameError, check_node_id};
use rustix::fs::{FlockOperation, flock};

/// The lock file holds a process id; a longer file is not ours.
const MAX_LOCK_BYTES: u64 = 64;
const MAX_BADGE_BYTES: u64 = 256;

/// A process that only checks the lock holds it for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// The folder of a node. Creating this value creates no folder.
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
    /// `data_dir` is the data directory, which no tool can access.
    pub fn new(data_dir: &Path, id: &str) -> Result<NodeHome, NameError> {
        check_node_id(id)?;
        Ok(NodeHome { id: id.to_owned(), folder: data_dir.join("nodes").join(id) })
    }

    /// Returns the ids of all nodes that ever ran from this data directory, sorted.
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

    /// Holds process sessions and their output.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("processes")
    }

    /// Holds temporary files.
    pub fn pending(&self) -> PathBuf {
        self.folder.join("pending")
    }

    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// Holds what the node keeps after it joined with a code.
    pub fn joined_file(&self) -> PathBuf {
        self.folder.join("joined.json")
    }

    /// Holds the token of a node that joined with a code.
    pub fn token_file(&self) -> PathBuf {
        self.folder.join("token")
    }

    pub fn state_file(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    /// Holds the badge, which identifies the token without revealing it. A renamed node keeps its token.
    fn badge_file(&self) -> PathBuf {
        self.folder.join("badge")
    }

    fn badge(&self) -> Option<String> {
        NodeHome::read(&self.badge_file(), MAX_BADGE_BYTES).ok()
    }

    /// Writes the badge, so that the node is recognised under another id.
    pub fn wear(&self, badge: &str) -> Result<(), HomeError> {
        let path = self.badge_file();
        self.replace(&path, badge).map_err(|source| HomeError::Io { path, source })
    }

    /// Whether a node with another token used this folder.
    pub fn is_of_another(&self, badge: &str) -> bool {
        self.badge_of_another(badge).is_some()
    }

    /// Whether this folder has this badge.
    pub fn is_of(&self, badge: &str) -> bool {
        self.badge().as_deref() == Some(badge)
    }

    /// Returns the badge of this folder if it differs from `badge`.
    pub fn badge_of_another(&self, badge: &str) -> Option<String> {
        self.badge().filter(|worn| worn != badge)
    }

    /// Holds the sessions that the node with this badge left before another node got the id.
    pub fn left_by(&self, badge: &str) -> PathBuf {
        // A badge is hexadecimal. Any other text maps to one fixed name, so that it cannot name another path.
        let is_badge = !badge.is_empty() && badge.bytes().all(|byte| byte.is_ascii_alphanumeric());
        self.left().join(if is_badge { badge } else { "-" })
    }

    /// Whether this folder keeps anything for the node with this badge.
    pub fn has_left_by(&self, badge: &str) -> bool {
        self.left_by(badge).is_dir()
    }

    /// Returns the folders of all nodes that left sessions under this id before another node got it.
    pub fn left_by_all(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.left()).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Removes the left sessions and the record of their badge.
    pub fn forget_left_by(&self, badge: &str) {
        // A folder that cannot be removed is empty and only scanned again.
        let _ = std::fs::remove_dir_all(self.left_by(badge));
    }

    fn left(&self) -> PathBuf {
        self.folder.join("left")
    }

    /// Returns the folders that this node had under other ids in the same data directory: those with the same badge.
    pub fn former(&self, data_dir: &Path, badge: &str) -> Vec<NodeHome> {
        let is_former = |home: &NodeHome| home.id != self.id && home.is_of(badge);
        NodeHome::all(data_dir).into_iter().filter(is_former).collect()
    }

    /// Removes the badge.
    pub fn take_off_badge(&self) {
        // If the badge cannot be removed, the folder is only scanned again.
        let _ = std::fs::remove_file(self.badge_file());
    }

    fn lock_file(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Creates the folder with mode 0700 and takes the lock. Fails with the process id if another process holds it.
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

    /// Returns the process that holds the lock, if there is one.
    pub fn running(&self) -> Option<u32> {
        let file = File::open(self.lock_file()).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => holder(&file),
            _ => None,
        }
    }

    /// Asks the process that holds the lock to stop. Returns false when there is none.
    pub fn ask_to_stop(&self) -> io::Result<bool> {
        let pid = self.running().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        let Some(pid) = pid else { return Ok(false) };
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        Ok(true)
    }

    /// Replaces a small file atomically.
    pub(crate) fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let temp = path.with_extension("tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&temp)?.write_all(text.as_bytes())?;
        std::fs::rename(&temp, path)
    }

    /// Replaces a small file atomically, and makes the folder at first use. It is on disk on return.
    pub fn replace_durably(&self, path: &Path, text: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        std::fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        let temp = path.with_extension("tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temp, path)?;
        File::open(&self.folder)?.sync_all()
    }

    pub(crate) fn read(path: &Path, most: u64) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(most).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Held while the node runs.
#[derive(Debug)]
pub struct NodeLock {
    file: File,
}

impl Drop for NodeLock {
    fn drop(&mut self) {
        // The file is emptied before the lock is released, so that the next holder is never reported as this process.
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
    fn second_process_is_rejected_with_the_id_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let home = NodeHome::new(folder.path(), "laptop").unwrap();
        assert_eq!(home.running(), None);
        let lock = home.take().unwrap();
        assert_eq!(home.running(), Some(std::process::id()));
        let message = home.take().unwrap_err().to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        let mode = std::fs::metadata(home.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(lock);
        assert_eq!(home.running(), None);
        home.take().unwrap();
    }

    #[test]
    fn id_cannot_escape_the_data_directory() {
        for id in ["..", "a/b", "", "gsv", "A", "a\0b"] {
            assert!(NodeHome::new(Path::new("/data"), id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn node_is_recognised_by_its_badge_alone() {
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
    fn left_sessions_are_in_the_folder_of_their_id() {
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
