//! Generates directory trees with everything that makes a walk difficult.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

use gantry_testkit::Random;

const NAMES: [&str; 16] = [
    "a",
    "a.txt",
    "a.rs",
    "b",
    "b.rs",
    "src",
    "lib",
    ".hidden",
    ".env",
    "Ünïcode.md",
    "日本",
    "x y.txt",
    "-dash.rs",
    "z{1}.rs",
    "target",
    "deep",
];

/// Fills `root` with directories, files of all kinds and links, also to `outside`.
pub(crate) fn grow(random: &mut Random, root: &Path, outside: &Path) {
    fs::create_dir_all(root.join(".git/objects")).unwrap();
    fs::write(root.join(".git/needle.rs"), "needle in git\n").unwrap();
    fs::write(root.join(".gitignore"), "target\n*.txt\n").unwrap();
    fs::write(root.join(".ignore"), "*.rs\n").unwrap();
    let mut folders = vec![root.to_owned(), outside.to_owned()];
    for _ in 0..25 {
        let folder = random.pick(&folders).join(random.pick(&NAMES));
        if fs::create_dir(&folder).is_ok() {
            folders.push(folder);
        }
    }
    let mut deep = root.join("deepest");
    for level in 0..60 {
        deep.push(format!("d{level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    folders.push(deep);
    for _ in 0..120 {
        let path = random.pick(&folders).join(random.pick(&NAMES));
        if !path.exists() {
            fs::write(path, content(random)).unwrap();
        }
    }
    let odd_name = random.pick(&folders).join(OsStr::from_bytes(b"latin\xe9.rs"));
    fs::write(odd_name, "needle\n").unwrap();
    for _ in 0..25 {
        let at = random.pick(&folders).join(format!("link{}", random.below(40)));
        let target: PathBuf = match random.below(6) {
            0 => random.pick(&folders).clone(),
            1 => PathBuf::from(".."),
            2 => PathBuf::from("."),
            3 => PathBuf::from("nowhere"),
            4 => random.pick(&folders).join(random.pick(&NAMES)),
            _ => at.clone(),
        };
        // Directory links are few, because otherwise the paths through them outnumber everything.
        if !at.exists() && (random.one_in(3) || !target.is_dir()) {
            let _ = symlink(target, at);
        }
    }
}

fn content(random: &mut Random) -> Vec<u8> {
    let ending = if random.one_in(4) { "\r\n" } else { "\n" };
    let mut text = String::new();
    for _ in 0..random.below(12) {
        let line = *random.pick(&[
            "needle",
            "no such thing",
            "",
            "a needle, ünïcode",
            "Needle",
            "foo(bar)",
            "x needle",
        ]);
        text.push_str(line);
        text.push_str(ending);
    }
    if random.one_in(5) {
        text.push_str("needle at the end");
    }
    match random.below(12) {
        0 => [b"needle\n\0".as_slice(), text.as_bytes()].concat(),
        1 => [text.as_bytes(), b"\xff\xfe needle\n"].concat(),
        2 => [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect(),
        3 => [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect(),
        4 => [b"\xef\xbb\xbf".as_slice(), text.as_bytes()].concat(),
        _ => text.into_bytes(),
    }
}
