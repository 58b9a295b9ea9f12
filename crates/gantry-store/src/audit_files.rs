//! The files of the audit log: `audit.log`, the current one, and the full files before it.
//!
//! A full file is named after the number of its last line: `audit-000000001234.log`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::audit_key::Link;

/// A file is searched backwards for line ends in windows of this size.
const WINDOW: u64 = 1 << 16;

/// A full file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RotatedFile {
    /// The number of its last line, according to its name.
    pub(crate) last: u64,
    pub(crate) path: PathBuf,
}

pub(crate) fn rotated_path(log: &Path, last: u64) -> PathBuf {
    log.with_file_name(rotated_name(log, last))
}

fn rotated_name(log: &Path, last: u64) -> String {
    format!("{}-{last:012}.log", stem(log))
}

fn stem(log: &Path) -> std::borrow::Cow<'_, str> {
    log.file_stem().unwrap_or_default().to_string_lossy()
}

/// Returns the full files of a log, oldest first.
pub(crate) fn rotated_files(log: &Path) -> io::Result<Vec<RotatedFile>> {
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = match std::fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let prefix = format!("{}-", stem(log));
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".log"));
        if let Some(last) = number.and_then(|number| number.parse().ok())
            && rotated_name(log, last) == name
        {
            files.push(RotatedFile { last, path: log.with_file_name(name) });
        }
    }
    files.sort_by_key(|file| file.last);
    Ok(files)
}

/// Returns the offset at which the last complete line ends.
pub(crate) fn end_of_last_line(log: &File, length: u64) -> io::Result<u64> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(WINDOW);
        let bytes = read_at(log, start, end - start)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Returns the last line of a file that ends with a complete line.
pub(crate) fn last_line(log: &File, length: u64) -> io::Result<Option<(Link, Option<Timestamp>)>> {
    #[derive(serde::Deserialize)]
    struct LastLine {
        seq: u64,
        mac: String,
        at: Option<Timestamp>,
    }
    if length == 0 {
        return Ok(None);
    }
    let start = end_of_last_line(log, length - 1)?;
    let line = read_at(log, start, length - start)?;
    let last: LastLine = serde_json::from_slice(&line).map_err(|err| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its last line is damaged ({err}); run `gantry audit verify`"),
        )
    })?;
    Ok(Some((Link { seq: last.seq, mac: last.mac }, last.at)))
}

/// Returns the last line of a full file.
pub(crate) fn last_line_of(path: &Path) -> io::Result<Option<(Link, Option<Timestamp>)>> {
    let file = crate::data_dir::open_file(path)?;
    let length = file.metadata()?.len();
    last_line(&file, end_of_last_line(&file, length)?)
}

fn read_at(log: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    log.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Syncs the log's folder, so that new file names survive a crash.
pub(crate) fn sync_folder(log: &Path) -> io::Result<()> {
    match log.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
