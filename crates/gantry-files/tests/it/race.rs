//! A link that is swapped in at full speed never lets an operation out of its scope.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gantry_files::testing::Arena;
use gantry_files::{Files, FilesOptions, ListOptions, Scope, UpdateOptions, WriteOptions};
use gantry_testkit::scaled;
use rustix::fs::{CWD, RenameFlags};

static GO: AtomicBool = AtomicBool::new(false);

#[test]
fn swapped_links_never_leave_the_scope() {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new(dir.path()).unwrap();
    let root = arena.workspace();
    // `swap_dir` is a directory or a link to the outside; `swap_file` is a file or a link to the
    // secret.
    std::fs::create_dir(root.join("swap_dir")).unwrap();
    std::fs::write(root.join("swap_dir/secret"), "inside").unwrap();
    std::os::unix::fs::symlink("../outside", root.join("swap_dir_link")).unwrap();
    std::fs::write(root.join("swap_file"), "inside").unwrap();
    std::os::unix::fs::symlink("../outside/secret", root.join("swap_file_link")).unwrap();
    let before = arena.outside().unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(&root).unwrap();

    let done = AtomicBool::new(false);
    let swaps = AtomicUsize::new(0);
    let operations = scaled(200_000, 10_000);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap(&root.join("swap_dir"), &root.join("swap_dir_link"));
                swap(&root.join("swap_file"), &root.join("swap_file_link"));
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stop = StopAtEnd(&done);
        // On a busy machine the swapper may pause, so this continues until both sides have really
        // met.
        let (mut round, mut succeeded) = (0, 0);
        while round < operations || (succeeded < 20 || swaps.load(Ordering::Relaxed) < 100) {
            succeeded += usize::from(operate(&scope, round));
            round += 1;
            assert!(round < operations * 50, "{succeeded} operations found the inside: no race was run");
        }
    });
    assert_eq!(arena.outside().unwrap(), before);
}

/// Stops the swapper also when an operation panics, so that a failure is visible and does not hang.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn swap(one: &Path, other: &Path) {
    let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
}

/// Runs one operation and returns whether it succeeded. Anything from outside fails the test.
fn operate(scope: &Scope, round: usize) -> bool {
    let path = ["swap_dir/secret", "swap_file", "swap_dir/../swap_dir/secret"][round % 3];
    match round / 3 % 24 {
        0..=19 => {
            let read = scope.open(path).and_then(|file| file.read_all(1000));
            read.is_ok_and(|bytes| {
                assert!(!Arena::leaks(&bytes), "{path}");
                true
            })
        }
        20 => scope.replace(path, &[b"written"], WriteOptions::default()).is_ok(),
        21 => {
            let update = scope.update(path, UpdateOptions::default());
            update.is_ok_and(|update| {
                assert!(!Arena::leaks(update.bytes()), "{path}");
                update.write(&[b"updated"]).is_ok()
            })
        }
        22 => {
            let make = WriteOptions { make_parents: true, only_new: false };
            scope.replace(format!("swap_dir/made/{round}"), &[b"new"], make).is_ok()
        }
        _ => {
            let listing = scope.list("swap_dir", ListOptions { recursive: true, limit: 50 }, &GO);
            listing.is_ok_and(|listing| {
                // Only the outside has a directory of this name.
                assert!(listing.entries.iter().all(|entry| entry.path != "dir"), "listed the outside");
                true
            })
        }
    }
}
