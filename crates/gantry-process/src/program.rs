//! Finds a program by its bare name in directories the caller trusts.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The first regular, executable file called `name`. A name with a slash, or one that is no name, finds nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_names_of_executable_files_are_found() {
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
}
