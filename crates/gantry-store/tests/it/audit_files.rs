//! The audit log over several files: rotation, retention, and their verification.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_store::{AuditFilter, AuditLimits, AuditLog, ProblemKind, list, verify};
use gantry_tool::{AuditSink, Durability};

use crate::audit::{problems, record};

const SMALL: AuditLimits = AuditLimits { max_file_bytes: 2_000, keep: None };
const NONE_KEPT: AuditLimits = AuditLimits { max_file_bytes: 2_000, keep: Some(Duration::ZERO) };

/// The folder of the writer process below, which a test starts.
const LOG: &str = "GANTRY_TEST_AUDIT_LOG";

fn written(lines: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    append(&path, SMALL, lines);
    (folder, path)
}

fn append(path: &Path, limits: AuditLimits, lines: usize) {
    let log = AuditLog::open_with(path, limits).unwrap();
    for n in 0..lines {
        log.append(record(&format!("tool-{n}"), None), Durability::Soon).unwrap();
    }
}

/// Returns the full files, oldest first.
fn full_files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.file_name().unwrap().to_string_lossy().starts_with("audit-"));
    files.sort();
    files
}

fn numbers(path: &Path, filter: &AuditFilter) -> Vec<u64> {
    list(path, filter).unwrap().iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

#[test]
fn full_file_is_closed_and_the_chain_continues() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = written(100);
    let files = full_files(&path);
    assert!(files.len() > 3, "{files:?}");
    for file in files.iter().chain([&path]) {
        let metadata = fs::metadata(file).unwrap();
        assert!(metadata.len() < 3_000, "{}", metadata.len());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    let found = verify(&path).unwrap();
    assert_eq!((found.lines, found.head, found.files), (100, Some(100), files.len() + 1));
    assert_eq!(found.problems, []);
    let all = AuditFilter { limit: 1_000, ..AuditFilter::default() };
    assert_eq!(numbers(&path, &all), Vec::from_iter(1..=100));
    assert_eq!(numbers(&path, &AuditFilter { limit: 30, ..all.clone() }), Vec::from_iter(71..=100));
    assert_eq!(numbers(&path, &AuditFilter { tool: Some("tool-4".into()), ..all.clone() }).len(), 11);
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(numbers(&path, &AuditFilter { since: Some(later), ..all }), Vec::<u64>::new());
}

#[test]
fn tampering_with_a_full_file_is_detected() {
    let tampered = |tamper: fn(&[PathBuf])| {
        let (_folder, path) = written(100);
        tamper(&full_files(&path));
        problems(&path)
    };
    let changed = tampered(|files| {
        let text = fs::read_to_string(&files[1]).unwrap();
        fs::write(&files[1], text.replacen("operator", "nobody", 1)).unwrap();
    });
    assert_eq!(changed, [ProblemKind::Changed]);
    for removed in 0..3 {
        let (_folder, path) = written(100);
        fs::remove_file(&full_files(&path)[removed]).unwrap();
        assert!(matches!(problems(&path)[..], [ProblemKind::Removed { .. }]), "{removed}");
    }
    let newest = tampered(|files| fs::remove_file(files.last().unwrap()).unwrap());
    assert!(matches!(newest[..], [ProblemKind::Removed { .. }]), "{newest:?}");
    let swapped = tampered(|files| {
        let spare = files[1].with_extension("spare");
        fs::rename(&files[1], &spare).unwrap();
        fs::rename(&files[2], &files[1]).unwrap();
        fs::rename(&spare, &files[2]).unwrap();
    });
    assert!(swapped.len() > 1, "{swapped:?}");
    let cut = tampered(|files| {
        let text = fs::read_to_string(&files[1]).unwrap();
        fs::write(&files[1], &text[..text.len() - 20]).unwrap();
    });
    assert_eq!(cut.len(), 2, "{cut:?}");
    let (_folder, path) = written(100);
    fs::remove_file(&path).unwrap();
    assert!(matches!(problems(&path)[..], [ProblemKind::CutTail { .. }]));
    let (_folder, path) = written(100);
    full_files(&path).iter().chain([&path]).for_each(|file| fs::remove_file(file).unwrap());
    assert_eq!(problems(&path), [ProblemKind::LogMissing { head: 100 }]);
}

/// Each thread opens the log itself, as separate processes do, and holds a closed file after another one rotates.
#[test]
fn concurrent_rotation_leaves_no_gap_for_readers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    AuditLog::open_with(&path, SMALL).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let path = &path;
                scope.spawn(move || {
                    let log = AuditLog::open_with(path, SMALL).unwrap();
                    for n in 0..100 {
                        let durability = match n % 10 {
                            0 => Durability::Now,
                            1 => Durability::Later,
                            _ => Durability::Soon,
                        };
                        log.append(record(&format!("writer-{writer}"), None), durability).unwrap();
                        if n % 20 == 0 {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let found = verify(&path).unwrap();
            assert_eq!((found.problems, found.torn_bytes), (vec![], 0));
        }
    });
    let found = verify(&path).unwrap();
    assert_eq!((found.lines, found.head, found.problems), (400, Some(400), vec![]));
    assert!(full_files(&path).len() > 10);
}

#[test]
fn log_without_its_current_file_continues_after_the_newest_full_one() {
    let (_folder, path) = written(100);
    // The state after a crash in the middle of a rotation.
    let last = fs::read_to_string(&path).unwrap().lines().count();
    fs::rename(&path, path.with_file_name("audit-000000000100.log")).unwrap();
    assert!(last > 0 && problems(&path).is_empty());
    // The head may be old after a power failure, or lost.
    append(&path, SMALL, 1);
    assert_eq!((verify(&path).unwrap().lines, problems(&path)), (101, vec![]));
}

#[test]
fn writer() {
    let Some(path) = std::env::var_os(LOG) else { return };
    let log = AuditLog::open_with(Path::new(&path), NONE_KEPT).unwrap();
    loop {
        log.append(record("killed", None), Durability::Soon).unwrap();
    }
}

/// Retention runs too, so that nearly every kill hits a rotation or a removal.
#[test]
fn log_verifies_after_its_writer_is_killed_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let kills = gantry_testkit::scaled(200, 15);
    let mut seen = 0;
    for kill in 0..kills {
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", "audit_files::writer", "--nocapture"]).env(LOG, &path);
        let mut writer = writer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while verify(&path).map_or(0, |found| found.head.unwrap_or(0)) <= seen {
            assert!(Instant::now() < until, "the writer does not write");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Retention begins about 30 ms after the first line: half of the kills come before it, half during it.
        std::thread::sleep(Duration::from_micros(kill * 7_919 % 80_000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let found = verify(&path).unwrap();
        assert_eq!(found.problems, []);
        seen = found.head.unwrap();
    }
    append(&path, SMALL, 1);
    assert_eq!(problems(&path), []);
    let log = AuditLog::open_with(&path, NONE_KEPT).unwrap();
    log.append(record("after", None), Durability::Soon).unwrap();
    retained(&path, 1);
}

/// Waits until retention has removed every file that it may.
fn retained(path: &Path, removed_to: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while verify(path).unwrap().removed_to < removed_to {
        assert!(Instant::now() < until, "retention never ran");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn old_files_are_removed_and_the_removal_is_recorded() {
    let (_folder, path) = written(100);
    let newest = full_files(&path).pop().unwrap();
    let newest: u64 =
        newest.file_stem().unwrap().to_string_lossy().trim_start_matches("audit-").parse().unwrap();
    let log = AuditLog::open_with(&path, NONE_KEPT).unwrap();
    log.append(record("after", None), Durability::Soon).unwrap();
    retained(&path, newest);
    drop(log);
    assert_eq!(full_files(&path), Vec::<PathBuf>::new());
    let found = verify(&path).unwrap();
    assert_eq!((found.removed_to, found.problems), (newest, vec![]));
    let lines = list(&path, &AuditFilter { limit: 1, ..AuditFilter::default() }).unwrap();
    assert_eq!((&lines[0]["phase"], &lines[0]["removedTo"]), (&"retention".into(), &newest.into()));
    // Without the sealed start the removal counts as tampering.
    let start = path.with_extension("start");
    let sealed = fs::read_to_string(&start).unwrap();
    fs::remove_file(&start).unwrap();
    assert_eq!(problems(&path), [ProblemKind::Removed { from: 1, to: newest }]);
    fs::write(&start, sealed.replacen(&newest.to_string(), "7", 1)).unwrap();
    assert_eq!(problems(&path)[0], ProblemKind::StartForged);
}

#[test]
fn young_files_and_files_that_do_not_verify_are_kept() {
    let (_folder, path) = written(100);
    let files = full_files(&path);
    append(&path, AuditLimits { keep: Some(Duration::from_secs(3600)), ..SMALL }, 1);
    assert_eq!(full_files(&path)[..files.len()], files);
    // An attacker makes a file look old to have its lines removed.
    let text = fs::read_to_string(&files[1]).unwrap();
    fs::write(&files[1], text.lines().last().unwrap().to_owned() + "\n").unwrap();
    let first = verify(&path).unwrap();
    append(&path, NONE_KEPT, 1);
    assert!(!files[0].exists() && files[1].exists() && files[2].exists());
    assert_eq!(verify(&path).unwrap().problems.len(), first.problems.len());
}

#[test]
fn log_without_its_key_and_newest_file_is_not_intact() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    assert!(verify(&log).unwrap().problems.is_empty(), "nothing was ever written");
    fs::write(folder.path().join("audit-000000000009.log"), "{}\n").unwrap();
    assert!(verify(&log).is_err(), "a file of the log is there, and its key is not");
}
