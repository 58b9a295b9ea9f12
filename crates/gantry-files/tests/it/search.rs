//! Compares Grep with `rg`.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
};

use gantry_files::{LINE_CHARS, MATCH_LIMIT, MAX_LINE_BYTES, SearchError, SearchResult, WalkOptions};
use gantry_testkit::{Random, scaled};

use crate::{
    tree,
    walking::{scope, search},
};

static RUNNING: AtomicBool = AtomicBool::new(false);

fn options(threads: usize) -> WalkOptions<'static> {
    WalkOptions { threads, cancelled: &RUNNING }
}

/// Compares the matching lines as `name:line:content`.
fn check(files: &[(&str, &[u8])], pattern: &str, include: Option<&str>, expected: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let found = search(dir.path(), pattern, include, &options(2)).unwrap();
    let lines: Vec<String> = found
        .matches
        .iter()
        .map(|found| {
            let name = found.path.strip_prefix(dir.path()).unwrap().display();
            format!("{name}:{}:{}", found.line, found.content)
        })
        .collect();
    assert_eq!(lines, expected, "{pattern}");
}

#[test]
fn matches_come_in_path_order() {
    let files: [(&str, &[u8]); 4] =
        [("a.txt", b"hit\n"), ("a/x", b"no\nhit\r\n"), ("a-b", b"hit"), (".git/x", b"hit")];
    check(&files, "hit", None, &["a/x:2:hit", "a-b:1:hit", "a.txt:1:hit"]);
}

#[test]
fn pattern_sees_one_line_without_its_ending() {
    let text: &[u8] = b"foo\r\nbar\n\nlast";
    let file = |pattern, expected: &[&str]| check(&[("f", text)], pattern, None, expected);
    file("foo$", &["f:1:foo"]);
    file("^$", &["f:3:"]);
    file("", &["f:1:foo", "f:2:bar", "f:3:", "f:4:last"]);
    file("o\\s", &[]);
    file("(?s)foo.*bar", &[]);
    file("foo\\n?", &["f:1:foo"]);
    file("foo\\r?\\nbar", &[]);
    file("\\Abar\\z", &["f:2:bar"]);
    file("(?i)LAST$", &["f:4:last"]);
    file("[^x]$", &["f:1:foo", "f:2:bar", "f:4:last"]);
    file("\\r", &[]);
}

#[test]
fn only_text_is_searched() {
    let utf16: Vec<u8> =
        [0xff, 0xfe].into_iter().chain("héllo\nhit ü\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let odd_utf16 = [utf16.as_slice(), b"x"].concat();
    let late_nul = [b"hit\n".as_slice(), &b"x".repeat(200_000), b"\n\0"].concat();
    let late_invalid = [b"hit\n".as_slice(), &b"x\n".repeat(100_000), b"\xff"].concat();
    let late_hit = ["ü\n".repeat(100_000).as_bytes(), b"hit"].concat();
    let files: [(&str, &[u8]); 8] = [
        ("bom", b"\xef\xbb\xbfhit"),
        ("latin", b"hit \xe9\n"),
        ("late-hit", &late_hit),
        ("late-invalid", &late_invalid),
        ("late-nul", &late_nul),
        ("nul", b"hit\0"),
        ("utf16", &utf16),
        ("utf16-odd", &odd_utf16),
    ];
    check(&files, "^hit", None, &["bom:1:hit", "late-hit:100001:hit", "utf16:2:hit ü"]);
}

#[test]
fn include_matches_the_file_name_and_supports_braces() {
    let files: [(&str, &[u8]); 3] = [("a.rs", b"hit"), ("b.ts", b"hit"), ("rs/c.md", b"hit")];
    check(&files, "hit", Some("*.{rs,ts}"), &["a.rs:1:hit", "b.ts:1:hit"]);
    check(&files, "hit", Some("c*"), &["rs/c.md:1:hit"]);
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        search(dir.path(), "x", Some("src/*.rs"), &options(1)),
        Err(SearchError::IncludePath(_))
    ));
    assert!(matches!(search(dir.path(), "x", Some("["), &options(1)), Err(SearchError::Include { .. })));
    assert!(matches!(search(dir.path(), "(", None, &options(1)), Err(SearchError::Pattern(_))));
}

#[test]
fn limit_counts_matches_not_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "hit\n".repeat(MATCH_LIMIT)).unwrap();
    let exactly = search(dir.path(), "hit", None, &options(2)).unwrap();
    assert_eq!((exactly.matches.len(), exactly.truncated), (MATCH_LIMIT, false));
    // These files are far enough behind that another thread, or none, searches them.
    for index in 0..100 {
        fs::write(dir.path().join(format!("a{index}")), "nothing\n").unwrap();
    }
    fs::write(dir.path().join("b"), "hit\n").unwrap();
    let more = search(dir.path(), "hit", None, &options(2)).unwrap();
    assert_eq!((more.matches.len(), more.truncated), (MATCH_LIMIT, true));
    assert!(more.matches.iter().all(|found| found.path.ends_with("a")));
    let one_file = search(&dir.path().join("b"), "hit", None, &options(2)).unwrap();
    assert_eq!((one_file.matches.len(), one_file.truncated), (1, false));
}

#[test]
fn long_lines_are_cut_at_characters_and_huge_ones_reported() {
    let dir = tempfile::tempdir().unwrap();
    let long = "ü".repeat(LINE_CHARS + 1);
    let exact = "ü".repeat(LINE_CHARS);
    fs::write(dir.path().join("a"), format!("{long}\n{exact}\n")).unwrap();
    let found = search(dir.path(), "ü", None, &options(1)).unwrap();
    let cuts: Vec<_> =
        found.matches.iter().map(|found| (found.content == exact, !found.beyond.is_empty())).collect();
    assert_eq!(cuts, [(true, true), (true, false)]);

    let mut huge = vec![b'x'; MAX_LINE_BYTES + 70_000];
    huge.extend_from_slice(b"\nhit\n");
    fs::write(dir.path().join("b"), &huge).unwrap();
    let found = search(dir.path(), "hit|xx", None, &options(1)).unwrap();
    assert_eq!((found.skipped.long_lines, found.skipped.example), (1, Some(dir.path().join("b"))));
    assert_eq!(
        found.matches.iter().map(|found| (found.line, found.content.as_str())).collect::<Vec<_>>(),
        [(2, "hit")]
    );

    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(huge.iter().flat_map(|byte| [*byte, 0])).collect();
    fs::write(dir.path().join("b"), utf16).unwrap();
    let again = search(dir.path(), "hit|xx", None, &options(1)).unwrap();
    assert_eq!((again.matches, again.skipped.long_lines), (found.matches, 1));
}

#[test]
fn closed_files_are_not_searched() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("data/keys")).unwrap();
    fs::write(dir.path().join("data/keys/secret"), "hit\n").unwrap();
    fs::write(dir.path().join("config"), "hit\n").unwrap();
    fs::hard_link(dir.path().join("config"), dir.path().join("alias")).unwrap();
    for (link, target) in [
        ("to-data", "data"),
        ("to-keys", "data/keys"),
        ("to-secret", "data/keys/secret"),
        ("to-config", "config"),
    ] {
        symlink(dir.path().join(target), dir.path().join(link)).unwrap();
    }
    assert_eq!(search(dir.path(), "hit", None, &options(1)).unwrap().matches.len(), 7);
    let scope = scope(&[dir.path().join("data"), dir.path().join("config")]);
    let base = scope.open_base(dir.path()).unwrap();
    assert_eq!(scope.search(&base, "hit", None, &options(2)).unwrap(), SearchResult::default());
}

#[test]
fn cancelled_search_returns_cancelled() {
    let cancelled = AtomicBool::new(true);
    let options = WalkOptions { threads: 2, cancelled: &cancelled };
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(search(dir.path(), "x", None, &options), Err(SearchError::Cancelled)));
}

#[test]
fn search_equals_rg_on_generated_trees() {
    let mut random = Random::new();
    let mut compared = 0;
    for _ in 0..scaled(100, 10) {
        let dir = tempfile::tempdir().unwrap();
        let (base, outside) = (dir.path().join("base"), dir.path().join("outside"));
        fs::create_dir(&base).unwrap();
        fs::create_dir(&outside).unwrap();
        tree::grow(&mut random, &base, &outside);
        for (pattern, include) in [
            ("needle", None),
            ("^needle", Some("*.rs")),
            ("(?i)^NEEDLE$", None),
            ("ünï", None),
            ("o{2}\\(", Some("{a,b}*")),
        ] {
            let mut expected = rg(&base, pattern, include);
            let truncated = expected.len() > MATCH_LIMIT;
            expected.truncate(MATCH_LIMIT);
            compared += expected.len();
            for threads in [1, 2, 7] {
                let found = search(&base, pattern, include, &options(threads)).unwrap();
                let lines: Vec<_> =
                    found.matches.into_iter().map(|found| (found.path, found.line, found.content)).collect();
                assert_eq!(lines, expected, "{pattern} {include:?} with {threads} threads");
                assert_eq!(found.truncated, truncated);
            }
        }
    }
    assert!(compared > 300, "too little to compare: {compared}");
}

/// Returns what `rg` finds, in our order. Two kinds of results are left out: files that are not
/// UTF-8 to the end (`rg` stops at the first bad byte), and loops through a directory above the
/// base, which `rg` runs through once.
fn rg(base: &Path, pattern: &str, include: Option<&str>) -> Vec<(PathBuf, u64, String)> {
    let mut command = Command::new("rg");
    command.args([
        "-uu",
        "-L",
        "--crlf",
        "--no-heading",
        "--no-messages",
        "-n",
        "-0",
        "--with-filename",
        "--color=never",
    ]);
    command.args(["-g", "!.git/"]);
    if let Some(include) = include {
        command.args(["-g", include]);
    }
    let output = command.arg("-e").arg(pattern).arg(base).output().expect("rg is needed");
    let mut found = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Some(split) = line.iter().position(|byte| *byte == 0) else { continue };
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&line[..split]));
        let rest = String::from_utf8_lossy(&line[split + 1..]).into_owned();
        let (number, content) = rest.split_once(':').unwrap();
        if enters_twice(base, &path) {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
        if utf16 || (std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0)) {
            let content = content.strip_suffix('\r').unwrap_or(content).to_owned();
            found.push((path, number.parse::<u64>().unwrap(), content));
        }
    }
    found.sort_by(|left, right| left.0.cmp(&right.0).then(left.1.cmp(&right.1)));
    found
}

fn enters_twice(base: &Path, path: &Path) -> bool {
    let mut seen = Vec::new();
    path.ancestors().skip(1).take_while(|folder| folder.starts_with(base)).any(|folder| {
        let metadata = fs::metadata(folder).unwrap();
        let id = (metadata.dev(), metadata.ino());
        let again = seen.contains(&id);
        seen.push(id);
        again
    })
}
