//! Finds what changed below a directory since a moment, such as the start of a command.
//!
//! The change time of an inode cannot be set by programs, so it shows every write, creation, link
//! and rename. A renamed directory keeps the change times of what is below it, so it counts as
//! changed with everything in it.

use std::{
    collections::VecDeque,
    ffi::{CStr, OsStr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, openat, statx};

/// File systems stamp changes with a clock that lags by up to one tick.
const CLOCK_LAG: Duration = Duration::from_millis(20);
const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const READ_BUFFER: usize = 32 * 1024;

/// `ScanLimits` bound one scan. Beyond them its result is [`Changed::Everything`].
#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    pub entries: usize,
    pub time: Duration,
    pub changed: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        ScanLimits { entries: 50_000, time: Duration::from_millis(50), changed: 2_000 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// These files and directories. A directory means everything below it.
    Paths(Vec<PathBuf>),
    /// The scan reached a limit or could not read a directory, so anything below the root may have changed.
    Everything,
}

/// Finds what changed below `root`, which itself is not part of the result.
pub fn changed_since(root: &Path, since: SystemTime, limits: ScanLimits) -> Changed {
    let since = since.checked_sub(CLOCK_LAG).unwrap_or(UNIX_EPOCH);
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut scan = Scan { since, limits, started: Instant::now(), entries: 0, changed: Vec::new() };
    match scan.run(root) {
        Some(()) => Changed::Paths(scan.changed),
        None => Changed::Everything,
    }
}

struct Scan {
    since: Duration,
    limits: ScanLimits,
    started: Instant,
    entries: usize,
    changed: Vec<PathBuf>,
}

/// A directory whose entries have to be examined.
struct Pending {
    path: PathBuf,
    /// Entries may have been added, removed or renamed in it. Programs can set its modification time
    /// back, but not its change time.
    is_changed: bool,
}

impl Scan {
    /// Returns `None` if the result is not complete.
    fn run(&mut self, root: &Path) -> Option<()> {
        let opened = openat(CWD, root, DIRECTORY_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty()).ok()?;
        let is_changed = self.is_since(changed(&status(&opened, c"")?));
        let mut pending = VecDeque::from([Pending { path: root.to_owned(), is_changed }]);
        let mut first = Some(opened);
        let mut buffer = Vec::with_capacity(READ_BUFFER);
        while let Some(directory) = pending.pop_front() {
            let opened = match first.take() {
                Some(root) => root,
                // A directory that has gone has nothing left to mark.
                None => match openat(CWD, &directory.path, DIRECTORY_FLAGS, Mode::empty()) {
                    Ok(opened) => opened,
                    Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => continue,
                    Err(_) => return None,
                },
            };
            self.examine(&directory, &opened, &mut buffer, &mut pending)?;
        }
        Some(())
    }

    fn examine(
        &mut self,
        directory: &Pending,
        opened: &OwnedFd,
        buffer: &mut Vec<u8>,
        pending: &mut VecDeque<Pending>,
    ) -> Option<()> {
        let mut entries = RawDir::new(opened, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries += 1;
            let is_late = self.entries.is_multiple_of(256) && self.started.elapsed() > self.limits.time;
            if self.entries > self.limits.entries || is_late {
                return None;
            }
            let Some(status) = status(opened, name) else { continue };
            let path = || directory.path.join(OsStr::from_bytes(name.to_bytes()));
            let is_changed = self.is_since(changed(&status));
            if FileType::from_raw_mode(status.stx_mode.into()) != FileType::Directory {
                if is_changed {
                    self.add(path())?;
                }
                continue;
            }
            let has_new_entries = self.is_since(modified(&status));
            // A rename changes the directory and its new parent, but not what is below it. If
            // entries were added too, it looks like an old directory, so it counts as renamed.
            let may_be_renamed = is_changed && (!has_new_entries || directory.is_changed);
            match is_changed && (may_be_renamed || self.is_since(born(&status))) {
                true => self.add(path())?,
                false => pending.push_back(Pending { path: path(), is_changed }),
            }
        }
        Some(())
    }

    fn add(&mut self, path: PathBuf) -> Option<()> {
        self.changed.push(path);
        (self.changed.len() <= self.limits.changed).then_some(())
    }

    fn is_since(&self, time: Duration) -> bool {
        time >= self.since
    }
}

fn status(directory: &impl AsFd, name: &CStr) -> Option<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let wanted = StatxFlags::TYPE | StatxFlags::MTIME | StatxFlags::CTIME | StatxFlags::BTIME;
    statx(directory, name, flags, wanted).ok()
}

fn changed(status: &Statx) -> Duration {
    time(status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec)
}

fn modified(status: &Statx) -> Duration {
    time(status.stx_mtime.tv_sec, status.stx_mtime.tv_nsec)
}

/// A file system that does not record births reports zero.
fn born(status: &Statx) -> Duration {
    time(status.stx_btime.tv_sec, status.stx_btime.tv_nsec)
}

fn time(seconds: i64, nanoseconds: u32) -> Duration {
    Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[&str]) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            files.iter().for_each(|file| tree.write(file));
            tree
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn write(&self, file: &str) {
            fs::create_dir_all(self.at(file).parent().unwrap()).unwrap();
            fs::write(self.at(file), "x").unwrap();
        }

        /// Runs a command and returns the paths that changed, sorted.
        fn after(&self, command: impl FnOnce(&Tree)) -> Vec<String> {
            std::thread::sleep(2 * CLOCK_LAG);
            let since = SystemTime::now();
            command(self);
            let Changed::Paths(paths) = changed_since(self.0.path(), since, ScanLimits::default()) else {
                panic!("the scan reached a limit")
            };
            let relative = |path: &PathBuf| path.strip_prefix(self.0.path()).unwrap().display().to_string();
            let mut paths: Vec<String> = paths.iter().map(relative).collect();
            paths.sort();
            paths
        }
    }

    #[test]
    fn written_created_and_linked_files_are_found() {
        let tree = Tree::new(&["a", "b", "src/c", "src/deep/d", "old/e"]);
        assert_eq!(tree.after(|_| {}), [""; 0]);
        assert_eq!(tree.after(|tree| tree.write("src/deep/d")), ["src/deep/d"]);
        let changed = tree.after(|tree| {
            fs::write(tree.at("new"), "x").unwrap();
            fs::hard_link(tree.at("a"), tree.at("linked")).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", tree.at("symbolic")).unwrap();
            fs::rename(tree.at("b"), tree.at("renamed")).unwrap();
        });
        assert_eq!(changed, ["a", "linked", "new", "renamed", "symbolic"]);
        let appended = tree.after(|tree| {
            let mut file = fs::File::options().append(true).open(tree.at("src/c")).unwrap();
            std::io::Write::write_all(&mut file, b"y").unwrap();
            // A program can set the modification time back, but not the change time.
            file.set_modified(UNIX_EPOCH).unwrap();
        });
        assert_eq!(appended, ["src/c"]);
    }

    #[test]
    fn new_directories_are_found_as_a_whole() {
        let tree = Tree::new(&["a"]);
        let changed =
            tree.after(|tree| ["target/x", "target/deep/y"].iter().for_each(|file| tree.write(file)));
        assert_eq!(changed, ["target"]);
    }

    #[test]
    fn everything_below_a_renamed_directory_is_found() {
        let outside = Tree::new(&["page/deep/words.txt", "other/words.txt"]);
        let tree = Tree::new(&["src/old.rs"]);
        let changed = tree.after(|tree| fs::rename(outside.at("page"), tree.at("moved")).unwrap());
        assert_eq!(changed, ["moved"]);
        // New entries hide a rename, so the directory counts as renamed.
        let changed = tree.after(|tree| {
            fs::rename(outside.at("other"), tree.at("src/other")).unwrap();
            tree.write("src/other/more");
        });
        assert_eq!(changed, ["src/other"]);
        // The modification time of the parent can be set back.
        let changed = tree.after(|tree| {
            fs::rename(tree.at("moved"), tree.at("again")).unwrap();
            tree.write("again/more");
            fs::File::open(tree.at(".")).unwrap().set_modified(UNIX_EPOCH).unwrap();
        });
        assert_eq!(changed, ["again"]);
    }

    #[test]
    fn limits_make_everything_count_as_changed() {
        let files: Vec<String> = (0..300).map(|number| format!("d{}/{number}", number % 7)).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let tree = Tree::new(&files);
        let now = SystemTime::now() + Duration::from_secs(60);
        let scan = |since, limits| changed_since(tree.0.path(), since, limits);
        let limits = ScanLimits::default();
        assert_eq!(scan(now, limits), Changed::Paths(Vec::new()));
        assert_eq!(scan(now, ScanLimits { entries: 100, ..limits }), Changed::Everything);
        assert_eq!(scan(now, ScanLimits { time: Duration::ZERO, ..limits }), Changed::Everything);
        assert_eq!(scan(UNIX_EPOCH, ScanLimits { changed: 6, ..limits }), Changed::Everything);
        let missing = changed_since(&tree.at("missing"), now, limits);
        assert_eq!(missing, Changed::Everything);
    }
}
