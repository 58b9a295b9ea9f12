//! API profiles on disk, one JSON file each: read again when a file changes, whoever changed it.
//!
//! A file that cannot be used is never left out in silence: it is listed, and it stops the requests it would have covered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_tool::{Violation, nearest};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use url::Url;

use crate::DataDir;
use crate::data_dir::{open_file, replace_private};

mod place;
mod profile;
mod rates;

use place::Place;
pub use place::path_words;
use profile::is_id;
pub use profile::{Auth, AuthDraft, ClientStyle, Endpoint, Profile, ProfileDraft, RateLimit};
pub use rates::RateLimited;
use rates::Rates;

const MAX_PROFILES: usize = 1_000;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The profiles of a data directory. Cheap to clone; several processes may use them at once.
#[derive(Debug, Clone)]
pub struct Apis {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    rates: Rates,
    read: Mutex<BTreeMap<String, (FileVersion, ApiFile)>>,
}

/// Tells one version of a file from another, also when an editor writes in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// One file: a profile, or what is wrong with it.
#[derive(Debug, Clone)]
pub enum ApiFile {
    Profile(Arc<Profile>),
    Broken(Arc<BrokenProfile>),
}

#[derive(Debug)]
pub struct BrokenProfile {
    pub id: String,
    pub problems: Vec<Violation>,
    /// As far as it can be told.
    base_url: Option<Url>,
}

/// What there is for a request.
#[derive(Debug, Clone)]
pub enum Covering {
    Profile(Arc<Profile>),
    /// The file that would cover it cannot be used.
    Broken(Arc<BrokenProfile>),
    /// Files with these ids have the same base, and which of them is meant cannot be told.
    Twice(Vec<String>),
    /// A profile covers this address by another scheme.
    OtherScheme(Arc<Profile>),
    /// Servers read its path in different ways, and one of them may lead to what this file covers.
    Unclear {
        id: String,
    },
    /// No profile that can be read, and this one is broken in a way that hides what it covers.
    Hidden(Arc<BrokenProfile>),
    /// No profile, of so many files.
    Nothing {
        profiles: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    New,
    Changed,
}

#[derive(Debug, thiserror::Error)]
pub enum ApisError {
    #[error("cannot use the API profiles in {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("there is an API profile \"{id}\" already")]
    Exists { id: String },
    #[error("the API profile \"{id}\" has the same base_url; change that one, or remove it first")]
    SameBase { id: String },
    #[error("there is no API profile \"{id}\"{}", meant(near.as_deref()))]
    Unknown { id: String, near: Option<String> },
    #[error("the API profile{} cannot be used{}", named(id), listed(problems))]
    Invalid { id: String, problems: Vec<Violation> },
    #[error("there are {MAX_PROFILES} API profiles already")]
    TooMany,
}

fn meant(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default()
}

fn named(id: &str) -> String {
    if id.is_empty() { String::new() } else { format!(" \"{id}\"") }
}

fn listed(problems: &[Violation]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

impl Apis {
    pub fn new(data: &DataDir) -> Apis {
        let rates = Rates::new(data.api_requests());
        Apis { inner: Arc::new(Inner { folder: data.apis(), rates, read: Mutex::default() }) }
    }

    /// Every file by its id, as it is on disk now.
    pub fn list(&self) -> Result<Vec<ApiFile>, ApisError> {
        let mut read = self.inner.read.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.refresh(&mut read).map_err(|cause| self.inner.failed(cause))?;
        Ok(read.values().map(|(_, file)| file.clone()).collect())
    }

    pub fn get(&self, id: &str) -> Result<ApiFile, ApisError> {
        let files = self.list()?;
        match files.iter().find(|file| file.id() == id) {
            Some(file) => Ok(file.clone()),
            None => {
                let near = nearest(id, files.iter().map(ApiFile::id)).first().map(|near| (*near).to_owned());
                Err(ApisError::Unknown { id: id.chars().take(100).collect(), near })
            }
        }
    }

    /// What covers a request to this address; the profile with the longest path, if several do.
    pub fn covering(&self, url: &Url) -> Result<Covering, ApisError> {
        let files = self.list()?;
        let place = Place::of(url);
        if place.is_unclear()
            && let Some(file) =
                files.iter().find(|file| file.base().is_some_and(|base| base.same_origin(&place)))
        {
            return Ok(Covering::Unclear { id: file.id().to_owned() });
        }
        let covering: Vec<(usize, &ApiFile)> = files
            .iter()
            .filter_map(|file| Some((file.base().filter(|base| place.is_below(base))?.depth(), file)))
            .collect();
        let deepest = covering.iter().map(|(depth, _)| *depth).max();
        let deepest: Vec<&ApiFile> =
            covering.iter().filter(|(depth, _)| Some(*depth) == deepest).map(|(_, file)| *file).collect();
        match deepest.as_slice() {
            [ApiFile::Profile(profile)] => return Ok(Covering::Profile(profile.clone())),
            [ApiFile::Broken(broken)] => return Ok(Covering::Broken(broken.clone())),
            [] => {}
            several => return Ok(Covering::Twice(several.iter().map(|file| file.id().to_owned()).collect())),
        }
        let (mut hidden, mut other_scheme) = (None, None);
        for file in &files {
            match file {
                ApiFile::Profile(profile) if profile.covers_but_for_scheme(url) => {
                    other_scheme = Some(profile.clone())
                }
                ApiFile::Broken(file) if file.base_url.is_none() => hidden = Some(file.clone()),
                ApiFile::Profile(_) | ApiFile::Broken(_) => {}
            }
        }
        Ok(match (other_scheme, hidden) {
            (Some(profile), _) => Covering::OtherScheme(profile),
            (None, Some(hidden)) => Covering::Hidden(hidden),
            (None, None) => Covering::Nothing { profiles: files.len() },
        })
    }

    /// Writes a profile, which counts from then on.
    pub fn save(&self, profile: &Profile, saving: Saving) -> Result<(), ApisError> {
        let inner = &self.inner;
        let failed = |cause| inner.failed(cause);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&inner.folder).map_err(failed)?;
        let _lock = inner.lock().map_err(failed)?;
        let files = self.list()?;
        let there = files.iter().any(|file| file.id() == profile.id);
        match saving {
            Saving::New if there => return Err(ApisError::Exists { id: profile.id.clone() }),
            Saving::New if files.len() >= MAX_PROFILES => return Err(ApisError::TooMany),
            Saving::Changed if !there => {
                return Err(ApisError::Unknown { id: profile.id.clone(), near: None });
            }
            Saving::New | Saving::Changed => {}
        }
        let base = Some(Place::of(&profile.base_url));
        let same = files.iter().find(|file| file.id() != profile.id && file.base() == base);
        if let Some(same) = same {
            return Err(ApisError::SameBase { id: same.id().to_owned() });
        }
        let mut text = serde_json::to_string_pretty(&profile.draft).map_err(|err| failed(err.into()))?;
        text.push('\n');
        replace_private(&inner.path(&profile.id), text.as_bytes()).map_err(failed)
    }

    /// Removes a profile, broken or not; from then on it covers nothing. How often the API was called stays known, so
    /// that removing and adding it again is no way around its limits.
    pub fn remove(&self, id: &str) -> Result<(), ApisError> {
        let file = self.get(id)?;
        let _lock = self.inner.lock().map_err(|cause| self.inner.failed(cause))?;
        match std::fs::remove_file(self.inner.path(file.id())) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(self.inner.failed(err)),
            _ => File::open(&self.inner.folder)
                .and_then(|folder| folder.sync_all())
                .map_err(|cause| self.inner.failed(cause)),
        }
    }

    /// Counts a request to a profile's API at `now`, or says which limit it would break. Counted by where the API is, so
    /// that another id is no way around its limits.
    pub fn count_request(&self, profile: &Profile, now: i64) -> Result<Result<(), RateLimited>, ApisError> {
        let key = Place::of(&profile.base_url).key();
        let taken = self.inner.rates.take(&key, &profile.rate_limit, now);
        taken.map_err(|cause| self.inner.failed(cause))
    }

    /// Takes back the request that was counted at `now`: it was never sent.
    pub fn uncount_request(&self, profile: &Profile, now: i64) -> Result<(), ApisError> {
        let key = Place::of(&profile.base_url).key();
        self.inner.rates.give_back(&key, now).map_err(|cause| self.inner.failed(cause))
    }
}

impl ApiFile {
    pub fn id(&self) -> &str {
        match self {
            ApiFile::Profile(profile) => &profile.id,
            ApiFile::Broken(broken) => &broken.id,
        }
    }

    /// Where what it covers begins, as far as it can be told.
    fn base(&self) -> Option<Place> {
        match self {
            ApiFile::Profile(profile) => Some(Place::of(&profile.base_url)),
            ApiFile::Broken(broken) => broken.base_url.as_ref().map(Place::of),
        }
    }
}

impl Inner {
    /// Looks at every file, and reads those that are not as they were.
    fn refresh(&self, read: &mut BTreeMap<String, (FileVersion, ApiFile)>) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                read.clear();
                return Ok(());
            }
            entries => entries?,
        };
        let mut fresh = BTreeMap::new();
        for entry in entries {
            let path = entry?.path();
            let Some(id) = profile_name(&path) else { continue };
            if fresh.len() == MAX_PROFILES {
                return Err(io::Error::other("there are more than 1000 of them"));
            }
            let known = read.remove(&id);
            match load(&path, &id, known) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) => {
                    let broken = BrokenProfile::new(&id, "", &format!("cannot be read: {err}"));
                    let never = FileVersion { inode: 0, size: 0, modified: (0, 0), changed: (0, 0) };
                    fresh.insert(id, (never, ApiFile::Broken(broken)));
                }
                Ok(loaded) => {
                    fresh.insert(id, loaded);
                }
            }
        }
        *read = fresh;
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        let lock = File::open(&self.folder)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    fn failed(&self, cause: io::Error) -> ApisError {
        ApisError::Io { path: self.folder.clone(), cause }
    }
}

impl BrokenProfile {
    fn new(id: &str, path: &str, message: &str) -> Arc<BrokenProfile> {
        let problems = vec![Violation { path: path.to_owned(), message: message.to_owned() }];
        Arc::new(BrokenProfile { id: id.to_owned(), problems, base_url: None })
    }
}

/// The id a file's name stands for; `None` for what is no profile, such as a file in the making.
fn profile_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let id = name.strip_suffix(".json")?;
    (!id.starts_with('.')).then(|| id.to_owned())
}

fn load(path: &Path, id: &str, known: Option<(FileVersion, ApiFile)>) -> io::Result<(FileVersion, ApiFile)> {
    let file = open_file(path)?;
    let meta = file.metadata()?;
    let version = FileVersion {
        inode: meta.ino(),
        size: meta.len(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    };
    if let Some(known) = known.filter(|(known, _)| *known == version) {
        return Ok(known);
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    let parsed = match parse(id, &bytes) {
        Ok(profile) => ApiFile::Profile(Arc::new(profile)),
        Err(broken) => ApiFile::Broken(broken),
    };
    Ok((version, parsed))
}

fn parse(id: &str, bytes: &[u8]) -> Result<Profile, Arc<BrokenProfile>> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(BrokenProfile::new(id, "", "longer than 1 MiB"));
    }
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|err| BrokenProfile::new(id, "", &format!("not JSON: {err}")))?;
    let base_url = value.get("base_url").and_then(Value::as_str).and_then(|text| Url::parse(text).ok());
    let broken = |problems| Arc::new(BrokenProfile { id: id.to_owned(), problems, base_url });
    let named = |mut problems: Vec<Violation>, given: Option<&str>| {
        if !is_id(id) {
            problems.push(Violation {
                path: String::new(),
                message: format!("{id:?} is no id; rename the file"),
            });
        } else if given.is_some_and(|given| given != id) {
            let message = format!("the file is {id}.json, so the id must be {id:?}");
            problems.push(Violation { path: "id".into(), message });
        }
        problems
    };
    let given = value.get("id").and_then(Value::as_str).map(str::to_owned);
    match ProfileDraft::read_whole(value) {
        Err(problems) => Err(broken(named(problems, given.as_deref()))),
        Ok(profile) => match named(Vec::new(), given.as_deref()) {
            problems if problems.is_empty() => Ok(profile),
            problems => Err(broken(problems)),
        },
    }
}

impl DataDir {
    /// API profiles, `{id}.json` each.
    pub fn apis(&self) -> PathBuf {
        self.root().join("apis")
    }

    /// How often the APIs were called.
    fn api_requests(&self) -> PathBuf {
        self.root().join("api-requests")
    }
}

#[cfg(test)]
mod tests;
