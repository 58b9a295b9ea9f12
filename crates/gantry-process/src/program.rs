//! Finds a program by its bare name in directories that the caller trusts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// `Program` has the path under which the program was found, to start it by, and its real path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub real: PathBuf,
}

/// Finds the first regular, executable file called `name`. A name with a slash and an invalid name
/// find nothing.
pub fn find_program(name: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return None;
    }
    directories.iter().filter(|directory| directory.is_absolute()).map(|directory| directory.join(name)).find(
        |path| {
            path.metadata()
                .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
        },
    )
}

/// Like [`find_program`], but skips programs whose real path is in one of `writable`, where a
/// command could have put them.
pub fn find_program_outside(name: &str, directories: &[PathBuf], writable: &[PathBuf]) -> Option<Program> {
    let writable: Vec<PathBuf> = writable.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let outside = |path: &Path| !writable.iter().any(|writable| path.starts_with(writable));
    directories.iter().filter(|directory| directory.canonicalize().is_ok_and(|real| outside(&real))).find_map(
        |directory| {
            let path = find_program(name, std::slice::from_ref(directory))?;
            let real = path.canonicalize().ok().filter(|real| outside(real))?;
            Some(Program { path, real })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_names_of_executables_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (name, mode) in [("tool", 0o755), ("notes", 0o644)] {
            std::fs::write(path(name), "").unwrap();
            std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink(path("tool"), path("link")).unwrap();
        let directories =
            [PathBuf::from("relative"), PathBuf::from("/nonexistent"), directory.path().to_owned()];
        let check = |name: &str, found: bool| {
            assert_eq!(find_program(name, &directories), found.then(|| path(name)), "{name}");
        };
        check("tool", true);
        check("link", true);
        for name in ["notes", "folder", "missing", "", ".", "..", "./tool", "folder/../tool", "tool\0"] {
            check(name, false);
        }
        assert_eq!(find_program(path("tool").to_str().unwrap(), &directories), None);
    }

    #[test]
    fn programs_in_writable_directories_are_skipped() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().canonicalize().unwrap().join(name);
        for directory in ["ours", "theirs"] {
            std::fs::create_dir(path(directory)).unwrap();
            std::fs::write(path(directory).join("tool"), "").unwrap();
            std::fs::set_permissions(path(directory).join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(path("theirs"), path("alias")).unwrap();
        std::os::unix::fs::symlink(path("theirs/tool"), path("ours/linked")).unwrap();
        std::os::unix::fs::symlink(path("ours/tool"), path("theirs/back")).unwrap();
        let directories = [path("theirs"), path("alias"), path("ours")];
        let found = |name: &str| find_program_outside(name, &directories, &[path("theirs")]);
        let ours = path("ours/tool");
        assert_eq!(found("tool"), Some(Program { path: ours.clone(), real: ours.clone() }));
        assert_eq!(found("linked"), None);
        assert_eq!(found("back"), None);
        // A link is found under its own name, because programs such as busybox depend on it.
        let through = find_program_outside("back", &directories, &[]);
        assert_eq!(through, Some(Program { path: path("theirs/back"), real: ours }));
    }
}
