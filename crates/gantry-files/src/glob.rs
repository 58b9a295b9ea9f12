//! Finds files by a glob pattern, newest first.
//!
//! All cores walk the tree. Only files whose path matches cost a `stat` for their time.

use std::{
    cmp::Ordering as Order,
    ffi::{CStr, CString, OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{FileType, Stat};

use crate::scope::{OpenDir, Scope};
use crate::walk::{Folder, Kind, NotEntered, Skipped, Walk, WalkOptions, is_git};

/// How many paths one glob returns. `total` counts all of them.
pub const GLOB_LIMIT: usize = 10_000;
/// The longest pattern in bytes, which is the length of the longest path.
const MAX_PATTERN_BYTES: usize = 4096;
/// The deepest nesting of braces.
const MAX_BRACES: usize = 16;

/// `GlobResult` holds the files that a pattern matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobResult {
    /// Absolute paths, newest first, and by path if equally old; at most [`GLOB_LIMIT`].
    pub matches: Vec<PathBuf>,
    /// How many files matched.
    pub total: usize,
    pub truncated: bool,
    pub skipped: Skipped,
}

#[derive(Debug, thiserror::Error)]
pub enum GlobError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern is longer than {MAX_PATTERN_BYTES} bytes or nests braces deeper than {MAX_BRACES}")]
    TooLong,
    #[error("pattern `{0}` contains `..`: give the directory as the path to search in instead")]
    Parent(String),
    #[error("pattern `{pattern}` is absolute and not inside {}", base.display())]
    Outside { pattern: String, base: PathBuf },
    #[error("invalid glob pattern `{pattern}`: {reason}")]
    Invalid { pattern: String, reason: String },
    #[error("cannot search in {}: {reason}", base.display())]
    Base { base: PathBuf, reason: String },
    #[error("cancelled")]
    Cancelled,
}

impl Scope {
    /// Finds the files below `base` whose path relative to it matches `pattern`.
    ///
    /// `*` stays within a directory, `**` crosses directories, `{a,b}` is either. Links are
    /// followed, without loops and without leaving the scope, except those in `/proc`. Directories
    /// named `.git` are skipped.
    pub fn glob(
        &self,
        base: &OpenDir,
        pattern: &str,
        options: &WalkOptions<'_>,
    ) -> Result<GlobResult, GlobError> {
        glob(&Walk::new(self, options), base, pattern, options.thread_count())
    }
}

fn glob(walk: &Walk<'_>, base: &OpenDir, pattern: &str, threads: usize) -> Result<GlobResult, GlobError> {
    let pattern = Pattern::parse(&base.path, pattern)?;
    let root = walk.base(base).map_err(|reason| GlobError::Base {
        base: base.path.clone(),
        reason: match reason {
            NotEntered::Unreadable(errno) => errno.to_string(),
            NotEntered::Quietly | NotEntered::TooManyLinks | NotEntered::LeftOut => {
                "no such directory".to_owned()
            }
        },
    })?;
    let start = match descend(walk, root, &pattern.prefix) {
        Ok(start) => start,
        Err(reason) => {
            let mut nothing = GlobResult::default();
            if reason == NotEntered::LeftOut {
                nothing.skipped.left_out = 1;
            }
            return Ok(nothing);
        }
    };

    let queue = Queue::starting_with(Job { parent: start, name: None });
    let shape = Shape { walk, pattern: &pattern, base: base.path.as_os_str().len(), queue: &queue };
    let mut parts = Vec::new();
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| shape.work())).collect();
        parts.push(shape.work());
        parts.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
    });
    if walk.is_cancelled() {
        return Err(GlobError::Cancelled);
    }
    Ok(newest(parts))
}

/// `Pattern` is a pattern relative to the base, with what it says about where to look.
struct Pattern {
    set: GlobSet,
    /// Leading directories without wildcards.
    prefix: Vec<CString>,
    /// How many directories deep a match can be, if the pattern limits it.
    depth: Option<usize>,
}

impl Pattern {
    fn parse(base: &Path, given: &str) -> Result<Self, GlobError> {
        if given.len() > MAX_PATTERN_BYTES || brace_depth(given) > MAX_BRACES {
            return Err(GlobError::TooLong);
        }
        let mut pattern = given;
        if pattern.starts_with('/') {
            let outside = || GlobError::Outside { pattern: given.to_owned(), base: base.to_owned() };
            let inside = base.to_str().and_then(|base| pattern.strip_prefix(base.trim_end_matches('/')));
            pattern = inside.filter(|rest| rest.starts_with('/')).ok_or_else(outside)?;
        }
        pattern = pattern.trim_start_matches('/');
        while let Some(rest) = pattern.strip_prefix("./") {
            pattern = rest.trim_start_matches('/');
        }
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        if pattern.split(['/', '{', '}', ',']).any(|part| part == "..") {
            return Err(GlobError::Parent(given.to_owned()));
        }
        let invalid = |error: globset::Error| GlobError::Invalid {
            pattern: given.to_owned(),
            reason: error.kind().to_string(),
        };
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(invalid)?;
        let set = GlobSetBuilder::new().add(glob).build().map_err(invalid)?;
        let depth = (!pattern.contains("**")).then(|| pattern.matches('/').count());
        Ok(Self { set, prefix: literal_directories(pattern), depth })
    }
}

fn brace_depth(pattern: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in pattern.bytes() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn literal_directories(pattern: &str) -> Vec<CString> {
    let mut parts: Vec<&str> = pattern.split('/').collect();
    parts.pop();
    let literal = |part: &&str| {
        !part.is_empty() && *part != "." && !part.contains(['*', '?', '[', ']', '{', '}', ',', '\\'])
    };
    parts.into_iter().take_while(literal).map_while(|part| CString::new(part).ok()).collect()
}

/// Enters the literal directories of a pattern one by one. Fails if one does not exist.
fn descend(walk: &Walk<'_>, root: Arc<Folder>, prefix: &[CString]) -> Result<Arc<Folder>, NotEntered> {
    prefix.iter().try_fold(root, |folder, name| {
        if is_git(name) {
            return Err(NotEntered::Quietly);
        }
        match walk.enter(&folder, name) {
            Err(NotEntered::Quietly | NotEntered::Unreadable(_)) => walk.enter_link(&folder, name),
            entered => entered,
        }
    })
}

/// `Job` is a directory still to read: an open one, or an entry of one.
struct Job {
    parent: Arc<Folder>,
    name: Option<(CString, Kind)>,
}

/// `Queue` holds the directories that wait for a thread. It is last in, first out, so it grows with
/// the depth of the tree and not with its size.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    jobs: Vec<Job>,
    working: usize,
    waiting: usize,
}

impl Queue {
    fn starting_with(job: Job) -> Self {
        let state = QueueState { jobs: vec![job], working: 0, waiting: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job, after the previous one is finished; `None` when all are done.
    fn next(&self, finished: Option<Vec<Job>>) -> Option<(Job, Vec<Job>)> {
        let mut state = self.lock();
        let mut spare = Vec::new();
        if let Some(mut found) = finished {
            state.working -= 1;
            state.jobs.append(&mut found);
            if state.waiting > 0 && (state.jobs.len() > 1 || state.working == 0) {
                self.changed.notify_all();
            }
            spare = found;
        }
        loop {
            if let Some(job) = state.jobs.pop() {
                state.working += 1;
                return Some((job, spare));
            }
            if state.working == 0 {
                self.changed.notify_all();
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }
}

/// `Part` is what one thread found.
#[derive(Default)]
struct Part {
    hits: Vec<Hit>,
    total: usize,
    skipped: Skipped,
}

struct Hit {
    modified: (i64, i64),
    path: Vec<u8>,
}

impl Hit {
    /// Orders newest first; equally old files by path, directory by directory.
    fn order(&self, other: &Self) -> Order {
        other.modified.cmp(&self.modified).then_with(|| path_order(&self.path, &other.path))
    }
}

struct Shape<'a> {
    walk: &'a Walk<'a>,
    pattern: &'a Pattern,
    /// The length of the base's path.
    base: usize,
    queue: &'a Queue,
}

impl Shape<'_> {
    fn work(&self) -> Part {
        let mut part = Part::default();
        let mut buffer = Vec::new();
        let mut path = Vec::new();
        let mut finished = None;
        while let Some((job, mut found)) = self.queue.next(finished.take()) {
            if !self.walk.is_cancelled() {
                match self.open(&job) {
                    Ok(folder) => self.read(&folder, &mut part, &mut buffer, &mut path, &mut found),
                    Err(reason) => reason.count(&mut part.skipped, || job.path()),
                }
            }
            finished = Some(found);
        }
        part
    }

    fn open(&self, job: &Job) -> Result<Arc<Folder>, NotEntered> {
        match &job.name {
            None => Ok(Arc::clone(&job.parent)),
            Some((name, Kind::Link)) => self.walk.enter_link(&job.parent, name),
            Some((name, _)) => self.walk.enter(&job.parent, name),
        }
    }

    fn read(
        &self,
        folder: &Arc<Folder>,
        part: &mut Part,
        buffer: &mut Vec<u8>,
        path: &mut Vec<u8>,
        found: &mut Vec<Job>,
    ) {
        path.clear();
        path.extend_from_slice(folder.path.as_os_str().as_bytes());
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        let stem = path.len();
        let deeper = self.pattern.depth.is_none_or(|depth| folder.depth < depth);
        let result = self.walk.read(folder, buffer, |name, kind| {
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            match kind {
                Kind::File if self.matches(path) => {
                    if self.walk.leaves_out(folder, name) {
                        part.skipped.left_out += 1;
                    } else if let Ok(stat) = self.walk.stat_file(folder, name) {
                        part.add(&stat, path);
                    }
                }
                Kind::Folder if deeper && !is_git(name) => found.push(Job::below(folder, name, kind)),
                Kind::Link if deeper || self.matches(path) => match self.walk.link_kind(folder, name) {
                    Kind::Folder if deeper && !is_git(name) => found.push(Job::below(folder, name, kind)),
                    Kind::File if self.matches(path) => match self.walk.stat_link(folder, name) {
                        Ok(stat) => part.add(&stat, path),
                        Err(reason) => reason.count(&mut part.skipped, || folder.path_of(name)),
                    },
                    _ => {}
                },
                _ => {}
            }
            !self.walk.is_cancelled()
        });
        if let Err(errno) = result {
            NotEntered::Unreadable(errno).count(&mut part.skipped, || folder.path.clone());
        }
    }

    fn matches(&self, path: &[u8]) -> bool {
        let relative = path.get(self.base..).unwrap_or_default();
        let relative = relative.strip_prefix(b"/").unwrap_or(relative);
        self.pattern.set.is_match(Path::new(OsStr::from_bytes(relative)))
    }
}

impl Job {
    fn below(folder: &Arc<Folder>, name: &CStr, kind: Kind) -> Self {
        Self { parent: Arc::clone(folder), name: Some((name.to_owned(), kind)) }
    }

    fn path(&self) -> PathBuf {
        match &self.name {
            Some((name, _)) => self.parent.path_of(name),
            None => self.parent.path.clone(),
        }
    }
}

impl Part {
    #[allow(clippy::unnecessary_cast, reason = "the width of these fields differs between systems")]
    fn add(&mut self, stat: &Stat, path: &[u8]) {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return;
        }
        self.total += 1;
        let modified = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
        self.hits.push(Hit { modified, path: path.to_owned() });
        if self.hits.len() >= 4 * GLOB_LIMIT {
            self.hits.select_nth_unstable_by(GLOB_LIMIT, Hit::order);
            self.hits.truncate(GLOB_LIMIT);
        }
    }
}

fn newest(parts: Vec<Part>) -> GlobResult {
    let mut globbed = GlobResult::default();
    let mut hits = Vec::new();
    for part in parts {
        globbed.total += part.total;
        globbed.skipped.merge(part.skipped);
        hits.extend(part.hits);
    }
    hits.sort_unstable_by(Hit::order);
    hits.truncate(GLOB_LIMIT);
    globbed.truncated = globbed.total > hits.len();
    globbed.matches = hits.into_iter().map(|hit| PathBuf::from(OsString::from_vec(hit.path))).collect();
    globbed
}

/// Orders paths directory by directory, like a walk that sorts the names of each directory.
fn path_order(left: &[u8], right: &[u8]) -> Order {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { u16::from(*byte) + 1 };
    left.iter().map(rank).cmp(right.iter().map(rank))
}
