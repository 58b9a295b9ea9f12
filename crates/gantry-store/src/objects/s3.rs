//! Objects in a bucket of an S3-compatible store. Large objects are uploaded in parts; changes compare etags.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientOptions, Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, RetryConfig, UpdateVersion, WriteMultipart,
};

use super::{
    Depth, ListedObject, MAX_LISTED, Object, ObjectError, ObjectInfo, ObjectListing, ObjectReader,
    ReaderInner, content_type, mode,
};
use crate::staged::Staged;

mod upload;

use upload::read_block;

/// The part size of a large object. S3 requires at least 5 MiB per part and at most 10,000 parts.
const PART: usize = 8 << 20;
const MAX_PARTS: u64 = 9_000;
const PARTS_AT_ONCE: usize = 3;
/// The largest object that the store copies itself. Larger ones are downloaded and uploaded.
const MAX_SERVER_COPY: u64 = 5 << 30;
/// How often a change is retried after a concurrent change.
const UPDATE_TRIES: usize = 8;
/// Enough locks that two busy keys rarely share one.
const LOCKS: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout between two bytes. The total time of a body is not limited.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_FOR: Duration = Duration::from_secs(60);

/// The address and credentials of a bucket.
#[derive(Clone, Default)]
pub struct S3Config {
    /// `https://…`; AWS itself when left out.
    pub endpoint: Option<String>,
    pub bucket: String,
    pub region: Option<String>,
    /// The prefix of every key.
    pub prefix: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: String,
}

impl fmt::Debug for S3Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("S3Config").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

pub(super) struct S3 {
    store: Arc<AmazonS3>,
    /// Serialises changes of this process, so that they do not conflict with each other.
    locks: Vec<tokio::sync::Mutex<()>>,
    prefix: String,
    place: String,
}

impl fmt::Debug for S3 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("S3").field(&self.place).finish()
    }
}

pub(super) struct S3Reader {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    key: String,
}

impl fmt::Debug for S3Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("S3Reader").field(&self.key).finish()
    }
}

impl S3Reader {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        self.stream.next().await.transpose().map_err(store_error("read", &self.key))
    }
}

impl S3 {
    pub(super) fn new(config: S3Config) -> Result<S3, ObjectError> {
        let bad = |why: &str| ObjectError::Config(why.to_owned());
        if config.bucket.is_empty() {
            return Err(bad("storage.bucket is missing"));
        }
        if config.access_key_id.is_empty() || config.secret_access_key.is_empty() {
            return Err(bad("storage.accessKeyId and storage.secretAccessKey are needed"));
        }
        let prefix = config.prefix.unwrap_or_default().trim_matches('/').to_owned();
        if !prefix.is_empty() {
            super::check_key(&prefix)?;
        }
        let options = ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT)
            .with_allow_http(config.endpoint.as_deref().is_some_and(|url| url.starts_with("http://")));
        let retry = RetryConfig { max_retries: 5, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&config.bucket)
            .with_region(config.region.as_deref().unwrap_or("us-east-1"))
            .with_access_key_id(config.access_key_id)
            .with_secret_access_key(config.secret_access_key)
            .with_client_options(options)
            .with_retry(retry);
        let mut place = format!("s3://{}", config.bucket);
        if let Some(endpoint) = config.endpoint {
            place = format!("{}/{}", endpoint.trim_end_matches('/'), config.bucket);
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|err| ObjectError::Config(err.to_string()))?;
        Ok(S3 {
            store: Arc::new(store),
            locks: (0..LOCKS).map(|_| Default::default()).collect(),
            prefix,
            place,
        })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) async fn head(&self, key: &str) -> Result<Option<ObjectInfo>, ObjectError> {
        let found = self.store.get_opts(&self.path(key)?, just_look()).await;
        Ok(found_or_none("look at", key, found)?.map(|result| info(key, &result)))
    }

    pub(super) async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        let found = self.store.get_opts(&self.path(key)?, GetOptions::default()).await;
        let Some(result) = found_or_none("read", key, found)? else { return Ok(None) };
        let info = info(key, &result);
        if info.size > limit {
            return Err(ObjectError::TooLarge { key: key.to_owned(), size: info.size, limit });
        }
        let bytes = result.bytes().await.map_err(store_error("read", key))?;
        Ok(Some(Object { info, bytes }))
    }

    pub(super) async fn open(
        &self,
        key: &str,
        offset: u64,
        etag: Option<&str>,
    ) -> Result<Option<ObjectReader>, ObjectError> {
        let Some(known) = self.head(key).await? else { return Ok(None) };
        if etag.is_some_and(|etag| etag != known.etag) {
            return Err(ObjectError::Changed { key: key.to_owned() });
        }
        let key = key.to_owned();
        if offset >= known.size {
            let inner = ReaderInner::S3(S3Reader { stream: futures_util::stream::empty().boxed(), key });
            return Ok(Some(ObjectReader { info: known, inner }));
        }
        let options = GetOptions {
            range: (offset > 0).then_some(GetRange::Offset(offset)),
            if_match: Some(known.etag.clone()),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&self.path(&key)?, options).await;
        let Some(result) = found_or_none("read", &key, found)? else { return Ok(None) };
        let inner = ReaderInner::S3(S3Reader { stream: result.into_stream(), key });
        Ok(Some(ObjectReader { info: known, inner }))
    }

    pub(super) async fn put(&self, key: &str, bytes: Bytes, content_type: &str) -> Result<(), ObjectError> {
        let _lock = self.lock(key).await;
        let replaced = self.store.get_opts(&self.path(key)?, just_look()).await;
        let replaced = found_or_none("write", key, replaced)?;
        let mode = replaced.and_then(|replaced| info(key, &replaced).mode);
        let attributes = attributes(content_type, mode);
        self.put_if(key, bytes, attributes, PutMode::Overwrite).await.map_err(store_error("write", key))
    }

    async fn put_if(
        &self,
        key: &str,
        bytes: Bytes,
        attributes: Attributes,
        mode: PutMode,
    ) -> Result<(), Error> {
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        self.store.put_opts(&self.parsed(key)?, bytes.into(), options).await.map(drop)
    }

    pub(super) async fn put_staged(
        &self,
        key: &str,
        staged: Staged,
        content_type: &str,
        mode: Option<u32>,
        moved: &(dyn Fn() + Send + Sync),
    ) -> Result<(), ObjectError> {
        let staged = Arc::new(staged);
        if staged.length() > PART as u64 {
            self.upload_staged(key, &staged, content_type, mode, moved).await?;
        } else {
            let whole = read_block(key, &staged, 0, staged.length()).await?;
            let _lock = self.lock(key).await;
            let put = self.put_if(key, whole, attributes(content_type, mode), PutMode::Overwrite).await;
            put.map_err(store_error("write", key))?;
        }
        std::fs::remove_file(staged.path()).map_err(|cause| ObjectError::Io {
            doing: "remove the staged file of",
            key: key.to_owned(),
            cause,
        })
    }

    pub(super) async fn discard_staged(&self, key: &str, staged: &Staged) -> Result<(), ObjectError> {
        self.abort_upload(key, staged).await
    }

    /// Uploads an object while it is read. A failure leaves no parts in the bucket.
    async fn upload(
        &self,
        key: &str,
        size: u64,
        attributes: Attributes,
        mut reader: ObjectReader,
    ) -> Result<(), ObjectError> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = self.store.put_multipart_opts(&self.path(key)?, options).await;
        let part = usize::try_from(size.div_ceil(MAX_PARTS)).unwrap_or(usize::MAX).max(PART);
        let mut writer =
            WriteMultipart::new_with_chunk_size(upload.map_err(store_error("write", key))?, part);
        let sent = async {
            while let Some(block) = reader.next().await? {
                writer.wait_for_capacity(PARTS_AT_ONCE).await.map_err(store_error("write", key))?;
                writer.put(block);
            }
            Ok(())
        };
        match sent.await {
            Ok(()) => writer.finish().await.map(drop).map_err(store_error("write", key)),
            Err(err) => {
                // Uploaded parts cost money until they are removed. The first error is the one to report.
                let _ = writer.abort().await;
                Err(err)
            }
        }
    }

    pub(super) async fn update<T, E>(
        &self,
        key: &str,
        limit: u64,
        content_type: &str,
        change: &mut impl FnMut(Option<Object>) -> Result<(Vec<u8>, T), E>,
    ) -> Result<Result<T, E>, ObjectError> {
        let _lock = self.lock(key).await;
        for _ in 0..UPDATE_TRIES {
            let found = self.get(key, limit).await?;
            let replaced = found.as_ref().and_then(|object| object.info.mode);
            let mode = match &found {
                Some(object) => {
                    PutMode::Update(UpdateVersion { e_tag: Some(object.info.etag.clone()), version: None })
                }
                None => PutMode::Create,
            };
            let (bytes, result) = match change(found) {
                Ok(changed) => changed,
                Err(err) => return Ok(Err(err)),
            };
            match self.put_if(key, bytes.into(), attributes(content_type, replaced), mode).await {
                Ok(()) => return Ok(Ok(result)),
                // The object was changed or removed concurrently.
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. }) => {}
                Err(err) => return Err(store_error("write", key)(err)),
            }
        }
        Err(ObjectError::Changed { key: key.to_owned() })
    }

    pub(super) async fn delete(&self, key: &str) -> Result<bool, ObjectError> {
        // The store's answer does not say whether the object existed.
        if self.head(key).await?.is_none() {
            return Ok(false);
        }
        self.store.delete(&self.path(key)?).await.map(|()| true).map_err(store_error("delete", key))
    }

    pub(super) async fn copy(&self, from: &str, to: &str) -> Result<u64, ObjectError> {
        let missing = || ObjectError::NotFound { key: from.to_owned() };
        let info = self.head(from).await?.ok_or_else(missing)?;
        if info.size <= MAX_SERVER_COPY {
            let copied = self.store.copy(&self.path(from)?, &self.path(to)?).await;
            return match copied {
                Err(Error::NotFound { .. }) => Err(missing()),
                copied => copied.map(|()| info.size).map_err(store_error("copy", to)),
            };
        }
        let reader = self.open(from, 0, Some(&info.etag)).await?.ok_or_else(missing)?;
        let attributes = attributes(&info.content_type, info.mode);
        self.upload(to, info.size, attributes, reader).await?;
        Ok(info.size)
    }

    pub(super) async fn list(&self, prefix: &str, depth: Depth) -> Result<ObjectListing, ObjectError> {
        let failed = store_error("list", prefix);
        let below = format!("{}{prefix}", self.before());
        let path = Path::parse(below.trim_end_matches('/')).map_err(|err| failed(err.into()))?;
        let path = Some(&path).filter(|path| !path.as_ref().is_empty());
        let mut listing = ObjectListing::default();
        match depth {
            Depth::One => {
                let found = self.store.list_with_delimiter(path).await.map_err(&failed)?;
                listing.objects.extend(found.objects.iter().filter_map(|meta| self.listed(meta)));
                let prefixes = found.common_prefixes.iter();
                listing
                    .prefixes
                    .extend(prefixes.filter_map(|path| self.key(path)).map(|key| format!("{key}/")));
            }
            Depth::All => {
                let mut found = self.store.list(path);
                while let Some(meta) = found.next().await {
                    listing.objects.extend(self.listed(&meta.map_err(&failed)?));
                    if listing.objects.len() > MAX_LISTED {
                        break;
                    }
                }
            }
        }
        listing.objects.sort_by(|one, other| one.key.cmp(&other.key));
        listing.prefixes.sort();
        listing.truncated = listing.objects.len() > MAX_LISTED || listing.prefixes.len() > MAX_LISTED;
        listing.objects.truncate(MAX_LISTED);
        listing.prefixes.truncate(MAX_LISTED);
        Ok(listing)
    }

    async fn lock(&self, key: &str) -> tokio::sync::MutexGuard<'_, ()> {
        let number = usize::from(blake3::hash(key.as_bytes()).as_bytes()[0]) % LOCKS;
        self.locks[number].lock().await
    }

    fn listed(&self, meta: &ObjectMeta) -> Option<ListedObject> {
        let key = self.key(&meta.location)?;
        Some(ListedObject { key, size: meta.size, modified: meta.last_modified.timestamp_millis() })
    }

    /// Returns the key of a path in the bucket, if it has our prefix.
    fn key(&self, path: &Path) -> Option<String> {
        path.as_ref().strip_prefix(&self.before()).map(str::to_owned)
    }

    fn before(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) }
    }

    fn path(&self, key: &str) -> Result<Path, ObjectError> {
        self.parsed(key).map_err(store_error("name", key))
    }

    fn parsed(&self, key: &str) -> Result<Path, Error> {
        // Not `from`, which would percent-encode characters.
        Path::parse(format!("{}{key}", self.before())).map_err(Error::from)
    }
}

fn just_look() -> GetOptions {
    GetOptions { head: true, ..GetOptions::default() }
}

fn attributes(content_type: &str, mode: Option<u32>) -> Attributes {
    let mode = mode.map(|mode| (Attribute::Metadata(mode::METADATA.into()), mode::to_text(mode)));
    let content_type = (Attribute::ContentType, content_type.to_owned());
    std::iter::once(content_type).chain(mode).collect()
}

fn info(key: &str, result: &GetResult) -> ObjectInfo {
    let stored = result.attributes.get(&Attribute::ContentType).map(|value| value.to_string());
    let mode = result.attributes.get(&Attribute::Metadata(mode::METADATA.into()));
    ObjectInfo {
        key: key.to_owned(),
        size: result.meta.size,
        modified: result.meta.last_modified.timestamp_millis(),
        content_type: stored.unwrap_or_else(|| content_type(key).to_owned()),
        etag: result.meta.e_tag.clone().unwrap_or_default(),
        mode: mode.and_then(|text| mode::from_text(text)),
    }
}

fn found_or_none<T>(
    doing: &'static str,
    key: &str,
    found: object_store::Result<T>,
) -> Result<Option<T>, ObjectError> {
    match found {
        Err(Error::NotFound { .. }) => Ok(None),
        Err(Error::Precondition { .. }) => Err(ObjectError::Changed { key: key.to_owned() }),
        found => found.map(Some).map_err(store_error(doing, key)),
    }
}

fn store_error(doing: &'static str, key: &str) -> impl Fn(Error) -> ObjectError {
    let key = key.to_owned();
    move |cause| ObjectError::Store { doing, key: key.clone(), cause: Box::new(cause) }
}
