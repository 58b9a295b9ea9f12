//! Searches the text of files, line by line. One walk in path order feeds all threads, so that the first matches in that
//! order are known early and the search can stop there.

mod lines;
mod order;
mod text;

use std::{
    collections::BTreeMap,
    ffi::CString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use globset::{GlobBuilder, GlobMatcher};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

use self::{
    lines::{Line, LineMatcher},
    order::Ordered,
    text::{Outcome, Scratch},
};
use crate::walk::{Folder, NotEntered, Skipped, Walk, WalkOptions};

pub use self::{order::MAX_DIRECTORY_ENTRIES, text::MAX_LINE_BYTES};

/// Matches one search returns.
pub const MATCH_LIMIT: usize = 100;
/// Characters of a matching line that are returned.
pub const LINE_CHARS: usize = 200;
/// Files a thread takes at a time: few enough to stop soon, enough to make the lock unimportant.
const BATCH_FILES: usize = 16;

/// The first matches in path order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub matches: Vec<Match>,
    /// Whether there are more than [`MATCH_LIMIT`].
    pub truncated: bool,
    pub skipped: Skipped,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub path: PathBuf,
    /// Counted from 1.
    pub line: u64,
    /// The line without its ending, at most [`LINE_CHARS`] characters.
    pub content: String,
    /// Whether `content` is only the beginning of the line.
    pub cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("pattern is no regular expression: {0}")]
    Pattern(String),
    #[error("include `{include}` is no glob: {reason}")]
    Include { include: String, reason: String },
    #[error("include `{0}` contains a slash: it is matched against the file name only")]
    IncludePath(String),
    #[error("cannot search in {}: {reason}", base.display())]
    Base { base: PathBuf, reason: String },
    #[error("cancelled")]
    Cancelled,
}

/// Searches the files below `base`, or the one file it is, for lines that match `pattern`.
///
/// Links are followed, without loops. Directories named `.git` and binary files are not searched; hidden and ignored files
/// are. `include` is a glob for the file's name.
pub fn search(
    base: &Path,
    pattern: &str,
    include: Option<&str>,
    options: &WalkOptions<'_>,
) -> Result<Found, SearchError> {
    let matcher = LineMatcher::new(pattern)?;
    let include = include.map(include_matcher).transpose()?;
    let failed = |reason: String| SearchError::Base { base: base.to_owned(), reason };
    let walk = Walk::new(options);

    let base_flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = openat(CWD, base, base_flags, Mode::empty()).map_err(|errno| failed(errno.to_string()))?;
    let kind = fstat(&opened).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind.map_err(|errno| failed(errno.to_string()))? {
        FileType::RegularFile => search_one(base, &opened, &matcher, include.as_ref(), options),
        FileType::Directory => {
            let root = walk.base(base).map_err(|reason| match reason {
                NotEntered::Unreadable(errno) => failed(errno.to_string()),
                NotEntered::Quietly | NotEntered::TooManyLinks | NotEntered::LeftOut => {
                    failed("no such directory".to_owned())
                }
            })?;
            search_tree(&walk, root, &matcher, include.as_ref(), options)
        }
        _ => Err(failed("neither a file nor a directory".to_owned())),
    }
}

fn include_matcher(include: &str) -> Result<GlobMatcher, SearchError> {
    if include.contains('/') {
        return Err(SearchError::IncludePath(include.to_owned()));
    }
    let glob = GlobBuilder::new(include).literal_separator(true).empty_alternates(true).build();
    let invalid = |error: globset::Error| SearchError::Include {
        include: include.to_owned(),
        reason: error.kind().to_string(),
    };
    Ok(glob.map_err(invalid)?.compile_matcher())
}

fn search_one(
    base: &Path,
    file: &OwnedFd,
    matcher: &LineMatcher,
    include: Option<&GlobMatcher>,
    options: &WalkOptions<'_>,
) -> Result<Found, SearchError> {
    let mut batch = Batch::default();
    if include.is_none_or(|glob| base.file_name().is_some_and(|name| glob.is_match(name))) {
        let give_up = || options.is_cancelled();
        let outcome = Scratch::default().search(file, matcher, MATCH_LIMIT + 1, &give_up);
        batch.add(outcome, || base.to_owned());
    }
    if options.is_cancelled() {
        return Err(SearchError::Cancelled);
    }
    Ok(collect([batch]))
}

fn search_tree(
    walk: &Walk<'_>,
    root: Arc<Folder>,
    matcher: &LineMatcher,
    include: Option<&GlobMatcher>,
    options: &WalkOptions<'_>,
) -> Result<Found, SearchError> {
    let team = Team {
        walk,
        matcher,
        source: Mutex::new((0, Ordered::new(root, include))),
        finished: Mutex::new(BTreeMap::new()),
        last_needed: AtomicUsize::new(usize::MAX),
    };
    std::thread::scope(|scope| {
        for _ in 1..options.thread_count() {
            scope.spawn(|| team.work());
        }
        team.work();
    });
    if options.is_cancelled() {
        return Err(SearchError::Cancelled);
    }
    let last_needed = team.last_needed.into_inner();
    let finished = team.finished.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(collect(finished.into_iter().filter(|(index, _)| *index <= last_needed).map(|(_, batch)| batch)))
}

fn collect(batches: impl IntoIterator<Item = Batch>) -> Found {
    let mut found = Found::default();
    for batch in batches {
        found.matches.extend(batch.matches);
        found.skipped.merge(batch.skipped);
    }
    found.truncated = found.matches.len() > MATCH_LIMIT;
    found.matches.truncate(MATCH_LIMIT);
    found
}

/// A file to search, by the directory that holds it.
struct File {
    folder: Arc<Folder>,
    name: CString,
    /// For a link: where it leads, if that must be pinned down.
    link: Option<Option<PathBuf>>,
}

impl File {
    fn open(&self) -> Result<OwnedFd, Errno> {
        match &self.link {
            None => self.folder.open_file(&self.name),
            Some(real) => self.folder.open_link(&self.name, real.as_deref()),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }
}

/// What a run of consecutive files gave.
#[derive(Default)]
struct Batch {
    matches: Vec<Match>,
    skipped: Skipped,
}

impl Batch {
    fn add(&mut self, outcome: Outcome, path: impl Fn() -> PathBuf) {
        if outcome.unreadable {
            self.skipped.unreadable += 1;
            self.skipped.note(&path);
        }
        if outcome.long_lines > 0 {
            self.skipped.long_lines += outcome.long_lines;
            self.skipped.note(&path);
        }
        if !outcome.lines.is_empty() {
            let path = path();
            let matched =
                |Line { number, content, cut }| Match { path: path.clone(), line: number, content, cut };
            self.matches.extend(outcome.lines.into_iter().map(matched));
        }
    }
}

/// The threads of one search.
struct Team<'a> {
    walk: &'a Walk<'a>,
    matcher: &'a LineMatcher,
    /// The next batch's number, and the files still to come.
    source: Mutex<(usize, Ordered<'a>)>,
    /// Batches that have something to tell. Once they hold enough matches no further ones are begun.
    finished: Mutex<BTreeMap<usize, Batch>>,
    /// The batch with which enough matches are known; later ones cannot change the answer.
    last_needed: AtomicUsize,
}

impl Team<'_> {
    fn work(&self) {
        let mut scratch = Scratch::default();
        let mut files = Vec::with_capacity(BATCH_FILES);
        while let Some((index, mut batch)) = self.take(&mut files) {
            let unneeded = || index > self.last_needed.load(Ordering::Relaxed) || self.walk.is_cancelled();
            for file in files.drain(..) {
                let wanted = MATCH_LIMIT + 1 - batch.matches.len();
                if wanted == 0 || unneeded() {
                    break;
                }
                match file.open() {
                    Ok(handle) => {
                        let outcome = scratch.search(&handle, self.matcher, wanted, &unneeded);
                        batch.add(outcome, || file.path());
                    }
                    Err(Errno::NOENT | Errno::LOOP) => {}
                    Err(errno) => NotEntered::Unreadable(errno).count(&mut batch.skipped, || file.path()),
                }
            }
            if !batch.matches.is_empty() || !batch.skipped.is_empty() {
                self.finish(index, batch);
            }
        }
    }

    fn take(&self, files: &mut Vec<File>) -> Option<(usize, Batch)> {
        files.clear();
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if self.last_needed.load(Ordering::Relaxed) != usize::MAX || self.walk.is_cancelled() {
            return None;
        }
        let mut batch = Batch::default();
        let (next, ordered) = &mut *source;
        while files.len() < BATCH_FILES {
            match ordered.next(self.walk, &mut batch.skipped) {
                Some(file) => files.push(file),
                None => break,
            }
        }
        let index = *next;
        *next += 1;
        (!files.is_empty() || !batch.skipped.is_empty()).then_some((index, batch))
    }

    fn finish(&self, index: usize, batch: Batch) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished.insert(index, batch);
        let mut known = 0;
        for (index, batch) in &*finished {
            known += batch.matches.len();
            if known > MATCH_LIMIT {
                self.last_needed.store(*index, Ordering::Relaxed);
                break;
            }
        }
    }
}
