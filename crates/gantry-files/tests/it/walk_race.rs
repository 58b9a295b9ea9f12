//! Links that are swapped at full speed during walks never reveal a byte, a name or a size of
//! closed or refused files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gantry_files::{ListOptions, Scope, UpdateOptions, WalkOptions};
use gantry_testkit::scaled;
use rustix::fs::{CWD, RenameFlags};

use crate::race::{StopAtEnd, swap};
use crate::walking::scope;

static GO: AtomicBool = AtomicBool::new(false);
const FINE: &str = "fine needle";
const SECRET: &str = "secret needle, and longer than anything else here";

/// `vault` must stay closed, and `innocent` looks like it. `base` has entries that alternate
/// between the two.
struct SwappedTree {
    _dir: tempfile::TempDir,
    root: PathBuf,
    /// Pairs of names that are swapped.
    swapped: Vec<(PathBuf, PathBuf)>,
}

impl SwappedTree {
    fn new() -> SwappedTree {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (folder, text) in [("innocent", FINE), ("vault", SECRET)] {
            fs::create_dir_all(root.join(folder).join("sub")).unwrap();
            fs::write(root.join(folder).join("token"), text).unwrap();
            fs::write(root.join(folder).join("sub/token"), text).unwrap();
        }
        fs::write(root.join("vault/vault-only"), SECRET).unwrap();
        fs::write(root.join("vault/sub/vault-only"), SECRET).unwrap();
        let base = root.join("base");
        // Below this depth a walk holds no handles.
        let deep = base.join(["d"; 36].join("/"));
        fs::create_dir_all(&deep).unwrap();
        let mut swapped = Vec::new();
        for folder in [&base, &deep] {
            for (name, target) in
                [("folder", ""), ("inner", "sub"), ("file", "token"), ("deep-file", "sub/token")]
            {
                let (shown, hidden) = (folder.join(name), root.join(format!("spare{}", swapped.len())));
                symlink(root.join("innocent").join(target), &shown).unwrap();
                symlink(root.join("vault").join(target), &hidden).unwrap();
                swapped.push((shown, hidden));
            }
            // These go through a link that changes, and a real directory that becomes a link.
            symlink("folder/sub/token", folder.join("through")).unwrap();
            let (real, link) = (folder.join("real"), root.join(format!("spare{}", swapped.len())));
            fs::create_dir_all(real.join("sub")).unwrap();
            fs::write(real.join("token"), FINE).unwrap();
            fs::write(real.join("sub/token"), FINE).unwrap();
            symlink(root.join("vault"), &link).unwrap();
            swapped.push((real, link));
        }
        SwappedTree { _dir: dir, root, swapped }
    }

    /// Runs `attempt`, which returns whether it saw something, against the swapper until both have
    /// really met.
    fn attack(&self, rounds: usize, attempt: impl Fn(usize) -> bool) {
        let (done, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.swapped.iter().for_each(|(one, other)| swap(one, other));
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _stop = StopAtEnd(&done);
            let (mut round, mut seen) = (0, 0);
            while round < rounds || seen < 20 || swaps.load(Ordering::Relaxed) < 100 {
                seen += usize::from(attempt(round));
                round += 1;
                assert!(round < rounds * 50, "{seen} attempts saw the innocent: no race was run");
            }
        });
    }
}

/// Runs one walk of each kind in turn; returns true if it found an innocent file.
fn walk(scope: &Scope, base: &Path, round: usize) -> bool {
    let options = WalkOptions { threads: 1 + round % 2, cancelled: &GO };
    match round % 3 {
        0 => {
            let found = scope.search(&scope.open_base(base).unwrap(), "needle", None, &options).unwrap();
            for line in &found.matches {
                assert_eq!(line.content, FINE, "searched {}", line.path.display());
            }
            !found.matches.is_empty()
        }
        1 => {
            let found = scope.glob(&scope.open_dir(base).unwrap(), "**", &options).unwrap();
            for path in &found.matches {
                assert!(!path.ends_with("vault-only"), "found {}", path.display());
            }
            !found.matches.is_empty()
        }
        _ => {
            let options = ListOptions { recursive: true, limit: 1000 };
            let listing = scope.list(base, options, &GO).unwrap();
            for entry in &listing.entries {
                assert!(!entry.path.ends_with("vault-only"), "listed {}", entry.path);
                // Links that are listed as links have the size of their own text.
                let of_secret = entry.meta.size == SECRET.len() as u64;
                assert!(!of_secret || entry.kind != gantry_files::EntryKind::File, "size of {}", entry.path);
            }
            !listing.entries.is_empty()
        }
    }
}

#[test]
fn walks_never_reveal_closed_files() {
    let tree = SwappedTree::new();
    let (scope, base) = (scope(&[tree.root.join("vault")]), tree.root.join("base"));
    tree.attack(scaled(20_000, 1_200), |round| walk(&scope, &base, round));
}

#[test]
fn walks_and_operations_never_reveal_refused_files() {
    let tree = SwappedTree::new();
    let vault = tree.root.join("vault");
    let (scope, base) =
        (scope(&[]).refusing(Arc::new(move |path: &Path| path.starts_with(&vault))), tree.root.join("base"));
    tree.attack(scaled(40_000, 3_000), |round| {
        let path = base.join(["file", "folder/token", "through", "real/token"][round / 5 % 4]);
        match round % 5 {
            0 => scope.open(&path).and_then(|file| file.read_all(1000)).is_ok_and(|bytes| {
                assert_eq!(bytes, FINE.as_bytes(), "read {}", path.display());
                true
            }),
            1 => scope.update(&path, UpdateOptions::default()).is_ok_and(|update| {
                assert_eq!(update.bytes(), FINE.as_bytes(), "read {}", path.display());
                true
            }),
            _ => walk(&scope, &base, round),
        }
    });
}

/// The swap itself works here; otherwise the races above would prove nothing.
#[test]
fn links_can_be_swapped() {
    let tree = SwappedTree::new();
    let (shown, hidden) = &tree.swapped[0];
    rustix::fs::renameat_with(CWD, shown, CWD, hidden, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_link(shown).unwrap(), tree.root.join("vault/"));
}
