//! [`DataDir`] is the data directory: its permissions and the paths in it. Only its owner may access it.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::token::PlainToken;

/// Files that hold tokens, keys, or records of conversations and calls.
const PRIVATE: &[&str] = &[
    "operator.token",
    "audit.key",
    "audit.head",
    "audit.log",
    "audit.start",
    "secrets.key",
    "secrets.sealed",
    "gateway.key",
    "gateway.key.next",
    "gateway.certificate",
    "gateway.db",
    "gateway.db-shm",
    "gateway.db-wal",
];

const OPERATOR_PREFIX: &str = "gto_";

/// The prefix of temporary files before they are renamed.
const TEMP_PREFIX: &str = ".gantry-";

/// A data directory that may not exist yet. [`DataDir::create`] creates it.
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

impl From<DataDirError> for io::Error {
    fn from(err: DataDirError) -> io::Error {
        io::Error::new(err.cause.kind(), err.to_string())
    }
}

impl DataDir {
    /// `root` must be absolute, because tools with any working directory are denied access to it.
    pub fn new(root: PathBuf) -> DataDir {
        DataDir { root }
    }

    /// Creates the directory with mode 0700. An existing directory that is open to others is closed if it is Gantry's or
    /// empty. Any other is rejected, because closing it would lock its users out.
    pub fn create(&self) -> Result<(), DataDirError> {
        let failed = |cause| DataDirError { path: self.root.clone(), cause };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root).map_err(failed)?;
        if self.is_closed().map_err(failed)? {
            return Ok(());
        }
        let foreign = |entry: io::Result<std::fs::DirEntry>| {
            entry.is_ok_and(|entry| !entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()))
        };
        let empty = !std::fs::read_dir(&self.root).map_err(failed)?.any(foreign);
        let ours = ["audit.key", "gantry.toml", "gateway.db", "operator.token"]
            .iter()
            .any(|name| self.root.join(name).exists());
        if !empty && !ours {
            // A process that starts at the same time closes the directory before it creates files in it, so these files
            // may be its own.
            if self.is_closed().map_err(failed)? {
                return Ok(());
            }
            return Err(failed(io::Error::other(
                "it is open to other users and holds files that are not Gantry's",
            )));
        }
        std::fs::set_permissions(&self.root, Permissions::from_mode(0o700)).map_err(failed)
    }

    /// Whether only the owner has access.
    fn is_closed(&self) -> io::Result<bool> {
        Ok(std::fs::metadata(&self.root)?.permissions().mode() & 0o077 == 0)
    }

    /// Creates the directory and restores the modes of the directory and its private files, which any process of the same
    /// user can change. Removes write access of others to the configuration. Returns each changed path with its previous
    /// mode. Files of another user than this one and root are rejected, because their owner can open them again.
    pub fn restore(&self) -> Result<Vec<(PathBuf, u32)>, DataDirError> {
        let own = rustix::process::geteuid().as_raw();
        let private = self.private_files();
        for path in private.iter().cloned().chain([self.config_file()]) {
            let owner = std::fs::symlink_metadata(&path).map_or(own, |found| found.uid());
            if owner != own && owner != 0 {
                let message = format!(
                    "it belongs to user {owner}, who can change it; look at what it holds, then `chown {own}` it"
                );
                return Err(DataDirError { path, cause: io::Error::other(message) });
            }
        }
        let mut restored = Vec::new();
        let mut restore = |path: PathBuf, mode: u32| {
            let failed = |cause| DataDirError { path: path.clone(), cause };
            let found = match std::fs::symlink_metadata(&path) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
                found => found.map_err(failed)?,
            };
            let found_mode = found.permissions().mode() & 0o7777;
            let expected = if mode & 0o100 == 0 { found.is_file() } else { found.is_dir() };
            if expected && (found_mode & 0o077 != 0 || found_mode & mode != mode) {
                std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)?;
                restored.push((path, found_mode));
            }
            Ok(())
        };
        if private.iter().any(|path| path.exists()) {
            restore(self.root.clone(), 0o700)?;
        }
        private.into_iter().try_for_each(|path| restore(path, 0o600))?;
        self.create()?;
        restored.extend(self.close_config()?);
        Ok(restored)
    }

    fn private_files(&self) -> Vec<PathBuf> {
        // If the directory cannot be listed, there are no rotated files to restore.
        let rotated = crate::audit_files::rotated_files(&self.audit_log()).unwrap_or_default();
        let named = PRIVATE.iter().map(|name| self.root.join(name));
        named.chain(rotated.into_iter().map(|file| file.path)).collect()
    }

    /// Removes write access of others to the configuration, which decides what is allowed. The operator decides who may
    /// read it.
    fn close_config(&self) -> Result<Option<(PathBuf, u32)>, DataDirError> {
        const WRITE_OF_OTHERS: u32 = 0o022;
        let path = self.config_file();
        let Some(found) = std::fs::symlink_metadata(&path).ok().filter(std::fs::Metadata::is_file) else {
            return Ok(None);
        };
        let mode = found.permissions().mode() & 0o7777;
        if mode & WRITE_OF_OTHERS == 0 {
            return Ok(None);
        }
        let closed = Permissions::from_mode(mode & !WRITE_OF_OTHERS);
        match std::fs::set_permissions(&path, closed) {
            Ok(()) => Ok(Some((path, mode))),
            // The file belongs to somebody else, such as root. The binary warns about it; starting is still allowed.
            Err(err)
                if matches!(
                    err.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Ok(None)
            }
            Err(cause) => Err(DataDirError { path, cause }),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The configuration file, unless the operator names another.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("gantry.toml")
    }

    /// Reads the configuration, or returns `None` if the file is missing. The path may be a link to a regular file.
    pub fn read_config(path: &Path) -> io::Result<Option<String>> {
        match read_text(path) {
            Ok(text) => Ok(Some(text)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Writes the configuration so that a crash leaves the old or the new file, readable by its owner only.
    ///
    /// If the path is a link, the file it points to is replaced.
    pub fn write_config(path: &Path, text: &str) -> io::Result<()> {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        replace_private(&real, text.as_bytes())
    }

    /// Copies a file that a command is about to change to where no tool can read it. Returns the copy's path.
    pub fn keep_copy(&self, file: &Path, content: &[u8]) -> io::Result<PathBuf> {
        self.create()?;
        let folder = self.root.join("replaced-files");
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let copy = folder.join(format!("{name}.before-gantry-{}", jiff::Timestamp::now().as_millisecond()));
        replace_private(&copy, content)?;
        Ok(copy)
    }

    /// Returns the operator's token, which is created at first use.
    pub fn operator_token(&self) -> io::Result<String> {
        self.create()?;
        let path = self.operator_token_file();
        match read_operator_token(&path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        // Two processes that start at once must agree on one token, so the first one wins.
        make_private(&path, PlainToken::make(OPERATOR_PREFIX)?.expose().as_bytes())?;
        read_operator_token(&path)
    }

    /// Returns the operator's token if it exists.
    pub fn known_operator_token(&self) -> Option<String> {
        read_operator_token(&self.operator_token_file()).ok()
    }

    pub fn operator_token_file(&self) -> PathBuf {
        self.root.join("operator.token")
    }

    /// The gateway's database.
    pub fn database(&self) -> PathBuf {
        self.root.join("gateway.db")
    }

    /// Whether the database file was emptied. A new database is created then.
    pub fn is_database_emptied(&self) -> bool {
        let is_empty = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0);
        let log = self.root.join("gateway.db-wal");
        is_empty(&self.database()) && (is_empty(&log) || !log.exists())
    }

    /// The lock file of the running gateway.
    pub fn gateway_lock(&self) -> PathBuf {
        self.root.join("gateway.lock")
    }

    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    /// Records of temporary files, so that the next start can remove what a crash left.
    pub fn pending(&self) -> PathBuf {
        self.root.join("pending")
    }

    /// Records of part files of transfers to this machine.
    pub fn parts(&self) -> PathBuf {
        self.root.join("parts")
    }

    /// Output of processes.
    pub fn process_logs(&self) -> PathBuf {
        self.root.join("processes")
    }

    /// The gateway's own log.
    pub fn gateway_log(&self) -> PathBuf {
        self.root.join("gateway-log")
    }

    pub fn results(&self) -> PathBuf {
        self.root.join("results")
    }
}

/// `FileVersion` differs between two versions of a file, whether the file was replaced or written in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileVersion {
    pub fn of(meta: &std::fs::Metadata) -> FileVersion {
        FileVersion { inode: meta.ino(), size: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) }
    }

    /// Returns `None` if the file is missing.
    pub(crate) fn of_file(path: &Path) -> Option<FileVersion> {
        std::fs::metadata(path).ok().map(|meta| FileVersion::of(&meta))
    }
}

/// Creates a folder that people named, unless it exists.
pub fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Reads the operator's token. Rejects a partial token, which could be guessed, and a link, which would let another
/// user choose the token.
fn read_operator_token(path: &Path) -> io::Result<String> {
    let refused = |why: &str| {
        let todo = "put the whole token back, or remove the file to have a new one made";
        io::Error::other(format!("{} {why}; {todo}", path.display()))
    };
    let text = match std::fs::symlink_metadata(path)?.is_symlink() {
        true => return Err(refused("is a link")),
        false => read_text(path),
    };
    let text = match text {
        // The file was removed meanwhile.
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Err(err),
        Err(err) => return Err(refused(&format!("cannot be used ({err})"))),
        Ok(text) => text,
    };
    match text.trim() {
        "" => Err(refused("is empty")),
        token if PlainToken::is_whole(OPERATOR_PREFIX, token) => Ok(token.to_owned()),
        _ => Err(refused("does not hold a whole operator's token")),
    }
}

/// Opens a regular file for reading. Pipes, devices and folders are rejected without blocking; opening a pipe normally
/// blocks until another process writes to it.
pub(crate) fn open_file(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;

    let at_once = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = std::fs::File::options().read(true).custom_flags(at_once).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_file(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces a small file with mode 0600: temporary file, fsync, rename, fsync of the folder.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_private_with(path, |file| file.write_all(bytes))
}

/// Like [`replace_private`], with the content that `write` writes.
pub(crate) fn replace_private_with(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> io::Result<()> {
    put_private(path, write, |temp| std::fs::rename(temp, path))
}

/// Like [`replace_private`], but keeps an existing file.
pub(crate) fn make_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let write = |file: &mut std::fs::File| file.write_all(bytes);
    put_private(path, write, |temp| {
        match std::fs::hard_link(temp, path) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
        std::fs::remove_file(temp)
    })
}

/// Writes and syncs a temporary file, renames it with `name` and syncs the folder.
fn put_private(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
    name: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temp = folder.join(format!("{TEMP_PREFIX}{}.tmp", uuid::Uuid::new_v4().simple()));
    let written =
        std::fs::File::options().write(true).create_new(true).mode(0o600).open(&temp).and_then(|mut file| {
            write(&mut file)?;
            file.sync_all()
        });
    written.and_then(|()| name(&temp)).inspect_err(|_| {
        let _ = std::fs::remove_file(&temp);
    })?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_modes_are_restored_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        assert_eq!(data.restore().unwrap(), []);
        data.operator_token().unwrap();
        std::fs::write(data.config_file(), "").unwrap();
        std::os::unix::fs::symlink(data.config_file(), data.root().join("audit.key")).unwrap();
        assert_eq!(data.restore().unwrap(), []);
        let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        set(&data.config_file(), 0o644);
        let full_log = data.root().join("audit-000000000007.log");
        std::fs::write(&full_log, "").unwrap();
        set(&full_log, 0o640);
        assert_eq!(data.restore().unwrap(), [(full_log, 0o640)]);
        for (root, token) in [(0o755, 0o644), (0o777, 0o600), (0o700, 0o000), (0o500, 0o604)] {
            set(&data.operator_token_file(), token);
            set(data.root(), root);
            let restored = data.restore().unwrap();
            let changed = [(data.root().to_owned(), root), (data.operator_token_file(), token)];
            let expected: Vec<_> =
                changed.into_iter().filter(|(_, mode)| ![0o700, 0o600].contains(mode)).collect();
            assert_eq!(restored, expected);
            assert_eq!((mode(data.root()), mode(&data.operator_token_file())), (0o700, 0o600));
        }
        assert_eq!(mode(&data.config_file()), 0o644, "the operator's own file is the operator's to close");
        for (found, left) in [(0o666, 0o644), (0o660, 0o640), (0o602, 0o600), (0o622, 0o600), (0o777, 0o755)]
        {
            set(&data.config_file(), found);
            assert_eq!(data.restore().unwrap(), [(data.config_file(), found)]);
            assert_eq!(mode(&data.config_file()), left, "nobody else writes what is allowed");
        }
        assert_eq!(data.restore().unwrap(), []);
    }

    #[test]
    fn concurrent_commands_share_an_open_empty_directory() {
        for _ in 0..200 {
            let folder = tempfile::tempdir().unwrap();
            let data = DataDir::new(folder.path().join("data"));
            std::fs::create_dir(data.root()).unwrap();
            std::fs::set_permissions(data.root(), Permissions::from_mode(0o755)).unwrap();
            let together = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for number in 0..4 {
                    let (data, together) = (&data, &together);
                    scope.spawn(move || {
                        together.wait();
                        data.create().unwrap();
                        std::fs::create_dir(data.root().join(format!("processes-{number}"))).unwrap();
                    });
                }
            });
        }
    }

    #[test]
    fn directory_with_foreign_files_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().to_owned());
        std::fs::write(folder.path().join("theirs"), "").unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let refused = data.create().unwrap_err().to_string();
        assert!(refused.contains("not Gantry's"), "{refused}");
    }

    #[test]
    fn files_of_another_user_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        data.operator_token().unwrap();
        std::fs::write(data.config_file(), "").unwrap();
        for path in [data.operator_token_file(), data.config_file()] {
            // Only root can change owners; for other users this checks that their own files are accepted.
            let given = std::os::unix::fs::chown(&path, Some(65_534), None).is_ok();
            let refused = data.restore().map_err(|err| err.to_string());
            assert_eq!(refused.is_err(), given, "{refused:?}");
            assert!(refused.err().is_none_or(|error| error.contains("user 65534")));
            std::os::unix::fs::chown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        data.restore().unwrap();
    }

    #[test]
    fn operator_token_is_created_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let making: Vec<_> = (0..8).map(|_| scope.spawn(|| data.operator_token().unwrap())).collect();
            making.into_iter().map(|made| made.join().unwrap()).collect()
        });
        assert!(tokens[0].starts_with("gto_") && tokens[0].len() == 47, "{tokens:?}");
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        let mode = std::fs::metadata(data.operator_token_file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(data.root()).unwrap().count(), 1, "no temp file stays");
    }

    #[test]
    fn partial_or_linked_operator_token_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let (token, path) = (data.operator_token().unwrap(), data.operator_token_file());
        let refused = |why: &str| {
            let error = data.operator_token().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("remove the file"), "{error}");
            assert_eq!(data.known_operator_token(), None);
        };
        for (text, why) in [
            ("", "is empty"),
            ("a", "whole"),
            (&token[..46], "whole"),
            (&token[1..], "whole"),
            (&format!("{token}A"), "whole"),
            (&format!("{}!", &token[..46]), "whole"),
            (&token.replace("gto_", "gtc_"), "whole"),
        ] {
            std::fs::write(&path, text).unwrap();
            refused(why);
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        refused("cannot be used");
        std::fs::write(&path, format!("{token}\n")).unwrap();
        assert_eq!(data.operator_token().unwrap(), token);
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        refused("is a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused("not a regular file");
    }

    #[test]
    fn configuration_must_be_a_file_or_a_link_to_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (folder.path().join("real.toml"), folder.path().join("gantry.toml"));
        assert_eq!(DataDir::read_config(&path).unwrap(), None);
        std::fs::write(&file, "a = 1").unwrap();
        std::os::unix::fs::symlink(&file, &path).unwrap();
        assert_eq!(DataDir::read_config(&path).unwrap().as_deref(), Some("a = 1"));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        for odd in [&path, Path::new("/dev/zero"), folder.path()] {
            let error = DataDir::read_config(odd).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
