//! [`Secrets`] stores values that tools send and never show, each with the hosts it may go to. The file is encrypted.
//!
//! This module does not know the host of a request. Code that attaches a secret checks [`Secret::hosts`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_tool::{SHORTEST_SECRET, SecretSource};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::DataDir;
use crate::data_dir::{FileVersion, open_file, replace_private};

mod reference;
mod seal;

pub use reference::{Reference, references};
use seal::KeyKind;
pub use seal::SHORTEST_MASTER_KEY;

pub const MAX_SECRET_BYTES: usize = 64 * 1024;
const MAX_NAME_BYTES: usize = 64;
const MAX_SECRETS: usize = 1_000;
const MAX_HOSTS: usize = 100;
/// The largest sealed file that is read. This program never writes a larger one.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// How often the file is checked for changes. Masking asks with every call, so a secret that another process stores
/// may be unknown for this long.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The secrets of a data directory. Cheap to clone; several processes may use them at once.
#[derive(Debug, Clone)]
pub struct Secrets {
    inner: Arc<Inner>,
}

struct Inner {
    data: DataDir,
    master_key: Option<String>,
    read: Mutex<Known>,
}

/// The secrets as last read, with the version of the file.
#[derive(Default)]
struct Known {
    version: Option<FileVersion>,
    looked: Option<Instant>,
    secrets: Arc<BTreeMap<String, Secret>>,
    values: Arc<[String]>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    value: String,
    /// Host names, addresses, `*.domain`.
    pub hosts: Vec<String>,
    /// Milliseconds since 1970.
    pub created: i64,
    pub changed: i64,
}

impl Secret {
    /// Returns the value, to be sent with one request.
    pub fn expose(&self) -> &str {
        &self.value
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("data", &self.data).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error("{0:?} cannot name a secret: 1 to 64 letters, digits, - and _, beginning with a letter")]
    BadName(String),
    #[error("the value of {name} {why}")]
    BadValue { name: String, why: &'static str },
    #[error("{name} has no hosts; a secret goes only to the hosts it is stored for")]
    NoHosts { name: String },
    #[error("there are {MAX_SECRETS} secrets already, or more than {MAX_HOSTS} hosts for one; remove some")]
    TooMany,
    #[error("cannot use the secrets in {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("cannot use the key file {}: {cause}", .path.display())]
    KeyFile { path: PathBuf, cause: io::Error },
    #[error("{} is damaged: its content differs from what was sealed", .path.display())]
    Damaged { path: PathBuf },
    #[error("{} was sealed by a newer Gantry (version {version})", .path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("{} was not sealed with the key file of this data directory, or it was changed", .path.display())]
    WrongKeyFile { path: PathBuf },
    #[error("{} was not sealed with this GANTRY_MASTER_KEY, or it was changed", .path.display())]
    WrongMasterKey { path: PathBuf },
    #[error("{} is sealed with a master key; set GANTRY_MASTER_KEY", .path.display())]
    NoMasterKey { path: PathBuf },
    #[error(
        "GANTRY_MASTER_KEY is shorter than {SHORTEST_MASTER_KEY} characters; `openssl rand -base64 32` makes a good one"
    )]
    ShortMasterKey,
    #[error("cannot get random bytes: {0}")]
    Random(io::Error),
    #[error("the secrets cannot be sealed")]
    Seal,
}

impl Secrets {
    /// Reads and creates nothing yet. Without a master key, a key file in the data directory is used.
    pub fn new(data: &DataDir, master_key: Option<String>) -> Secrets {
        Secrets { inner: Arc::new(Inner { data: data.clone(), master_key, read: Mutex::default() }) }
    }

    /// Stores a value with the hosts it may go to. Returns true when it replaced another value.
    pub fn set(&self, name: &str, value: &str, hosts: &[String], now: i64) -> Result<bool, SecretsError> {
        check_name(name)?;
        check_value(name, value)?;
        if hosts.is_empty() {
            return Err(SecretsError::NoHosts { name: name.to_owned() });
        }
        self.change(|secrets| {
            let created = secrets.get(name).map_or(now, |old| old.created);
            let secret = Secret { value: value.to_owned(), hosts: hosts.to_vec(), created, changed: now };
            if hosts.len() > MAX_HOSTS || (secrets.len() >= MAX_SECRETS && !secrets.contains_key(name)) {
                return Err(SecretsError::TooMany);
            }
            Ok(secrets.insert(name.to_owned(), secret).is_some())
        })
    }

    /// Returns true when the secret existed.
    pub fn remove(&self, name: &str) -> Result<bool, SecretsError> {
        self.change(|secrets| Ok(secrets.remove(name).is_some()))
    }

    /// Returns all secrets by name, as they are on disk now.
    pub fn all(&self) -> Result<Arc<BTreeMap<String, Secret>>, SecretsError> {
        let mut read = self.inner.read.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.refresh(&mut read)?;
        Ok(read.secrets.clone())
    }

    pub fn get(&self, name: &str) -> Result<Option<Secret>, SecretsError> {
        Ok(self.all()?.get(name).cloned())
    }

    /// Reads, changes and writes the file under a lock between processes.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Secret>) -> Result<T, SecretsError>,
    ) -> Result<T, SecretsError> {
        let inner = &self.inner;
        inner.data.create().map_err(|err| inner.failed(err.into()))?;
        let mut options = File::options();
        let lock = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(inner.data.secrets_lock()).map_err(|err| inner.failed(err))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|err| inner.failed(err.into()))?;
        let mut read = inner.read.lock().unwrap_or_else(PoisonError::into_inner);
        inner.refresh(&mut read)?;
        let mut secrets = (*read.secrets).clone();
        let changed = change(&mut secrets)?;
        if secrets != *read.secrets {
            inner.write(&secrets)?;
            inner.refresh(&mut read)?;
        }
        Ok(changed)
    }
}

impl SecretSource for Secrets {
    fn values(&self) -> Arc<[String]> {
        let mut read = self.inner.read.lock().unwrap_or_else(PoisonError::into_inner);
        // This process reads every secret through `all` before it sends it.
        if read.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            // A file that cannot be read cannot supply new secrets either, so the known values stay.
            let _ = self.inner.refresh(&mut read);
        }
        read.values.clone()
    }
}

impl Inner {
    fn refresh(&self, read: &mut Known) -> Result<(), SecretsError> {
        let path = self.data.secrets();
        read.looked = Some(Instant::now());
        // Usually the file is unchanged, and one metadata call is enough.
        if read.version.is_some()
            && read.version == std::fs::metadata(&path).ok().as_ref().map(FileVersion::of)
        {
            return Ok(());
        }
        let file = match open_file(&path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                *read = Known { looked: read.looked, ..Known::default() };
                return Ok(());
            }
            Err(err) => return Err(self.failed(err)),
        };
        let meta = file.metadata().map_err(|err| self.failed(err))?;
        let version = FileVersion::of(&meta);
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(|err| self.failed(err))?;
        let plain = seal::open(&path, &bytes, |kind| self.key(kind))?;
        let secrets: BTreeMap<String, Secret> =
            serde_json::from_slice(&plain).map_err(|_| SecretsError::Damaged { path: path.clone() })?;
        let mut values: Vec<String> = secrets.values().map(|secret| secret.value.clone()).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        *read = Known {
            version: Some(version),
            looked: read.looked,
            secrets: Arc::new(secrets),
            values: values.into(),
        };
        Ok(())
    }

    fn write(&self, secrets: &BTreeMap<String, Secret>) -> Result<(), SecretsError> {
        let kind = if self.master_key.is_some() { KeyKind::Master } else { KeyKind::File };
        let plain = serde_json::to_vec(secrets).map_err(|_| SecretsError::Seal)?;
        let key = match kind {
            KeyKind::File => seal::file_key(&self.data.secrets_key(), true)?,
            KeyKind::Master => self.key(kind)?,
        };
        let sealed = seal::seal(kind, &key, &plain)?;
        replace_private(&self.data.secrets(), &sealed).map_err(|err| self.failed(err))
    }

    fn key(&self, kind: KeyKind) -> Result<[u8; 32], SecretsError> {
        match (kind, &self.master_key) {
            (KeyKind::File, _) => seal::file_key(&self.data.secrets_key(), false),
            (KeyKind::Master, Some(words)) => seal::master_key(words),
            (KeyKind::Master, None) => Err(SecretsError::NoMasterKey { path: self.data.secrets() }),
        }
    }

    fn failed(&self, cause: io::Error) -> SecretsError {
        SecretsError::Io { path: self.data.secrets(), cause }
    }
}

fn check_name(name: &str) -> Result<(), SecretsError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if begins && name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(SecretsError::BadName(name.chars().take(MAX_NAME_BYTES).collect()))
}

fn check_value(name: &str, value: &str) -> Result<(), SecretsError> {
    let why = if value.len() < SHORTEST_SECRET {
        "is shorter than 8 characters: it could not be distinguished from other text when output is masked"
    } else if value.len() > MAX_SECRET_BYTES {
        "is longer than 64 KiB"
    } else if value.contains('\0') {
        "holds a NUL character"
    } else {
        return Ok(());
    };
    Err(SecretsError::BadValue { name: name.to_owned(), why })
}

impl DataDir {
    /// The sealed secrets.
    pub fn secrets(&self) -> PathBuf {
        self.root().join("secrets.sealed")
    }

    pub fn secrets_key(&self) -> PathBuf {
        self.root().join("secrets.key")
    }

    fn secrets_lock(&self) -> PathBuf {
        self.root().join("secrets.lock")
    }
}

#[cfg(test)]
mod tests;
