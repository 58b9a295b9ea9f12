//! [`Objects`] stores agents' files as keys and bytes, in a folder of the data directory or in an S3-compatible bucket.
//!
//! A put is durable when it returns, and readers never see a part of it. Keys look like paths, but there are no
//! directories: a folder exists as long as a key below it exists.

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

/// The most keys in one listing.
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
    /// Changes with the content.
    pub etag: String,
    /// The permission bits of the original file, if they are known.
    pub mode: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub info: ObjectInfo,
    pub bytes: Bytes,
}

/// The objects and prefixes directly below a prefix, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectListing {
    pub objects: Vec<ListedObject>,
    /// Prefixes with further objects, each with its final slash. Empty for a recursive listing.
    pub prefixes: Vec<String>,
    /// Whether there are more than [`MAX_LISTED`].
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    /// Milliseconds since 1970.
    pub modified: i64,
}

/// The depth of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    One,
    All,
}

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("{0}")]
    BadKey(String),
    #[error("no such object: {key:?}")]
    NotFound { key: String },
    /// A prefix of the key is an object, or objects exist below the key.
    #[error("{key:?} cannot be an object: {why}")]
    Conflict { key: String, why: String },
    #[error("the object {key:?} has {size} bytes, at most {limit} can be read at once")]
    TooLarge { key: String, size: u64, limit: u64 },
    #[error("the object {key:?} was changed by another writer in the meantime")]
    Changed { key: String },
    #[error("cannot {doing} the object {key:?}: {cause}")]
    Io { doing: &'static str, key: String, cause: std::io::Error },
    #[error("cannot {doing} the object {key:?}: the store reported: {cause}")]
    Store { doing: &'static str, key: String, cause: Box<object_store::Error> },
    #[error("the object store is not set up well: {0}")]
    Config(String),
}

impl ObjectError {
    /// The store does not answer or reports that it is unavailable. A retry may succeed.
    pub fn is_passing(&self) -> bool {
        let ObjectError::Store { cause, .. } = self else { return false };
        let mut link: Option<&(dyn std::error::Error + 'static)> = Some(&**cause);
        while let Some(error) = link {
            if error.is::<object_store::client::HttpError>() {
                return true;
            }
            link = error.source();
        }
        // The error has the status only as text.
        let text = cause.to_string();
        matches!(**cause, object_store::Error::Generic { .. })
            && ["status code: 5", "status code: 429"].iter().any(|status| text.contains(status))
    }
}

/// Reads an object block by block, always in the version that was opened.
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
    /// Returns the next block of at most one mebibyte or one chunk from the store; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        match &mut self.inner {
            ReaderInner::Folder(reader) => reader.next().await,
            ReaderInner::S3(reader) => reader.next().await,
        }
    }
}

impl Objects {
    /// Stores objects in a folder of the data directory, which is created with the first object.
    pub fn folder(data: &DataDir) -> Objects {
        Objects { home: Home::Folder(Arc::new(Folder::new(data.objects()))) }
    }

    /// Stores objects in a bucket.
    pub fn s3(config: S3Config) -> Result<Objects, ObjectError> {
        Ok(Objects { home: Home::S3(Arc::new(S3::new(config)?)) })
    }

    /// Describes where the objects are stored, without secrets.
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

    /// Returns the whole object if it has at most `limit` bytes.
    pub async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        check_key(key)?;
        match &self.home {
            Home::Folder(folder) => in_folder(folder, key, move |folder, key| folder.get(key, limit)).await,
            Home::S3(s3) => s3.get(key, limit).await,
        }
    }

    /// Opens an object for reading from an offset. If `etag` is given and the object has another version, the result is
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

    /// Creates or replaces an object. A replaced object keeps its mode.
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

    /// Creates or replaces an object from a staged file of any size, and removes the file. On failure the file stays.
    /// The mode is stored with the object, if a folder's file system supports that. `moved` is called for each uploaded
    /// part; a retry continues after those parts.
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

    /// Removes a staged file and its uploaded parts. On failure the file stays, so that this can be retried.
    pub async fn discard_staged(&self, staged: Staged) -> Result<(), ObjectError> {
        if let Home::S3(s3) = &self.home {
            s3.discard_staged(&staged.id(), &staged).await?;
        }
        let key = staged.id();
        staged.discard().map_err(|cause| ObjectError::Io { doing: "remove the staged file of", key, cause })
    }

    /// Changes an object atomically: `change` gets the current content and returns the new one. It may be called again
    /// after a concurrent change. If it returns an error, nothing changes and the inner result has the error. The object
    /// keeps its mode.
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

    /// Copies an object inside the store with its mode. Returns its size.
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

    /// Lists the objects below a prefix, which is `""` or ends with a slash. An unused prefix has an empty listing.
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

/// Runs file work on a blocking thread.
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
    /// The folder of the object store.
    pub fn objects(&self) -> PathBuf {
        self.root().join("objects")
    }
}

impl ObjectListing {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.prefixes.is_empty()
    }
}
