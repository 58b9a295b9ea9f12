//! [`Apis`] keeps API profiles on disk, one JSON file each, and reads a file again when anybody
//! changed it.
//!
//! A broken file is never skipped silently: it is listed, and requests that it would cover are
//! refused.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_store::{DataDir, FileVersion, PrivateFolder};
use gantry_tool::{Violation, nearest};
use serde_json::Value;
use url::Url;

use crate::normalized_url::NormalizedUrl;
use crate::profile::{Profile, ProfileDraft, is_id};
use crate::rates::{RateLimited, Rates};

/// Holds the profiles, `{id}.json` each.
const PROFILES_FOLDER: &str = "apis";
/// Holds the times of requests, one file per base URL.
const REQUESTS_FOLDER: &str = "api-requests";
const MAX_PROFILES: usize = 1_000;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The API profiles of a data directory. Cheap to clone; several processes may use them at once.
#[derive(Debug, Clone)]
pub struct Apis {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PrivateFolder,
    rates: Rates,
    cache: Mutex<Cache>,
}

/// The files as they were last read, by id. A file that could not be read has no version, so it is
/// tried again the next time.
type Cache = BTreeMap<String, (Option<FileVersion>, ApiFile)>;

/// One file: a profile, or its errors.
#[derive(Debug, Clone)]
pub enum ApiFile {
    Profile(Arc<Profile>),
    Broken(Arc<BrokenProfile>),
}

#[derive(Debug)]
pub struct BrokenProfile {
    pub id: String,
    pub problems: Vec<Violation>,
    /// Known if the file holds a `base_url` that can be parsed.
    base_url: Option<Url>,
}

/// `Covering` says which profile applies to a request, or why none does.
#[derive(Debug, Clone)]
pub enum Covering {
    Profile(Arc<Profile>),
    /// The file that covers the request is broken.
    Broken(Arc<BrokenProfile>),
    /// Files with these ids have the same base URL, so the choice is ambiguous.
    Twice(Vec<String>),
    /// A profile covers this URL under the other scheme, http or https.
    OtherScheme(Arc<Profile>),
    /// Servers disagree on how to read the path, and one reading may lead to what this file covers.
    Unclear {
        id: String,
    },
    /// No readable profile covers the request, and this broken file may: its base URL is unknown.
    Hidden(Arc<BrokenProfile>),
    /// None of the `profiles` files covers the request.
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
    #[error("the API profile \"{id}\" already exists")]
    Exists { id: String },
    #[error("the API profile \"{id}\" has the same base_url; change that one, or remove it first")]
    SameBase { id: String },
    #[error("unknown API profile \"{id}\"{}", did_you_mean(near.as_deref()))]
    Unknown { id: String, near: Option<String> },
    #[error("the API profile{} is invalid{}", quoted(id), bullet_list(problems))]
    Invalid { id: String, problems: Vec<Violation> },
    #[error("there are already {MAX_PROFILES} API profiles; remove one first")]
    TooMany,
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default()
}

fn quoted(id: &str) -> String {
    if id.is_empty() { String::new() } else { format!(" \"{id}\"") }
}

fn bullet_list(problems: &[Violation]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

impl Apis {
    pub fn new(data: &DataDir) -> Apis {
        let folder = data.private_folder(PROFILES_FOLDER);
        let rates = Rates::new(data.private_folder(REQUESTS_FOLDER));
        Apis { inner: Arc::new(Inner { folder, rates, cache: Mutex::default() }) }
    }

    /// Returns every file, ordered by id, as it is on disk now.
    pub fn list(&self) -> Result<Vec<ApiFile>, ApisError> {
        let mut cache = self.inner.cache.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.refresh(&mut cache).map_err(|cause| self.inner.failed(cause))?;
        Ok(cache.values().map(|(_, file)| file.clone()).collect())
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

    /// Finds the profile that covers a request to `url`. If several do, the longest base path wins.
    pub fn covering(&self, url: &Url) -> Result<Covering, ApisError> {
        let files = self.list()?;
        let target = NormalizedUrl::of(url);
        if target.is_ambiguous()
            && let Some(file) =
                files.iter().find(|file| file.base().is_some_and(|base| base.same_origin(&target)))
        {
            return Ok(Covering::Unclear { id: file.id().to_owned() });
        }
        let covering: Vec<(usize, &ApiFile)> = files
            .iter()
            .filter_map(|file| Some((file.base().filter(|base| target.is_below(base))?.depth(), file)))
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

    /// Writes a profile. It applies from the next request on.
    pub fn save(&self, profile: &Profile, saving: Saving) -> Result<(), ApisError> {
        let inner = &self.inner;
        let failed = |cause| inner.failed(cause);
        inner.folder.create().map_err(failed)?;
        let _lock = inner.folder.lock().map_err(failed)?;
        let files = self.list()?;
        let exists = files.iter().any(|file| file.id() == profile.id);
        match saving {
            Saving::New if exists => return Err(ApisError::Exists { id: profile.id.clone() }),
            Saving::New if files.len() >= MAX_PROFILES => return Err(ApisError::TooMany),
            Saving::Changed if !exists => {
                return Err(ApisError::Unknown { id: profile.id.clone(), near: None });
            }
            Saving::New | Saving::Changed => {}
        }
        let base = Some(NormalizedUrl::of(&profile.base_url));
        let same = files.iter().find(|file| file.id() != profile.id && file.base() == base);
        if let Some(same) = same {
            return Err(ApisError::SameBase { id: same.id().to_owned() });
        }
        let mut text = serde_json::to_string_pretty(&profile.draft).map_err(|err| failed(err.into()))?;
        text.push('\n');
        inner.folder.replace(file_name(&profile.id), text.as_bytes()).map_err(failed)
    }

    /// Removes a profile, broken or not; from then on it covers nothing. The count of requests
    /// stays, so that removing and adding a profile does not reset its rate limits.
    pub fn remove(&self, id: &str) -> Result<(), ApisError> {
        let file = self.get(id)?;
        let failed = |cause| self.inner.failed(cause);
        let _lock = self.inner.folder.lock().map_err(failed)?;
        self.inner.folder.remove(file_name(file.id())).map_err(failed)
    }

    /// Counts a request to a profile's API at `now`, or returns the limit that it would exceed.
    /// Requests are counted per base URL, so that a second profile for the same API does not get a
    /// second quota.
    pub fn count_request(&self, profile: &Profile, now: i64) -> Result<Result<(), RateLimited>, ApisError> {
        let key = NormalizedUrl::of(&profile.base_url).key();
        let taken = self.inner.rates.take(&key, &profile.rate_limit, now);
        taken.map_err(|cause| self.inner.failed(cause))
    }

    /// Removes the request that was counted at `now`, because it was never sent.
    pub fn uncount_request(&self, profile: &Profile, now: i64) -> Result<(), ApisError> {
        let key = NormalizedUrl::of(&profile.base_url).key();
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

    /// The base URL, if it is known.
    fn base(&self) -> Option<NormalizedUrl> {
        match self {
            ApiFile::Profile(profile) => Some(NormalizedUrl::of(&profile.base_url)),
            ApiFile::Broken(broken) => broken.base_url.as_ref().map(NormalizedUrl::of),
        }
    }
}

impl Inner {
    /// Checks every file and reads those that have changed.
    fn refresh(&self, cache: &mut Cache) -> io::Result<()> {
        let names = match self.folder.names() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                cache.clear();
                return Ok(());
            }
            names => names?,
        };
        let mut fresh = BTreeMap::new();
        for name in names {
            let name = name?;
            let Some(id) = profile_id(&name) else { continue };
            if fresh.len() == MAX_PROFILES {
                return Err(io::Error::other("there are more than 1000 files"));
            }
            let known = cache.remove(&id);
            match self.load(&name, &id, known) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) => {
                    let broken = BrokenProfile::new(&id, "", &format!("cannot be read: {err}"));
                    fresh.insert(id, (None, ApiFile::Broken(broken)));
                }
                Ok(loaded) => {
                    fresh.insert(id, loaded);
                }
            }
        }
        *cache = fresh;
        Ok(())
    }

    fn load(
        &self,
        name: &OsStr,
        id: &str,
        known: Option<(Option<FileVersion>, ApiFile)>,
    ) -> io::Result<(Option<FileVersion>, ApiFile)> {
        let file = self.folder.open(name)?;
        let version = Some(FileVersion::of(&file.metadata()?));
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

    fn failed(&self, cause: io::Error) -> ApisError {
        ApisError::Io { path: self.folder.path().to_owned(), cause }
    }
}

impl BrokenProfile {
    fn new(id: &str, path: &str, message: &str) -> Arc<BrokenProfile> {
        let problems = vec![Violation { path: path.to_owned(), message: message.to_owned() }];
        Arc::new(BrokenProfile { id: id.to_owned(), problems, base_url: None })
    }
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// The profile id in a file name. Returns `None` for files that hold no profile, such as temporary
/// files.
fn profile_id(name: &OsStr) -> Option<String> {
    let name = name.to_string_lossy();
    let id = name.strip_suffix(".json")?;
    (!id.starts_with('.')).then(|| id.to_owned())
}

fn parse(id: &str, bytes: &[u8]) -> Result<Profile, Arc<BrokenProfile>> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(BrokenProfile::new(id, "", "has more than 1 MiB"));
    }
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|err| BrokenProfile::new(id, "", &format!("not JSON: {err}")))?;
    let base_url = value.get("base_url").and_then(Value::as_str).and_then(|text| Url::parse(text).ok());
    let broken = |problems| Arc::new(BrokenProfile { id: id.to_owned(), problems, base_url });
    let check_file_name = |mut problems: Vec<Violation>, given: Option<&str>| {
        if !is_id(id) {
            problems.push(Violation {
                path: String::new(),
                message: format!("{id:?} is not a valid id; rename the file"),
            });
        } else if given.is_some_and(|given| given != id) {
            let message = format!("the file is {id}.json, so the id must be {id:?}");
            problems.push(Violation { path: "id".into(), message });
        }
        problems
    };
    let given = value.get("id").and_then(Value::as_str).map(str::to_owned);
    match ProfileDraft::read_whole(value) {
        Err(problems) => Err(broken(check_file_name(problems, given.as_deref()))),
        Ok(profile) => match check_file_name(Vec::new(), given.as_deref()) {
            problems if problems.is_empty() => Ok(profile),
            problems => Err(broken(problems)),
        },
    }
}

#[cfg(test)]
mod tests;
