//! Searches the text of files, line by line.
//!
//! One walk in path order feeds all threads. The first matches in that order are therefore known
//! early, and the search can stop there.

mod lines;
mod order;
mod text;

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use globset::{GlobBuilder, GlobMatcher};

use self::{
    lines::{LineMatcher, MatchingLine},
    order::Ordered,
    text::{FileMatches, Scratch},
};
use crate::{
    error::FileError,
    scope::{OpenDir, OpenFile, Scope},
    walk::{Folder, Kind, NotEntered, Skipped, Walk, WalkOptions},
};

pub use self::{order::MAX_DIRECTORY_ENTRIES, text::MAX_LINE_BYTES};

/// How many matches one search returns.
pub const MATCH_LIMIT: usize = 100;
/// How many characters of a matching line are returned.
pub const LINE_CHARS: usize = 200;
/// How many bytes of the rest of a longer line are returned: enough to detect a secret that begins
/// before the cut.
pub(crate) const BEYOND_BYTES: usize = 8 * 1024;
/// How many files a thread takes at a time: few enough to stop soon, and enough to make the cost of
/// the lock unimportant.
const BATCH_FILES: usize = 16;

/// `SearchResult` holds the first matches in path order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchResult {
    pub matches: Vec<Match>,
    /// Whether there are more than [`MATCH_LIMIT`] matches.
    pub truncated: bool,
    pub skipped: Skipped,
}

/// `Match` is a line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub path: PathBuf,
    /// Counted from 1.
    pub line: u64,
    /// The line without its ending, at most [`LINE_CHARS`] characters.
    pub content: String,
    /// The beginning of what follows `content` in the line; empty if `content` is the whole line.
    /// It must not be shown.
    pub beyond: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("invalid regular expression: {0}")]
    Pattern(String),
    #[error("invalid include glob `{include}`: {reason}")]
    Include { include: String, reason: String },
    #[error("include `{0}` contains a slash: it is matched against the file name only")]
    IncludePath(String),
    #[error("cannot search in {}: {reason}", base.display())]
    Base { base: PathBuf, reason: String },
    #[error("cancelled")]
    Cancelled,
}

/// `SearchBase` is what a search starts from.
#[derive(Debug)]
pub enum SearchBase {
    Directory(OpenDir),
    File(OpenFile),
}

impl SearchBase {
    /// The real absolute path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(directory) => &directory.path,
            Self::File(file) => &file.path,
        }
    }
}

impl Scope {
    /// Opens the directory to search in, or the one file.
    pub fn open_base(&self, path: impl AsRef<Path>) -> Result<SearchBase, FileError> {
        match self.open_dir(path.as_ref()) {
            Err(FileError::NotADirectory { .. }) => self.open(path).map(SearchBase::File),
            opened => opened.map(SearchBase::Directory),
        }
    }

    /// Searches the files below `base`, or the single file that it is, for lines that match
    /// `pattern`.
    ///
    /// Links are followed, without loops and without leaving the scope, except those in `/proc`.
    /// Directories named `.git` and binary files are not searched; hidden and ignored files are.
    /// `include` is a glob for the file's name.
    pub fn search(
        &self,
        base: &SearchBase,
        pattern: &str,
        include: Option<&str>,
        options: &WalkOptions<'_>,
    ) -> Result<SearchResult, SearchError> {
        let matcher = LineMatcher::new(pattern)?;
        let include = include.map(include_matcher).transpose()?;
        let directory = match base {
            SearchBase::File(file) => return search_one(file, &matcher, include.as_ref(), options),
            SearchBase::Directory(directory) => directory,
        };
        let walk = Walk::new(self, options);
        let root = walk.base(directory).map_err(|reason| SearchError::Base {
            base: directory.path.clone(),
            reason: match reason {
                NotEntered::Unreadable(errno) => errno.to_string(),
                NotEntered::Quietly | NotEntered::TooManyLinks | NotEntered::LeftOut => {
                    "no such directory".to_owned()
                }
            },
        })?;
        search_tree(&walk, root, &matcher, include.as_ref(), options)
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
    base: &OpenFile,
    matcher: &LineMatcher,
    include: Option<&GlobMatcher>,
    options: &WalkOptions<'_>,
) -> Result<SearchResult, SearchError> {
    let mut batch = Batch::default();
    if include.is_none_or(|glob| base.path.file_name().is_some_and(|name| glob.is_match(name))) {
        let give_up = || options.is_cancelled();
        let outcome = Scratch::default().search(base.file.as_fd(), matcher, MATCH_LIMIT + 1, &give_up);
        batch.add(outcome, || base.path.clone());
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
) -> Result<SearchResult, SearchError> {
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

fn collect(batches: impl IntoIterator<Item = Batch>) -> SearchResult {
    let mut found = SearchResult::default();
    for batch in batches {
        found.matches.extend(batch.matches);
        found.skipped.merge(batch.skipped);
    }
    found.truncated = found.matches.len() > MATCH_LIMIT;
    found.matches.truncate(MATCH_LIMIT);
    found
}

/// `File` is a file to search, with its directory.
struct File {
    folder: Arc<Folder>,
    name: CString,
    kind: Kind,
}

impl File {
    fn new(folder: &Arc<Folder>, name: &CStr, kind: Kind) -> Self {
        Self { folder: Arc::clone(folder), name: name.to_owned(), kind }
    }

    fn open(&self, walk: &Walk<'_>) -> Result<OwnedFd, NotEntered> {
        match self.kind {
            Kind::Link => walk.open_link(&self.folder, &self.name),
            _ => walk.open_file(&self.folder, &self.name),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }
}

/// `Batch` is the result for a run of consecutive files.
#[derive(Default)]
struct Batch {
    matches: Vec<Match>,
    skipped: Skipped,
}

impl Batch {
    fn add(&mut self, outcome: FileMatches, path: impl Fn() -> PathBuf) {
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
            let matched = |MatchingLine { number, content, beyond }| Match {
                path: path.clone(),
                line: number,
                content,
                beyond,
            };
            self.matches.extend(outcome.lines.into_iter().map(matched));
        }
    }
}

/// `Team` is the threads of one search.
struct Team<'a> {
    walk: &'a Walk<'a>,
    matcher: &'a LineMatcher,
    /// The number of the next batch, and the files still to come.
    source: Mutex<(usize, Ordered<'a>)>,
    /// Batches with results. Once they hold enough matches, no further batch starts.
    finished: Mutex<BTreeMap<usize, Batch>>,
    /// The batch with which enough matches are known. Later ones cannot change the result.
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
                match file.open(self.walk) {
                    Ok(handle) => {
                        let outcome = scratch.search(handle.as_fd(), self.matcher, wanted, &unneeded);
                        batch.add(outcome, || file.path());
                    }
                    Err(reason) => reason.count(&mut batch.skipped, || file.path()),
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
