//! Compares windows with `sed -n` on generated files, and at the sizes where the implementation
//! changes.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use gantry_files::window::{Start, Window, WindowRequest, window};
use gantry_files::{FileError, Files, FilesOptions, tag};
use gantry_testkit::{scaled, seed};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

static GO: AtomicBool = AtomicBool::new(false);

fn read(path: &Path, start: Start, limit: Option<u64>, max_bytes: usize) -> Result<Window, FileError> {
    let scope = Files::new(FilesOptions::default())?.free(path.parent().unwrap())?;
    window(&scope.open(path)?, &WindowRequest { start, limit, max_bytes, beyond_cut: 0 }, &GO)
}

#[test]
fn windows_equal_sed() {
    let seed = seed();
    let line = prop_oneof![
        8 => "[a-zé漢]{0,40}",
        1 => "[a-z]{5000}",
        // This line is longer than a block.
        1 => Just("x".repeat(600_000)),
    ];
    let ending = prop_oneof![Just("\n"), Just("\r\n")];
    let file = (prop::collection::vec((line, ending), 0..60), any::<bool>());
    let config =
        Config { cases: scaled(400, 40) as u32, rng_seed: RngSeed::Fixed(seed), ..Config::default() };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    TestRunner::new(config)
        .run(&(file, 0u64..70, 1u64..70), |((lines, final_break), start, limit)| {
            let mut text: String = lines.iter().flat_map(|(line, ending)| [line.as_str(), ending]).collect();
            if !final_break {
                text.truncate(text.trim_end_matches(['\n', '\r']).len());
            }
            std::fs::write(&path, &text).unwrap();
            let seen = read(&path, Start::Line(start), Some(limit), usize::MAX).unwrap();
            let script = format!("{},{}p", start + 1, start + limit);
            let sed = Command::new("sed").args(["-n", &script]).arg(&path).output().unwrap();
            prop_assert!(sed.status.success());
            prop_assert!(seen.text.as_bytes() == sed.stdout, "lines {script}");
            let total = text.split_inclusive('\n').count() as u64;
            prop_assert_eq!(seen.total_lines, total);
            prop_assert_eq!(seen.first_line, start.min(total));
            prop_assert_eq!(seen.lines, limit.min(total.saturating_sub(start)));
            prop_assert_eq!(seen.next, (start + limit < total).then_some(start + limit));
            prop_assert_eq!(seen.tag, tag::of_bytes(text.as_bytes()));
            let tail = read(&path, Start::FromEnd(limit), None, usize::MAX).unwrap();
            let expected: Vec<&str> = text.split_inclusive('\n').collect();
            let expected = expected[expected.len().saturating_sub(limit as usize)..].concat();
            prop_assert!(tail.text == expected, "last {limit} lines");
            Ok(())
        })
        .unwrap();
}

#[test]
fn byte_pages_join_to_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let mut text = String::new();
    for number in 0..30_000 {
        writeln!(text, "line {number} é").unwrap();
    }
    std::fs::write(&path, &text).unwrap();
    for max_bytes in [20, 1000, 65_536, 524_288] {
        let limit = if max_bytes < 100 { Some(3) } else { None };
        let (mut joined, mut next) = (String::new(), Some(0));
        while let Some(line) = next {
            let page = read(&path, Start::Line(line), limit, max_bytes).unwrap();
            assert!(page.text.len() <= max_bytes && !page.cut_line);
            joined.push_str(&page.text);
            next = page.next;
            if max_bytes < 100 && line > 30 {
                break;
            }
        }
        assert!(text.starts_with(&joined) && (max_bytes < 100 || joined == text), "{max_bytes}");
    }
}

#[test]
fn overlong_line_is_cut_at_a_character_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, "ééé\nnext\n").unwrap();
    let page = read(&path, Start::Line(0), None, 3).unwrap();
    assert_eq!((page.text.as_str(), page.lines, page.cut_line, page.truncated), ("é", 1, true, true));
    assert_eq!(page.next, Some(1));
    assert_eq!(read(&path, Start::Line(1), None, 100).unwrap().text, "next\n");
}

#[test]
fn window_edge_cases() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, "").unwrap();
    let empty = read(&path, Start::Line(5), Some(5), 100).unwrap();
    assert_eq!((empty.lines, empty.total_lines, empty.first_line, empty.next), (0, 0, 0, None));
    assert_eq!(empty.tag, tag::of_bytes(b""));
    std::fs::write(&path, b"\xef\xbb\xbfone\ntwo").unwrap();
    assert_eq!(read(&path, Start::Line(0), None, 100).unwrap().text, "one\ntwo");
    assert_eq!(read(&path, Start::Line(1), None, 100).unwrap().text, "two");
    assert_eq!(read(&path, Start::FromEnd(0), None, 100).unwrap().lines, 0);
    assert_eq!(read(&path, Start::Line(u64::MAX), Some(u64::MAX), 100).unwrap().lines, 0);
    let utf16: Vec<u8> = "\u{feff}one\r\nzwölf\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(&path, &utf16).unwrap();
    let seen = read(&path, Start::Line(1), None, 100).unwrap();
    assert_eq!((seen.text.as_str(), seen.total_lines, seen.size), ("zwölf\r\n", 2, utf16.len() as u64));
    assert_eq!(seen.tag, tag::of_bytes(&utf16));
    std::fs::write(&path, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff").unwrap();
    let err = read(&path, Start::Line(0), None, 100).unwrap_err();
    assert!(matches!(err, FileError::Binary { mime: "image/png", .. }), "{err}");
    std::fs::write(&path, b"nul\0is text\n").unwrap();
    assert_eq!(read(&path, Start::Line(0), None, 100).unwrap().lines, 1);
    // One character is cut by the end of the file, and one by the end of a block.
    std::fs::write(&path, b"ab\xc3").unwrap();
    assert!(matches!(read(&path, Start::Line(0), None, 100), Err(FileError::Binary { .. })));
    std::fs::write(&path, [&vec![b'x'; 512 * 1024 - 1][..], "é\n".as_bytes()].concat()).unwrap();
    assert_eq!(read(&path, Start::Line(0), None, usize::MAX).unwrap().total_lines, 1);
    assert!(
        read(Path::new("/proc/self/status"), Start::Line(0), Some(1), 999).unwrap().text.starts_with("Name:")
    );
}

#[test]
fn files_above_the_hashing_limit_get_a_weak_tag() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big");
    let line = "0123456789 abcdefghijklmnopqrstuvwxyz é 0123456789 abcdefghijklmnopqrstuvwxyz\n";
    let count = tag::MAX_HASHED_BYTES / line.len() as u64 + 1000;
    std::fs::write(&path, line.repeat(count as usize)).unwrap();
    let seen = read(&path, Start::FromEnd(3), None, 1000).unwrap();
    assert_eq!((seen.total_lines, seen.first_line, seen.text), (count, count - 3, line.repeat(3)));
    assert!(seen.tag.starts_with("w:"), "{}", seen.tag);
    let middle = read(&path, Start::Line(count / 2), Some(2), 1000).unwrap();
    assert_eq!((middle.lines, middle.text, middle.next), (2, line.repeat(2), Some(count / 2 + 2)));
}

#[test]
fn cancelled_read_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().free(dir.path()).unwrap();
    let file = scope.open(&path).unwrap();
    let cancelled = AtomicBool::new(false);
    let ask = WindowRequest { start: Start::FromEnd(1), limit: None, max_bytes: 100, beyond_cut: 0 };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(matches!(window(&file, &ask, &cancelled), Err(FileError::Cancelled)));
    });
}
