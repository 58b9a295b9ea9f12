//! Objects: agents' workspaces as keys and bytes, in a folder of the data directory or in an S3-compatible store.
//!
//! One interface, two homes. A put that returned is durable and was never half there. Keys look like paths, and there
//! are no directories: a folder exists as long as a key lies below it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::DataDir;
use crate::staged::Staged;

mod folder;
mod key;
mod mode;
mod s3;

use folder::{Folder, FolderReader};
pub use key::{check_key, content_type};
pub use s3::S3Config;
use s3::{S3, S3Reader};

/// A listing names at most so many keys.
pub const MAX_LISTED: usize = 100_000;

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Objects {
    home: Home,
}

#[derive(Debug, Clone)]
enum Home {
    Folder(Arc<Folder>),
    S3(Arc<S3>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    pub key: String,
    pub size: u64,
    /// Milliseconds since 1970.
    pub modified: i64,
    pub content_type: String,
    /// Another one means other content.
    pub etag: String,
    /// The permission bits of the file it was before it came here, if they are known.
    pub mode: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub info: ObjectInfo,
    pub bytes: Bytes,
}

/// What lies directly below a prefix, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectListing {
    pub objects: Vec<ListedObject>,
    /// Prefixes that hold more, each with its final slash. Empty when everything below was asked for.
    pub prefixes: Vec<String>,
    /// There is more than [`MAX_LISTED`].
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    /// Milliseconds since 1970.
    pub modified: i64,
}

/// How far a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    One,
    All,
}

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("{0}")]
    BadKey(String),
    #[error("there is no object {key:?}")]
    NotFound { key: String },
    /// Part of the key is an object itself, or objects lie below it.
    #[error("{key:?} cannot be an object: {why}")]
    Conflict { key: String, why: String },
    #[error("the object {key:?} has {size} bytes, at most {limit} can be read at once")]
    TooLarge { key: String, size: u64, limit: u64 },
    #[error("the object {key:?} was changed by somebody else meanwhile")]
    Changed { key: String },
    #[error("cannot {doing} the object {key:?}: {cause}")]
    Io { doing: &'static str, key: String, cause: std::io::Error },
    #[error("cannot {doing} the object {key:?}: the store says: {cause}")]
    Store { doing: &'static str, key: String, cause: Box<object_store::Error> },
    #[error("the object store is not set up well: {0}")]
    Config(String),
}

impl ObjectError {
    /// The store does not answer now, or says itself that it cannot: later it may.
    pub fn is_passing(&self) -> bool {
        let ObjectError::Store { cause, .. } = self else { return false };
        let mut link: Option<&(dyn std::error::Error + 'static)> = Some(&**cause);
        while let Some(error) = link {
            if error.is::<object_store::client::HttpError>() {
                return true;
            }
            link = error.source();
        }
        // The status is told in words only.
        let text = cause.to_string();
        matches!(**cause, object_store::Error::Generic { .. })
            && ["status code: 5", "status code: 429"].iter().any(|status| text.contains(status))
    }
}

/// Reads an object block by block; always the version that was opened.
#[derive(Debug)]
pub struct ObjectReader {
    pub info: ObjectInfo,
    inner: ReaderInner,
}

#[derive(Debug)]
enum ReaderInner {
    Folder(FolderReader),
    S3(S3Reader),
}

impl ObjectReader {
    /// The next block of at most a mebibyte or what the store sends at once; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        match &mut self.inner {
            ReaderInner::Folder(reader) => reader.next().await,
            ReaderInner::S3(reader) => reader.next().await,
        }
    }
}

impl Objects {
    /// Objects in a folder of the data directory, which is made when the first one is put.
    pub fn folder(data: &DataDir) -> Objects {
        Objects { home: Home::Folder(Arc::new(Folder::new(data.objects()))) }
    }

    /// Objects in a bucket.
    pub fn s3(config: S3Config) -> Result<Objects, ObjectError> {
        Ok(Objects { home: Home::S3(Arc::new(S3::new(config)?)) })
    }

    /// Where the objects are, in words that hold no secret.
    pub fn place(&self) -> String {
        match &self.home {
            Home::Folder(folder) => folder.root().display().to_string(),
            Home::S3(s3) => s3.place().to_owned(),
        }
    }

    pub async fn head(&self, key: &str) -> Result<Option<ObjectInfo>, ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => in_folder(folder, key, |folder, key| folder.head(key)).await,
            Home::S3(s3) => s3.head(key).await,
        }
    }

    /// The whole object, if it has at most `limit` bytes.
    pub async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => in_folder(folder, key, move |folder, key| folder.get(key, limit)).await,
            Home::S3(s3) => s3.get(key, limit).await,
        }
    }

    /// Opens an object to be read from an offset on. With the `etag` of an earlier look, another version is
    /// [`ObjectError::Changed`].
    pub async fn open(
        &self,
        key: &str,
        offset: u64,
        etag: Option<&str>,
    ) -> Result<Option<ObjectReader>, ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => {
                let etag = etag.map(str::to_owned);
                in_folder(folder, key, move |folder, key| folder.open(key, offset, etag.as_deref())).await
            }
            Home::S3(s3) => s3.open(key, offset, etag).await,
        }
    }

    /// Makes or replaces an object. The mode of one that is replaced stays.
    pub async fn put(
        &self,
        key: &str,
        bytes: impl Into<Bytes>,
        content_type: &str,
    ) -> Result<(), ObjectError> {
        check_key(key)?;
        let bytes = bytes.into();
        match &self.home {
            Home::Folder(folder) => in_folder(folder, key, move |folder, key| folder.put(key, &bytes)).await,
            Home::S3(s3) => s3.put(key, bytes, content_type).await,
        }
    }

    /// Makes or replaces an object by a staged file of any size, which is gone afterwards. When it fails, the file stays.
    /// The mode is kept beside it, where the file system of a folder can. On the way into a bucket `moved` hears of each part that
    /// is there; the next try goes on after those.
    pub async fn put_staged(
        &self,
        key: &str,
        staged: Staged,
        content_type: &str,
        mode: Option<u32>,
        moved: &(dyn Fn() + Send + Sync),
    ) -> Result<(), ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => {
                in_folder(folder, key, move |folder, key| folder.put_staged(key, &staged, mode)).await
            }
            Home::S3(s3) => s3.put_staged(key, staged, content_type, mode, moved).await,
        }
    }

    /// Removes a staged file, and what of it lies in a bucket already. When that fails, the file stays, to be tried again.
    pub async fn discard_staged(&self, staged: Staged) -> Result<(), ObjectError> {
        if let Home::S3(s3) = &self.home {
            s3.discard_staged(&staged.id(), &staged).await?;
        }
        let key = staged.id();
        staged.discard().map_err(|cause| ObjectError::Io { doing: "remove the staged file of", key, cause })
    }

    /// Changes an object as one step: `change` gets what is there and says what to put. It may be asked again when somebody else
    /// was faster. Its own error changes nothing and is the inner one of the result. The object's mode stays.
    pub async fn update<T: Send + 'static, E: Send + 'static>(
        &self,
        key: &str,
        limit: u64,
        content_type: &str,
        mut change: impl FnMut(Option<Object>) -> Result<(Vec<u8>, T), E> + Send + 'static,
    ) -> Result<Result<T, E>, ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => {
                in_folder(folder, key, move |folder, key| folder.update(key, limit, &mut change)).await
            }
            Home::S3(s3) => s3.update(key, limit, content_type, &mut change).await,
        }
    }

    /// Removes an object; `false` if there was none.
    pub async fn delete(&self, key: &str) -> Result<bool, ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => in_folder(folder, key, |folder, key| folder.delete(key)).await,
            Home::S3(s3) => s3.delete(key).await,
        }
    }

    /// Copies an object inside the store, with its mode; returns its size.
    pub async fn copy(&self, from: &str, to: &str) -> Result<u64, ObjectError> {
        check_key(from)?;
        check_key(to)?;
        match &self.home {
            Home::Folder(folder) => {
                let to = to.to_owned();
                in_folder(folder, from, move |folder, from| folder.copy(from, &to)).await
            }
            Home::S3(s3) => s3.copy(from, to).await,
        }
    }

    /// What lies below a prefix: `""`, or one that ends with a slash. A prefix without objects has an empty listing.
    pub async fn list(&self, prefix: &str, depth: Depth) -> Result<ObjectListing, ObjectError> {
        if !prefix.is_empty() {
            let folder = prefix.strip_suffix('/').ok_or_else(|| {
                ObjectError::BadKey(format!("the prefix {prefix:?} does not end with a slash"))
            })?;
            check_key(folder)?;
        }
        match &self.home {
            Home::Folder(folder) => {
                in_folder(folder, prefix, move |folder, key| folder.list(key, depth)).await
            }
            Home::S3(s3) => s3.list(prefix, depth).await,
        }
    }
}

/// Runs file work off the asynchronous threads.
async fn in_folder<T: Send + 'static>(
    folder: &Arc<Folder>,
    key: &str,
    work: impl FnOnce(&Folder, &str) -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, ObjectError> {
    let (folder, owned) = (Arc::clone(folder), key.to_owned());
    let done = tokio::task::spawn_blocking(move || work(&folder, &owned)).await;
    done.unwrap_or_else(|err| {
        Err(ObjectError::Io { doing: "work on", key: key.to_owned(), cause: std::io::Error::other(err) })
    })
}

impl DataDir {
    /// Objects, when they are kept in a folder.
    pub fn objects(&self) -> PathBuf {
        self.root().join("objects")
    }
}

impl ObjectListing {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.prefixes.is_empty()
    }
}
