//! No string leads a contained scope out of its root, and none makes it panic.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use gantry_files::{Files, FilesOptions, Scope, WriteOptions};
use libfuzzer_sys::fuzz_target;

struct World {
    root: PathBuf,
    outside: PathBuf,
    scope: Scope,
    _folder: tempfile::TempDir,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let (root, outside) = (base.join("root"), base.join("out"));
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(root.join("a/f"), "in").unwrap();
    std::fs::write(outside.join("f"), "secret").unwrap();
    for (target, link) in [("..", "up"), ("../../out", "a/o"), ("/", "abs"), ("a", "in"), ("loop", "loop"), ("/proc/self/root", "p")] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    let files = Files::new(FilesOptions { closed: vec![], pending_dir: None }).unwrap();
    World { scope: files.contained(&root).unwrap(), root, outside, _folder: folder }
});

fuzz_target!(|path: &str| {
    let world = &*WORLD;
    if let Ok(file) = world.scope.open(path) {
        assert!(file.path.starts_with(&world.root), "{path:?} opened {:?}", file.path);
    }
    if let Ok(real) = world.scope.resolve(path) {
        assert!(real.starts_with(&world.root), "{path:?} resolves to {real:?}");
    }
    if let Ok(dir) = world.scope.open_dir(path) {
        assert!(dir.path.starts_with(&world.root), "{path:?} opened {:?}", dir.path);
    }
    let options = WriteOptions { make_parents: false, only_new: true };
    if let Ok(written) = world.scope.replace(path, &[b"x"], options) {
        assert!(written.path.starts_with(&world.root), "{path:?} wrote {:?}", written.path);
        let _ = std::fs::remove_file(written.path);
    }
    assert_eq!(std::fs::read_dir(&world.outside).unwrap().count(), 1);
});
