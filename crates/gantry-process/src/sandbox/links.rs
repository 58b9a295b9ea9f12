//! Where paths lead, one link at a time: each link met on the way could be replaced, so each is a place of its own.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Access;

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

/// How far below a directory links are looked for.
const MAX_DEPTH: usize = 4;

/// How many entries of a directory, and of those below it, are looked at.
const MAX_ENTRIES: usize = 1_000;

/// Nobody keeps files there: what is linked to them (`/dev/null`, to have none) is to stay as usable as it is.
const NO_FILES: &[&str] = &["/dev", "/proc", "/sys"];

/// The real places that decide what stands at `path`: itself, each link on the way to what it means, and that; if it is
/// a directory, also those of the links in it.
///
/// What is missing counts as written, since it could be made. `asked` are all the paths that this is asked of: what they lie
/// in is none of their places, whatever leads there, or a whole home would be.
pub(super) fn places(path: &Path, asked: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    if !path.is_absolute() {
        return Err(format!("a read-only place must be an absolute path: {}", path.display()));
    }
    let way = follow(path);
    let mut places: BTreeSet<PathBuf> = changeable(way.links).collect();
    let holds_no_asked = |end: &PathBuf| !asked.iter().any(|path| path != end && path.starts_with(end));
    // A link in a circle leads to nothing.
    let Some(end) = way.end.filter(holds_no_asked) else { return Ok(places) };
    for link in links_below(&end) {
        let way = follow(&link);
        // The same where one leads back up to where it lies.
        let end = way.end.filter(|end| !link.starts_with(end) && holds_no_asked(end));
        places.extend(changeable(way.links.into_iter().chain(end)));
    }
    places.extend(changeable([end]));
    Ok(places)
}

struct Way {
    /// The real places of the links, in their order.
    links: Vec<PathBuf>,
    /// `None` if there are too many of them.
    end: Option<PathBuf>,
}

fn follow(path: &Path) -> Way {
    let mut links = Vec::new();
    let mut real = PathBuf::from("/");
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(part);
        // What cannot be read as a link is none, is missing, or is out of the command's reach as well.
        let Ok(target) = std::fs::read_link(&real) else { continue };
        links.push(real.clone());
        if links.len() > MAX_LINKS {
            return Way { links, end: None };
        }
        match target.is_absolute() {
            true => real = PathBuf::from("/"),
            false => _ = real.pop(),
        }
        rest.extend(parts(&target));
    }
    Way { links, end: Some(real) }
}

/// The names in a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|part| part.as_os_str().to_owned()).collect()
}

/// The links in a directory and below it, also in directories that such links lead to: the nearest first, and no more
/// than the bounds allow.
fn links_below(directory: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut left = MAX_ENTRIES;
    let mut seen = BTreeSet::from([directory.to_owned()]);
    let mut waiting = VecDeque::from([(directory.to_owned(), 1)]);
    while let Some((directory, depth)) = waiting.pop_front() {
        // Mostly it is a file, or not there.
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

/// Those that the user could change. The rest (the system's, a store of packages) needs no rules, which are many where a
/// directory is large.
fn changeable(places: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    let holds_files = |place: &PathBuf| !NO_FILES.iter().any(|other| place.starts_with(other));
    places.into_iter().filter(move |place| holds_files(place) && place.ancestors().any(is_ours_to_change))
}

/// Whoever owns a file can give himself the right to write it.
fn is_ours_to_change(place: &Path) -> bool {
    rustix::fs::access(place, Access::WRITE_OK).is_ok()
        || rustix::fs::lstat(place).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_makes_a_place_of_what_the_asked_paths_lie_in() {
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
