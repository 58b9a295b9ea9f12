//! Uploads a staged file in parts and records the upload in the data directory. An interrupted upload resumes after its
//! complete parts. An abandoned upload is aborted, so that no parts stay in the bucket.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, PutMultipartOptions};
use serde::{Deserialize, Serialize};

use super::{MAX_PARTS, ObjectError, PART, PARTS_AT_ONCE, S3, attributes, store_error};
use crate::staged::Staged;

/// Identifies the file and the object of an upload. A change of either starts another upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Purpose {
    path: String,
    size: u64,
    /// The bytes of every part except the last.
    part: u64,
    content_type: String,
    mode: Option<u32>,
    /// When the staged file was last written, in nanoseconds.
    written: u128,
}

/// The record of an upload: one JSON line for its start, and one for each uploaded part.
#[derive(Debug)]
struct Record {
    file: PathBuf,
    begun: Begun,
    parts: BTreeMap<usize, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    upload: String,
    purpose: Purpose,
}

#[derive(Serialize, Deserialize)]
struct PartLine {
    part: usize,
    etag: String,
}

impl S3 {
    /// Uploads a staged file in parts and calls `moved` for each. If the store goes away, uploaded parts stay for a retry.
    pub(super) async fn upload_staged(
        &self,
        key: &str,
        staged: &Arc<Staged>,
        content_type: &str,
        mode: Option<u32>,
        moved: &(dyn Fn() + Send + Sync),
    ) -> Result<(), ObjectError> {
        let failed = io_error("write down the upload of", key);
        let purpose = Purpose {
            path: self.path(key)?.to_string(),
            size: staged.length(),
            part: staged.length().div_ceil(MAX_PARTS).max(PART as u64),
            content_type: content_type.to_owned(),
            mode,
            written: staged.written().map_err(&failed)?,
        };
        let known = Record::read(staged.upload_record()).map_err(&failed)?;
        if known.as_ref().is_some_and(|known| known.begun.purpose != purpose) {
            self.abort_upload(key, staged).await?;
        }
        if let Some(mut record) = known.filter(|known| known.begun.purpose == purpose) {
            match self.send_parts(key, staged, &mut record, moved).await {
                // The store no longer knows the upload: it may have expired or been completed.
                Err(ObjectError::Store { cause, .. }) if matches!(*cause, Error::NotFound { .. }) => {
                    remove(staged.upload_record()).map_err(&failed)?;
                }
                sent => return self.ended(key, staged, sent).await,
            }
        }
        let options = PutMultipartOptions {
            attributes: attributes(content_type, mode),
            ..PutMultipartOptions::default()
        };
        let upload = self.store.create_multipart_opts(&self.path(key)?, options).await;
        let begun = Begun { upload: upload.map_err(store_error("write", key))?, purpose };
        let mut record = Record::begin(staged.upload_record(), begun).map_err(&failed)?;
        let sent = self.send_parts(key, staged, &mut record, moved).await;
        self.ended(key, staged, sent).await
    }

    /// Resumes only an upload that was interrupted by an unavailable store.
    async fn ended(
        &self,
        key: &str,
        staged: &Staged,
        sent: Result<(), ObjectError>,
    ) -> Result<(), ObjectError> {
        match &sent {
            Ok(()) => remove(staged.upload_record()).map_err(io_error("write down the upload of", key))?,
            Err(err) if err.is_passing() => {}
            Err(_) => {
                // If the abort fails, the record stays and is used with the staged file. The first error is reported.
                let _ = self.abort_upload(key, staged).await;
            }
        }
        sent
    }

    async fn send_parts(
        &self,
        key: &str,
        staged: &Arc<Staged>,
        record: &mut Record,
        moved: &(dyn Fn() + Send + Sync),
    ) -> Result<(), ObjectError> {
        let path = self.path(key)?;
        let Purpose { size, part, .. } = record.begun.purpose;
        let count = usize::try_from(size.div_ceil(part)).unwrap_or(usize::MAX);
        let missing: Vec<usize> = (0..count).filter(|index| !record.parts.contains_key(index)).collect();
        let upload = record.begun.upload.clone();
        let (path, upload) = (&path, &upload);
        let mut sending = stream::iter(missing)
            .map(async |index| {
                let offset = index as u64 * part;
                let block = read_block(key, staged, offset, part.min(size - offset)).await?;
                let sent = self.store.put_part(path, upload, index, block.into()).await;
                Ok((index, sent.map_err(store_error("write", key))?))
            })
            .buffer_unordered(PARTS_AT_ONCE);
        while let Some(sent) = sending.next().await {
            let (index, PartId { content_id }) = sent?;
            record.note(index, content_id).map_err(io_error("write down the upload of", key))?;
            moved();
        }
        drop(sending);
        let parts = record.parts.values().map(|etag| PartId { content_id: etag.clone() }).collect();
        let completed = self.store.complete_multipart(path, upload, parts).await;
        completed.map(drop).map_err(store_error("write", key))
    }

    /// Aborts the upload of a staged file, if there is one.
    pub(super) async fn abort_upload(&self, key: &str, staged: &Staged) -> Result<(), ObjectError> {
        let failed = io_error("abort the upload of", key);
        if let Some(record) = Record::read(staged.upload_record()).map_err(&failed)? {
            let aborting = store_error("abort the upload of", key);
            let path = Path::parse(&record.begun.purpose.path).map_err(|err| aborting(err.into()))?;
            match self.store.abort_multipart(&path, &record.begun.upload).await {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(err) => return Err(aborting(err)),
            }
        }
        remove(staged.upload_record()).map_err(failed)
    }
}

impl Record {
    /// Returns `None` for an unreadable record. A crash can damage its last line, never its first.
    fn read(file: &std::path::Path) -> io::Result<Option<Record>> {
        let text = match std::fs::read_to_string(file) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let mut lines = text.lines();
        let begun = lines.next().and_then(|line| serde_json::from_str(line).ok());
        let parts = lines.map_while(|line| serde_json::from_str(line).ok());
        let parts = parts.map(|PartLine { part, etag }| (part, etag)).collect();
        Ok(begun.map(|begun| Record { file: file.to_owned(), begun, parts }))
    }

    fn begin(file: &std::path::Path, begun: Begun) -> io::Result<Record> {
        if let Some(folder) = file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let unfinished = file.with_extension("new");
        let mut options = File::options();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        writeln!(written, "{}", serde_json::to_string(&begun)?)?;
        written.sync_all()?;
        std::fs::rename(unfinished, file)?;
        Ok(Record { file: file.to_owned(), begun, parts: BTreeMap::new() })
    }

    fn note(&mut self, part: usize, etag: String) -> io::Result<()> {
        let line = format!("{}\n", serde_json::to_string(&PartLine { part, etag: etag.clone() })?);
        File::options().append(true).open(&self.file)?.write_all(line.as_bytes())?;
        self.parts.insert(part, etag);
        Ok(())
    }
}

fn remove(record: &std::path::Path) -> io::Result<()> {
    match std::fs::remove_file(record) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(()),
    }
}

pub(super) async fn read_block(
    key: &str,
    staged: &Arc<Staged>,
    offset: u64,
    length: u64,
) -> Result<Bytes, ObjectError> {
    let file = Arc::clone(staged);
    let read = tokio::task::spawn_blocking(move || {
        let mut block = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.file().read_exact_at(&mut block, offset).map(|()| Bytes::from(block))
    });
    read.await
        .map_err(io::Error::other)
        .and_then(|read| read)
        .map_err(io_error("read the staged file of", key))
}

fn io_error(doing: &'static str, key: &str) -> impl Fn(io::Error) -> ObjectError {
    let key = key.to_owned();
    move |cause| ObjectError::Io { doing, key: key.clone(), cause }
}
