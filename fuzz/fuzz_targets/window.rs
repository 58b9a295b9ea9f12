//! Windows, put one after the other, are the file.
#![no_main]

use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use gantry_files::window::{Start, WindowRequest, window};
use gantry_files::{Files, FilesOptions, Scope};
use libfuzzer_sys::fuzz_target;

static WORLD: LazyLock<(tempfile::TempDir, Scope)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(FilesOptions { closed: vec![], pending_dir: None }).unwrap();
    let scope = files.free(folder.path()).unwrap();
    (folder, scope)
});

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, step) = input;
    let (folder, scope) = &*WORLD;
    std::fs::write(folder.path().join("f"), bytes).unwrap();
    let file = scope.open("f").unwrap();
    let cancelled = AtomicBool::new(false);
    let limit = u64::from(step % 7) + 1;
    let mut pieced = String::new();
    let mut start = 0;
    loop {
        let ask = WindowRequest { start: Start::Line(start), limit: Some(limit), max_bytes: 1 << 20 };
        let Ok(part) = window(&file, &ask, &cancelled) else { return };
        pieced.push_str(&part.text);
        if part.lines == 0 {
            break;
        }
        start += part.lines;
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.starts_with('\u{feff}')
    {
        assert_eq!(pieced, text);
    }
});
