//! Compares Glob with a plain recursive walk.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, SystemTime},
};

use gantry_files::{GLOB_LIMIT, GlobError, GlobResult, WalkOptions};
use gantry_testkit::{Random, scaled};
use globset::GlobBuilder;
use proptest::prelude::*;

use crate::{
    tree,
    walking::{glob, scope},
};

static RUNNING: AtomicBool = AtomicBool::new(false);

fn options(threads: usize) -> WalkOptions<'static> {
    WalkOptions { threads, cancelled: &RUNNING }
}

fn found(base: &Path, pattern: &str) -> Vec<String> {
    let globbed = glob(base, pattern, &options(2)).unwrap();
    let mut paths: Vec<String> =
        globbed.matches.iter().map(|path| path.strip_prefix(base).unwrap().display().to_string()).collect();
    paths.sort();
    paths
}

fn write(base: &Path, names: &[&str]) {
    for name in names {
        let path = base.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
}

#[test]
fn patterns_match_as_expected() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    write(
        base,
        &["a.rs", "src/b.rs", "src/inner/c.rs", "src/inner/d.txt", ".git/e.rs", ".hid/f.rs", "src/.git/g.rs"],
    );
    assert_eq!(found(base, "**/*.rs"), [".hid/f.rs", "a.rs", "src/b.rs", "src/inner/c.rs"]);
    assert_eq!(found(base, "*.rs"), ["a.rs"]);
    assert_eq!(found(base, "./*.rs"), ["a.rs"]);
    assert_eq!(found(base, "src/**/*.{rs,txt}"), ["src/b.rs", "src/inner/c.rs", "src/inner/d.txt"]);
    assert_eq!(found(base, "{src,.hid}/*.rs"), [".hid/f.rs", "src/b.rs"]);
    assert_eq!(found(base, "{a.rs,src/inner/d.txt}"), ["a.rs", "src/inner/d.txt"]);
    assert_eq!(found(base, "src/inner/d.txt"), ["src/inner/d.txt"]);
    assert_eq!(found(base, &format!("{}/src/*.rs", base.display())), ["src/b.rs"]);
    assert_eq!(found(base, "missing/**"), [""; 0]);
    assert_eq!(found(base, ".git/*"), [""; 0]);
    assert_eq!(found(base, "**").len(), 5);
}

#[test]
fn invalid_patterns_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |pattern: &str| glob(dir.path(), pattern, &options(1)).unwrap_err();
    assert!(matches!(refused("../*"), GlobError::Parent(_)));
    assert!(matches!(refused("{..,a}/*"), GlobError::Parent(_)));
    assert!(matches!(refused("/etc/*"), GlobError::Outside { .. }));
    assert!(matches!(refused(&format!("{}x/*", dir.path().display())), GlobError::Outside { .. }));
    assert!(matches!(refused(""), GlobError::Empty));
    assert!(matches!(refused("["), GlobError::Invalid { .. }));
    assert!(matches!(refused(&"{".repeat(40)), GlobError::TooLong));
    // One scope opens the directory, and a stricter scope searches it.
    let opened = scope(&[]).open_dir(dir.path()).unwrap();
    let closed = scope(&[dir.path().to_owned()]);
    assert!(matches!(closed.glob(&opened, "*", &options(1)), Err(GlobError::Base { .. })));
}

#[test]
fn newest_files_come_first_and_ties_are_sorted_by_path() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["a/x", "a.b", "old", "new"]);
    let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for (name, seconds) in [("a/x", 50), ("a.b", 50), ("old", 10), ("new", 90)] {
        fs::File::options()
            .write(true)
            .open(dir.path().join(name))
            .unwrap()
            .set_modified(time(seconds))
            .unwrap();
    }
    let matches = glob(dir.path(), "**", &options(2)).unwrap().matches;
    assert_eq!(matches, ["new", "a/x", "a.b", "old"].map(|name| dir.path().join(name)));
}

#[test]
fn results_beyond_the_limit_keep_the_newest_and_the_total() {
    let dir = tempfile::tempdir().unwrap();
    for index in 0..GLOB_LIMIT + 5 {
        fs::File::create(dir.path().join(format!("{index:05}"))).unwrap();
    }
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(dir.path().join("00000")).unwrap().set_modified(past).unwrap();
    let globbed = glob(dir.path(), "*", &options(2)).unwrap();
    assert_eq!((globbed.matches.len(), globbed.total, globbed.truncated), (GLOB_LIMIT, GLOB_LIMIT + 5, true));
    assert!(!globbed.matches.contains(&dir.path().join("00000")));
    let whole = glob(dir.path(), "0*", &options(2)).unwrap();
    assert_eq!((whole.total, whole.truncated), (GLOB_LIMIT, false));
}

#[test]
fn closed_files_are_not_found_by_name_or_link() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    write(&base, &["open/a", "data/keys/secret", "config"]);
    fs::hard_link(base.join("config"), base.join("open/alias")).unwrap();
    symlink(base.join("config"), base.join("to-config")).unwrap();
    symlink(base.join("data"), base.join("to-data")).unwrap();
    symlink(base.join("data/keys"), base.join("to-keys")).unwrap();
    symlink(base.join("data/keys/secret"), base.join("to-secret")).unwrap();
    assert_eq!(found(&base, "**").len(), 8);
    let scope = scope(&[base.join("data"), base.join("config")]);
    let dir = scope.open_dir(&base).unwrap();
    for pattern in ["**", "data/**", "to-data/**", "to-keys/*", "*/keys/*", "config", "*config", "open/*"] {
        let matches = scope.glob(&dir, pattern, &options(1)).unwrap().matches;
        assert!(matches.iter().all(|path| path.ends_with("open/a")), "{pattern}: {matches:?}");
    }
}

#[test]
fn cancelled_walk_returns_cancelled() {
    let cancelled = AtomicBool::new(true);
    let options = WalkOptions { threads: 2, cancelled: &cancelled };
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(glob(dir.path(), "**", &options), Err(GlobError::Cancelled)));
}

#[test]
fn glob_equals_a_plain_walk_on_generated_trees() {
    let mut random = Random::new();
    for _ in 0..scaled(100, 8) {
        let dir = tempfile::tempdir().unwrap();
        let (base, outside) = (dir.path().join("base"), dir.path().join("outside"));
        fs::create_dir(&base).unwrap();
        fs::create_dir(&outside).unwrap();
        tree::grow(&mut random, &base, &outside);
        let mut files = Vec::new();
        plain_walk(&base, &mut vec![identity(&base)], &mut files);
        for pattern in [
            "**/*.rs",
            "**",
            "*",
            "a/**",
            "**/{a,b}*",
            "src/*",
            "**/d5?/*",
            "?*/**/*.{rs,txt,md}",
            "link1*/**",
        ] {
            let glob_matcher =
                GlobBuilder::new(pattern).literal_separator(true).build().unwrap().compile_matcher();
            let expected: BTreeSet<&PathBuf> = files
                .iter()
                .filter(|path| glob_matcher.is_match(path.strip_prefix(&base).unwrap()))
                .collect();
            for threads in [1, 2, 5] {
                let GlobResult { matches, total, .. } = glob(&base, pattern, &options(threads)).unwrap();
                assert_eq!(matches.iter().collect::<BTreeSet<_>>(), expected, "{pattern}");
                assert_eq!(total, expected.len(), "{pattern}: a file twice");
                let times: Vec<_> =
                    matches.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
                assert!(times.is_sorted_by(|newer, older| newer >= older), "{pattern}: not newest first");
            }
        }
    }
}

fn identity(path: &Path) -> (u64, u64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.dev(), metadata.ino())
}

/// Lists regular files, through links, but enters no directory that it is already in.
fn plain_walk(folder: &Path, above: &mut Vec<(u64, u64)>, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_file() {
            files.push(path);
        } else if metadata.is_dir() && path.file_name().unwrap() != ".git" {
            let id = identity(&path);
            if !above.contains(&id) {
                above.push(id);
                plain_walk(&path, above, files);
                above.pop();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(5_000, 200) as u32))]

    #[test]
    fn no_pattern_panics(pattern in r"([a-c/*?.{},!\[\]\\-]|\*\*|\PC){0,24}") {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &["a/b", "c"]);
        if let Ok(globbed) = glob(dir.path(), &pattern, &options(1)) {
            prop_assert!(globbed.total <= 2);
        }
    }
}

#[test]
fn links_in_proc_are_not_followed() {
    let here = std::env::current_dir().unwrap();
    let found = |base: &Path, pattern: &str| glob(base, pattern, &options(1)).unwrap().total;
    assert_eq!(found(Path::new("/proc/self"), "cwd/Cargo.toml"), 0);
    assert_eq!(found(Path::new("/proc/self"), "status"), 1);
    assert_eq!(found(Path::new("/proc/self/cwd"), "Cargo.toml"), 1, "a link that is named");
    let dir = tempfile::tempdir().unwrap();
    symlink(&here, dir.path().join("cwd")).unwrap();
    assert_eq!(found(dir.path(), "cwd/Cargo.toml"), 1, "links elsewhere");
}
