//! Resolves paths one link at a time. Each link on the way could be replaced, so each link is a
//! place to protect.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Access;

/// The kernel follows as many.
const MAX_LINKS: usize = 40;

/// How many levels below a directory are searched for links.
const MAX_DEPTH: usize = 4;

/// How many entries of a directory, and of those below it, are examined.
const MAX_ENTRIES: usize = 1_000;

/// These hold no regular files. A link to one of them (`/dev/null`, to disable a file) must stay
/// usable.
const NO_FILES: &[&str] = &["/dev", "/proc", "/sys"];

/// Returns the real places that decide what is at `path`: the path itself, each link on the way,
/// and the target. If the target is a directory, the places of the links in it are included.
///
/// A missing path counts as written, because it could be created. `asked` are all paths of this
/// query. A directory that contains one of them is never a place, whatever links to it, or a whole
/// home directory would become one.
pub(super) fn places(path: &Path, asked: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    if !path.is_absolute() {
        return Err(format!("a read-only path must be absolute: {}", path.display()));
    }
    let way = follow(path);
    let mut places: BTreeSet<PathBuf> = changeable(way.links).collect();
    let holds_no_asked = |end: &PathBuf| !asked.iter().any(|path| path != end && path.starts_with(end));
    // A circular link leads nowhere.
    let Some(end) = way.end.filter(holds_no_asked) else { return Ok(places) };
    for link in links_below(&end) {
        let way = follow(&link);
        // The same applies to a link that leads back up to a directory above it.
        let end = way.end.filter(|end| !link.starts_with(end) && holds_no_asked(end));
        places.extend(changeable(way.links.into_iter().chain(end)));
    }
    places.extend(changeable([end]));
    Ok(places)
}

struct ResolvedPath {
    /// The real places of the links, in order.
    links: Vec<PathBuf>,
    /// `None` if there are too many links.
    end: Option<PathBuf>,
}

fn follow(path: &Path) -> ResolvedPath {
    let mut links = Vec::new();
    let mut real = PathBuf::from("/");
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(part);
        // A path that cannot be read as a link is not a link, is missing, or is out of the
        // command's reach as well.
        let Ok(target) = std::fs::read_link(&real) else { continue };
        links.push(real.clone());
        if links.len() > MAX_LINKS {
            return ResolvedPath { links, end: None };
        }
        match target.is_absolute() {
            true => real = PathBuf::from("/"),
            false => _ = real.pop(),
        }
        rest.extend(parts(&target));
    }
    ResolvedPath { links, end: Some(real) }
}

/// Returns the components of a path, last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|part| part.as_os_str().to_owned()).collect()
}

/// Lists the links in a directory and below it, also in directories that such links lead to. The
/// nearest come first, and the bounds limit the number.
fn links_below(directory: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut left = MAX_ENTRIES;
    let mut seen = BTreeSet::from([directory.to_owned()]);
    let mut waiting = VecDeque::from([(directory.to_owned(), 1)]);
    while let Some((directory, depth)) = waiting.pop_front() {
        // Usually it is a file, or it does not exist.
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            if left == 0 {
                return links;
            }
            left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let mut below = kind.is_dir().then(|| entry.path());
            if kind.is_symlink() {
                let link = entry.path();
                below = follow(&link).end.filter(|end| !link.starts_with(end));
                links.push(link);
            }
            if let Some(below) = below
                && depth < MAX_DEPTH
                && seen.insert(below.clone())
            {
                waiting.push_back((below, depth + 1));
            }
        }
    }
    links
}

/// Keeps the places that the user could change. The others (the system's, a package store) need no
/// rules, which would be many in a large directory.
fn changeable(places: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    let holds_files = |place: &PathBuf| !NO_FILES.iter().any(|other| place.starts_with(other));
    places.into_iter().filter(move |place| holds_files(place) && place.ancestors().any(user_can_change))
}

/// The owner of a file can always grant himself write permission.
fn user_can_change(place: &Path) -> bool {
    rustix::fs::access(place, Access::WRITE_OK).is_ok()
        || rustix::fs::lstat(place).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_above_the_asked_paths_are_never_places() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (home, dots) = (root.join("home"), root.join("dots"));
        std::fs::create_dir_all(home.join(".config")).unwrap();
        std::fs::create_dir_all(dots.join("fish")).unwrap();
        symlink(dots.join("fish"), home.join(".config/fish")).unwrap();
        symlink(&home, dots.join("fish/up")).unwrap();
        symlink(".", home.join(".elvish")).unwrap();
        let asked = [home.join(".profile"), home.join(".config/fish"), home.join(".elvish")];
        let found: Vec<PathBuf> = asked.iter().flat_map(|path| places(path, &asked).unwrap()).collect();
        for place in [&asked[0], &asked[1], &asked[2], &dots.join("fish"), &dots.join("fish/up")] {
            assert!(found.contains(place), "{}: {found:?}", place.display());
        }
        assert!(!found.contains(&home), "{found:?}");
    }
}
