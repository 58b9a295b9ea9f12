//! Measures how long it takes to find the files that a command changed in a workspace of 10,000 files.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program, which fails by panicking"
)]

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use gantry_files::{Changed, ScanLimits, changed_since};

const DIRECTORIES: usize = 100;
const FILES_IN_EACH: usize = 100;
const ROUNDS: usize = 51;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    for directory in 0..DIRECTORIES {
        let directory = folder.path().join(format!("d{directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..FILES_IN_EACH {
            fs::write(directory.join(format!("{file}.rs")), "fn main() {}\n").unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(100));
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let since = SystemTime::now();
        fs::write(folder.path().join(format!("d{}/7.rs", round % DIRECTORIES)), "changed\n").unwrap();
        let begun = Instant::now();
        let Changed::Paths(paths) = changed_since(folder.path(), since, ScanLimits::default()) else {
            panic!("the scan reached a limit")
        };
        times.push(begun.elapsed());
        assert!(!paths.is_empty());
        std::thread::sleep(Duration::from_millis(30));
    }
    times.sort();
    println!("{{\"scanMs\": {:.2}}}", times[ROUNDS / 2].as_secs_f64() * 1e3);
}
