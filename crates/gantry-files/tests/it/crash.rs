//! `kill -9` at any moment leaves the old file or the new one, keeps acknowledged writes, and
//! leaves no temp file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_files::{Files, FilesOptions, Scope, WriteOptions, tag};
use gantry_testkit::{Random, scaled, seed};

/// Names the directory where the writer below works. The next test starts the writer.
const DIR: &str = "GANTRY_TEST_CRASH_DIR";

#[test]
fn writer() {
    let Some(dir) = std::env::var_os(DIR) else {
        // Run as a test by itself, it proves what the killed one relies on: a complete file after
        // each write.
        let dir = tempfile::tempdir().unwrap();
        let scope = open(dir.path());
        for round in 0..3 {
            write(&scope, round);
            assert_eq!(check_whole(&dir.path().join("ws/file")), round);
        }
        return;
    };
    let scope = open(Path::new(&dir));
    for round in 0.. {
        write(&scope, round);
        println!("\nacknowledged {round}");
    }
}

#[test]
fn killed_writers_leave_complete_files_and_no_temp_files() {
    let seed = seed();
    let mut random = Random::from_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ws/file");
    let mut interrupted = 0;
    for _ in 0..scaled(200, 20) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writer", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = None;
        let mut note = |line: &str| {
            if let Some(round) = line.strip_prefix("acknowledged ") {
                acknowledged = Some(round.parse::<u64>().unwrap());
            }
        };
        // The first acknowledgement shows that the writer works. It is killed after a random time.
        loop {
            let line = lines.next().unwrap().unwrap();
            note(&line);
            if line.starts_with("acknowledged") {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(random.next_u64() % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(|line| note(&line));
        let round = check_whole(&file);
        assert!(round >= acknowledged.unwrap(), "acknowledged {acknowledged:?}, found {round}");
        interrupted += usize::from(temp_files(&dir.path().join("ws")) > 0);
        drop(open(dir.path()));
        assert_eq!(temp_files(&dir.path().join("ws")), 0);
        assert_eq!(records(dir.path()), 0);
    }
    assert!(interrupted > 0, "no writer was killed in the middle of a write");
}

/// The number of records of unfinished writes. The folder also has the locks of files.
fn records(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir.join("pending")).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name != "locks").count()
}

#[test]
fn temp_files_of_a_living_process_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let scope = open(dir.path());
    write(&scope, 1);
    let update = scope.update("file", Default::default()).unwrap();
    // Another start while this process lives must not take its record for that of a dead process.
    drop(open(dir.path()));
    assert_eq!(records(dir.path()), 1);
    update.write(&[update.bytes()]).unwrap();
    assert_eq!(check_whole(&dir.path().join("ws/file")), 1);
}

fn open(dir: &Path) -> Scope {
    std::fs::create_dir_all(dir.join("ws")).unwrap();
    let options = FilesOptions { closed: Vec::new(), pending_dir: Some(dir.join("pending")) };
    Files::new(options).unwrap().contained(&dir.join("ws")).unwrap()
}

/// Writes a file that contains its round and the tag of its body.
fn write(scope: &Scope, round: u64) {
    let body = vec![b'a' + (round % 26) as u8; 300_000 + (round as usize % 7) * 100_000];
    let head = format!("{round} {}\n", tag::of_bytes(&body));
    scope.replace("file", &[head.as_bytes(), &body], WriteOptions::default()).unwrap();
}

fn check_whole(file: &Path) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap();
    let head = std::str::from_utf8(line).unwrap();
    let (round, tag) = head.split_once(' ').unwrap();
    assert_eq!(tag::of_bytes(&bytes[line.len() + 1..]), tag, "torn file");
    round.parse().unwrap()
}

fn temp_files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().file_name() != "file").count()
}
