//! The data directory: who may enter (its owner), and what lies where.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A data directory that may not exist yet. [`DataDir::create`] makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot use the data directory {path}: {cause}", path = path.display())]
pub struct DataDirError {
    path: PathBuf,
    cause: io::Error,
}

impl DataDir {
    /// `root` must be absolute: tools are kept out of it wherever they start from.
    pub fn new(root: PathBuf) -> DataDir {
        DataDir { root }
    }

    /// Makes the directory, for its owner only. One that is open to others is closed if it is ours or empty; somebody
    /// else's is refused, since closing it would lock them out.
    pub fn create(&self) -> Result<(), DataDirError> {
        let failed = |cause| DataDirError { path: self.root.clone(), cause };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root).map_err(failed)?;
        let mode = std::fs::metadata(&self.root).map_err(failed)?.permissions().mode();
        if mode & 0o077 == 0 {
            return Ok(());
        }
        let empty = std::fs::read_dir(&self.root).map_err(failed)?.next().is_none();
        let ours = ["audit.key", "gantry.toml"].iter().any(|name| self.root.join(name).exists());
        if !empty && !ours {
            return Err(failed(io::Error::other(
                "it is open to other users and holds files that are not Gantry's",
            )));
        }
        std::fs::set_permissions(&self.root, Permissions::from_mode(0o700)).map_err(failed)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The configuration file, unless the operator names another.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("gantry.toml")
    }

    /// The configuration as text; `None` when there is no such file.
    pub fn read_config(path: &Path) -> io::Result<Option<String>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Writes the configuration so that a crash leaves the old or the new file, readable by its owner only.
    ///
    /// A link to the file stays one: what it leads to is replaced.
    pub fn write_config(path: &Path, text: &str) -> io::Result<()> {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        replace_private(&real, text.as_bytes())
    }

    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    /// Temporary files in the making, so that the next start can sweep what a crash left.
    pub fn pending(&self) -> PathBuf {
        self.root.join("pending")
    }

    /// Output of processes.
    pub fn process_logs(&self) -> PathBuf {
        self.root.join("processes")
    }

    pub fn results(&self) -> PathBuf {
        self.root.join("results")
    }
}

/// Replaces a small file of our own: temp, fsync, rename, fsync of the folder; mode 0600.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temp = folder.join(format!(".gantry-{}.tmp", uuid::Uuid::new_v4().simple()));
    let written =
        std::fs::File::options().write(true).create_new(true).mode(0o600).open(&temp).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    written.and_then(|()| std::fs::rename(&temp, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&temp);
    })?;
    std::fs::File::open(folder)?.sync_all()
}
