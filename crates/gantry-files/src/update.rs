//! Reads a file, changes it and writes it back as one step.
//!
//! While an [`Update`] lives, no other writer of this process can access the file. A write by
//! another program between reading and writing is detected and refused.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use crate::error::FileError;
use crate::handle;
use crate::lock::Held;
use crate::place::{Missing, Place};
use crate::replace::{Old, Overwrite, Written, file_name};
use crate::scope::{FileMeta, SWAP_TRIES, Scope};
use crate::tag;

/// Larger files are not read into memory to be changed.
pub const MAX_UPDATE_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, Default)]
pub struct UpdateOptions<'a> {
    /// The tag of what the caller read. A different tag is refused.
    pub expected_tag: Option<&'a str>,
    /// Treats a missing file as an empty one, and creates it.
    pub create: bool,
    /// Creates missing parent directories.
    pub make_parents: bool,
}

/// `Update` is a file that was read to be changed. Dropping it without writing changes nothing.
#[derive(Debug)]
pub struct Update<'a> {
    scope: &'a Scope,
    asked: PathBuf,
    place: Place,
    name: OsString,
    old: Option<Old>,
    bytes: Vec<u8>,
    overwrite: Overwrite,
    _guard: Held<'a>,
}

impl Scope {
    /// Reads a file in order to change it. Until the result is dropped, other writes to the file
    /// wait, so write only through it.
    pub fn update(
        &self,
        path: impl AsRef<Path>,
        options: UpdateOptions<'_>,
    ) -> Result<Update<'_>, FileError> {
        let asked = path.as_ref();
        let missing = if options.create && options.make_parents { Missing::Make } else { Missing::Refuse };
        for _ in 0..SWAP_TRIES {
            let place = self.writable_place(asked, missing)?;
            let name = file_name(&place, asked)?.to_os_string();
            let guard = self.lock(&place, &name, asked)?;
            let Ok(old) = self.old_file(&place, &name, asked)? else { continue };
            let mut bytes = Vec::new();
            let mut overwrite = Overwrite::Never;
            if old.is_some() {
                let Some(file) = self.open_at(&place, asked)? else { continue };
                bytes = file.read_all(MAX_UPDATE_BYTES)?;
                overwrite = Overwrite::If(file.meta);
                check_tag(asked, &bytes, &file.meta, options.expected_tag)?;
            } else if !options.create {
                return Err(FileError::NotFound { path: asked.into() });
            } else if options.expected_tag.is_some() {
                return Err(FileError::Stale { path: asked.into(), current: tag::of_bytes(&[]) });
            }
            let asked = asked.to_path_buf();
            return Ok(Update { scope: self, asked, place, name, old, bytes, overwrite, _guard: guard });
        }
        Err(FileError::TooManyLinks { path: asked.into() })
    }
}

impl Update<'_> {
    /// The content of the file; empty if it is to be created.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The real absolute path, links followed.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Whether the file existed.
    pub fn exists(&self) -> bool {
        self.old.is_some()
    }

    /// Replaces what was read by `parts`, one after the other. A second write is refused as a
    /// change by others.
    pub fn write(&self, parts: &[impl AsRef<[u8]>]) -> Result<Written, FileError> {
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        self.scope.write_at(&self.place, &self.name, &self.asked, self.old.as_ref(), &parts, self.overwrite)
    }

    /// Removes the file, if it is unchanged since it was read.
    pub fn remove(&self) -> Result<(), FileError> {
        let fail = |err| FileError::io("remove", &self.asked, err);
        let Overwrite::If(read) = self.overwrite else {
            return Err(FileError::NotFound { path: self.asked.clone() });
        };
        let now = handle::stat_at(&self.place.dir, &self.name).map(|stat| FileMeta::of(&stat));
        if now != Ok(read) {
            return Err(FileError::ChangedMeanwhile { path: self.asked.clone() });
        }
        rustix::fs::unlinkat(&self.place.dir, &self.name, AtFlags::empty()).map_err(fail)?;
        handle::sync_dir(&self.place.dir).map_err(fail)
    }
}

fn check_tag(asked: &Path, bytes: &[u8], meta: &FileMeta, expected: Option<&str>) -> Result<(), FileError> {
    let Some(expected) = expected else { return Ok(()) };
    let current = tag::of_parts(&[bytes], meta);
    if current != expected {
        return Err(FileError::Stale { path: asked.into(), current });
    }
    Ok(())
}
