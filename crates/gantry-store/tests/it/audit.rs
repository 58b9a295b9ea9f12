use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_store::{AuditFilter, AuditLog, ProblemKind, list, verify};
use gantry_tool::{AuditRecord, AuditSink, Durability, Phase};

pub(crate) fn record(tool: &str, status: Option<&str>) -> AuditRecord {
    AuditRecord {
        call: "c1".into(),
        phase: if status.is_some() { Phase::End } else { Phase::Begin },
        principal: "operator".into(),
        agent: "main".into(),
        surface: "cli".into(),
        tool: tool.into(),
        input: Some(serde_json::json!({"path": "a\nb\"c"})),
        rule: None,
        status: status.map(|status| status.to_owned().into()),
        error: None,
        duration_ms: None,
    }
}

fn written(lines: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::open(&path).unwrap();
    for n in 0..lines {
        log.append(record(&format!("tool-{n}"), None), Durability::Soon).unwrap();
    }
    log.flush().unwrap();
    (folder, path)
}

pub(crate) fn problems(path: &Path) -> Vec<ProblemKind> {
    verify(path).unwrap().problems.into_iter().map(|problem| problem.kind).collect()
}

fn tampered(edit: impl FnOnce(&mut Vec<String>)) -> Vec<ProblemKind> {
    let (_folder, path) = written(10);
    let mut lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    edit(&mut lines);
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    problems(&path)
}

#[test]
fn untouched_log_is_intact_and_private() {
    let (_folder, path) = written(25);
    let found = verify(&path).unwrap();
    assert_eq!((found.lines, found.head, found.is_intact()), (25, Some(25), true));
    for file in ["audit.key", "audit.log", "audit.head"] {
        let mode = fs::metadata(path.with_file_name(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn every_kind_of_tampering_is_detected() {
    assert_eq!(tampered(|lines| lines[4] = lines[4].replace("tool-4", "tool-x")), [ProblemKind::Changed]);
    let removed = tampered(|lines| drop(lines.remove(4)));
    assert_eq!(removed, [ProblemKind::Removed { from: 5, to: 5 }]);
    assert!(tampered(|lines| lines.swap(3, 4)).len() >= 2);
    let inserted = tampered(|lines| lines.insert(5, lines[2].clone()));
    assert_eq!(inserted, [ProblemKind::OutOfOrder { found: 3, expected: 6 }]);
    assert_eq!(tampered(|lines| lines.insert(5, "{}".into())), [ProblemKind::Unreadable]);
    assert_eq!(tampered(|lines| lines.truncate(7)), [ProblemKind::CutTail { last: 7, head: 10 }]);
    assert_eq!(tampered(|lines| drop(lines.remove(0)))[0], ProblemKind::Removed { from: 1, to: 1 });
    assert_eq!(tampered(Vec::clear), [ProblemKind::LogMissing { head: 10 }]);
    let renumbered = tampered(|lines| {
        lines.remove(4);
        lines[4] = lines[4].replace("\"seq\":6", "\"seq\":5");
    });
    assert_eq!(renumbered[0], ProblemKind::Changed);
}

#[test]
fn change_of_any_byte_is_detected() {
    let (_folder, path) = written(3);
    let original = fs::read(&path).unwrap();
    for at in 0..original.len() {
        let mut bytes = original.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(!problems(&path).is_empty(), "flipping byte {at} went unseen");
    }
}

#[test]
fn missing_or_forged_head_is_detected() {
    let (_folder, path) = written(3);
    let head = path.with_extension("head");
    let sealed = fs::read(&head).unwrap();
    fs::write(&head, String::from_utf8(sealed).unwrap().replacen('3', "2", 1)).unwrap();
    assert_eq!(problems(&path), [ProblemKind::HeadForged]);
    fs::remove_file(&head).unwrap();
    assert_eq!(problems(&path), [ProblemKind::HeadForged]);
}

#[test]
fn truncation_stays_visible_after_more_lines() {
    let (_folder, path) = written(10);
    let cut: String =
        fs::read_to_string(&path).unwrap().lines().take(4).map(|line| format!("{line}\n")).collect();
    fs::write(&path, cut).unwrap();
    let log = AuditLog::open(&path).unwrap();
    for _ in 0..5 {
        log.append(record("after", None), Durability::Now).unwrap();
    }
    assert_eq!(problems(&path), [ProblemKind::Removed { from: 5, to: 10 }]);
}

#[test]
fn truncation_under_a_running_writer_stays_visible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::open(&path).unwrap();
    for _ in 0..5 {
        log.append(record("before", None), Durability::Now).unwrap();
    }
    let cut: String =
        fs::read_to_string(&path).unwrap().lines().take(2).map(|line| format!("{line}\n")).collect();
    fs::write(&path, cut).unwrap();
    log.append(record("after", None), Durability::Now).unwrap();
    assert_eq!(problems(&path), [ProblemKind::Removed { from: 3, to: 5 }]);
}

#[test]
fn emptied_files_are_detected_permanently() {
    for emptied in [&["log", "head"][..], &["head"]] {
        let (_folder, path) = written(5);
        for extension in emptied {
            fs::write(path.with_extension(extension), "").unwrap();
        }
        assert!(problems(&path).contains(&ProblemKind::HeadForged), "{emptied:?}");
        let log = AuditLog::open(&path).unwrap();
        log.append(record("after", None), Durability::Now).unwrap();
        assert!(
            matches!(problems(&path)[..], [ProblemKind::Removed { .. }]),
            "{emptied:?}: {:?}",
            problems(&path)
        );
    }
}

#[test]
fn lines_of_any_length_verify() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let long = AuditRecord { error: Some("x".repeat(3 << 20)), ..record("long", None) };
    AuditLog::open(&path).unwrap().append(long, Durability::Now).unwrap();
    AuditLog::open(&path).unwrap().append(record("next", None), Durability::Now).unwrap();
    assert_eq!((verify(&path).unwrap().lines, problems(&path)), (2, vec![]));
}

#[test]
fn partial_line_of_another_process_does_not_stop_a_running_writer() {
    let (_folder, path) = written(3);
    let log = AuditLog::open(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"seq\":4");
    fs::write(&path, bytes).unwrap();
    log.append(record("after", None), Durability::Now).unwrap();
    assert_eq!((verify(&path).unwrap().lines, problems(&path)), (5, vec![]));
}

#[test]
fn log_rewritten_without_the_key_is_detected() {
    let (_folder, path) = written(5);
    let (_other, forged) = written(5);
    fs::copy(&forged, &path).unwrap();
    assert!(problems(&path).len() >= 5);
}

#[test]
fn partial_line_after_a_crash_is_reported_and_removed() {
    let (_folder, path) = written(3);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"seq\":4,\"at\":\"2026");
    fs::write(&path, bytes).unwrap();
    let found = verify(&path).unwrap();
    assert_eq!((found.torn_bytes, found.problems), (19, vec![]));
    let log = AuditLog::open(&path).unwrap();
    log.append(record("after", None), Durability::Now).unwrap();
    assert!(verify(&path).unwrap().is_intact());
    let lines = list(&path, &AuditFilter { limit: 2, ..AuditFilter::default() }).unwrap();
    assert_eq!(
        (lines[0]["phase"].as_str(), lines[0]["droppedBytes"].as_u64()),
        (Some("recovered"), Some(19))
    );
}

#[test]
fn foreign_bytes_after_the_last_line_are_detected() {
    for appended in [&b"garbage"[..], b"{\"seq\":9,\"at\":\"2026", b"\0\0\0", b" "] {
        let (_folder, path) = written(3);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole, appended].concat()).unwrap();
        let bytes = appended.len() as u64;
        assert_eq!(problems(&path), [ProblemKind::Appended { bytes }], "{appended:?}");
        // The next writer removes the bytes and records that.
        AuditLog::open(&path).unwrap().append(record("after", None), Durability::Now).unwrap();
        assert_eq!((problems(&path), verify(&path).unwrap().lines), (vec![], 5));
    }
}

#[test]
fn concurrent_writers_make_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    // Each thread opens the log itself, as separate processes do.
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let log = AuditLog::open(path).unwrap();
                for n in 0..50 {
                    let durability = if n % 10 == 0 { Durability::Now } else { Durability::Soon };
                    log.append(record(&format!("writer-{writer}"), None), durability).unwrap();
                }
            });
        }
    });
    let found = verify(&path).unwrap();
    assert_eq!((found.lines, found.head, found.problems), (200, Some(200), vec![]));
}

#[test]
fn busy_writer_does_not_starve_others() {
    let (_folder, path) = written(0);
    let (busy, other) = (AuditLog::open(&path).unwrap(), AuditLog::open(&path).unwrap());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                busy.append(record("busy", None), Durability::Soon).unwrap();
            }
        });
        let waits = (0..8).map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let asked = Instant::now();
            other.append(record("other", None), Durability::Soon).unwrap();
            asked.elapsed()
        });
        let longest = waits.max().unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        longest
    });
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    drop((busy, other));
    assert_eq!(problems(&path), []);
}

#[test]
fn outcomes_are_written_in_order_within_the_window() {
    let (_folder, path) = written(0);
    let log = AuditLog::open(&path).unwrap();
    for _ in 0..3 {
        log.append(record("begin", None), Durability::Soon).unwrap();
        log.append(record("end", Some("success")), Durability::Later).unwrap();
    }
    let lines = || fs::read_to_string(&path).unwrap().lines().count();
    assert!(lines() >= 5, "a line is written no later than the next one");
    let until = Instant::now() + Duration::from_secs(5);
    while lines() < 6 {
        assert!(Instant::now() < until, "the last outcome is never written");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(log);
    assert_eq!(problems(&path), []);
}

#[test]
fn deferred_outcomes_keep_their_order_and_time() {
    let (_folder, path) = written(0);
    let log = AuditLog::open(&path).unwrap();
    log.append(record("begin", None), Durability::Soon).unwrap();
    log.append(record("end", Some("success")), Durability::Later).unwrap();
    let ended = jiff::Timestamp::now();
    std::thread::sleep(Duration::from_millis(2));
    // The log is the same whether records are formatted now or with the next one.
    log.settle();
    log.append(record("end", Some("success")), Durability::Later).unwrap();
    log.append(record("next", None), Durability::Now).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tools: Vec<_> = lines.iter().map(|line| line["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["begin", "end", "end", "next"]);
    assert!(lines[1]["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() <= ended);
    // More records than may be deferred; none is lost.
    for _ in 0..1_000 {
        log.append(record("end", Some("success")), Durability::Later).unwrap();
    }
    drop(log);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1_004);
    assert_eq!(problems(&path), []);
}

#[test]
fn deferred_begin_is_written_before_any_end_is_accepted() {
    let (_folder, path) = written(0);
    let log = AuditLog::open(&path).unwrap();
    let record = |tool: &str, phase| AuditRecord { phase, ..record(tool, None) };
    let lines = || fs::read_to_string(&path).unwrap().lines().count();
    // The lock is kept from here on for about 30 ms.
    log.append(record("first", Phase::Begin), Durability::Soon).unwrap();
    log.append(record("a", Phase::Begin), Durability::Later).unwrap();
    log.append(record("b", Phase::Begin), Durability::Later).unwrap();
    log.append(record("a", Phase::End), Durability::Later).unwrap();
    assert!(lines() >= 3, "both beginnings: {}", lines());
    log.append(record("c", Phase::Begin), Durability::Later).unwrap();
    log.settle();
    assert!(lines() >= 5, "while nobody waits: {}", lines());
    drop(log);
    let text = fs::read_to_string(&path).unwrap();
    let tools: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["tool"].to_string())
        .collect();
    assert_eq!(tools, ["\"first\"", "\"a\"", "\"b\"", "\"a\"", "\"c\""]);
    assert_eq!(problems(&path), []);
}

#[test]
fn head_advances_within_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::open(&path).unwrap();
    log.append(record("t", None), Durability::Soon).unwrap();
    // The limit is 50 ms; a busy machine may schedule the thread later.
    let until = Instant::now() + Duration::from_millis(500);
    while verify(&path).unwrap().head != Some(1) {
        assert!(Instant::now() < until, "the syncing thread never ran");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn full_disk_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let log = AuditLog::open(&path).unwrap();
    assert!(log.append(record("t", None), Durability::Now).is_err());
}

#[test]
fn listing_filters_and_keeps_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::open(&path).unwrap();
    for (tool, status) in [("read", "success"), ("exec", "denied"), ("read", "failure"), ("read", "success")]
    {
        log.append(record(tool, Some(status)), Durability::Soon).unwrap();
    }
    let tools = |filter: AuditFilter| -> Vec<u64> {
        list(&path, &filter).unwrap().iter().map(|line| line["seq"].as_u64().unwrap()).collect()
    };
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    assert_eq!(tools(AuditFilter { tool: Some("re".into()), ..all.clone() }), [1, 3, 4]);
    assert_eq!(tools(AuditFilter { status: Some("denied".into()), ..all.clone() }), [2]);
    assert_eq!(tools(AuditFilter { limit: 2, ..all.clone() }), [3, 4]);
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(tools(AuditFilter { since: Some(later), ..all }), Vec::<u64>::new());
    assert_eq!(list(&folder.path().join("none.log"), &AuditFilter::default()).unwrap().len(), 0);
}
