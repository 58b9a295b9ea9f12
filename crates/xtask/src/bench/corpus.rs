//! Generates the files for the benchmarks under `target/bench`. The bytes are the same every time.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

pub(super) const RARE: &str = "zanzibar_turnstile_[0-9]+";
pub(super) const COMMON: &str = "return";

const FILES: u64 = 52_000;
const BIG_BYTES: u64 = 1 << 30;
const EDIT_BYTES: usize = 100 << 20;
const PATCH_BYTES: usize = 10 << 20;
const HUNKS: usize = 500;

pub(super) struct Corpus {
    root: PathBuf,
    pub(super) tree: PathBuf,
    /// The data directory of the measured gantry.
    pub(super) data: PathBuf,
}

pub(super) struct BigFile {
    pub(super) path: PathBuf,
    pub(super) lines: u64,
}

pub(super) struct PatchWork {
    pub(super) folder: PathBuf,
    pub(super) diff: PathBuf,
    pub(super) input: PathBuf,
    original: PathBuf,
}

impl Corpus {
    pub(super) fn make(root: &Path) -> Result<Corpus> {
        let corpus = Corpus { root: root.to_owned(), tree: root.join("tree"), data: root.join("data") };
        let done = root.join("tree.done");
        if !done.exists() {
            println!("making a tree of {FILES} files …");
            corpus.make_tree()?;
            fs::write(done, "")?;
        }
        Ok(corpus)
    }

    fn make_tree(&self) -> Result<()> {
        let mut random = Random(7);
        for n in 0..FILES {
            let folder = self.tree.join(format!("area{}/part{}/unit{}", n % 17, n / 17 % 23, n / 391 % 29));
            fs::create_dir_all(&folder)?;
            let extension = ["rs", "rs", "c", "h", "md", "toml", "py", "js", "txt", "json"]
                [(random.next() % 10) as usize];
            let mut text = String::new();
            let lines = 20 + random.next() % 180;
            for _ in 0..lines {
                writeln!(text, "{}", random.sentence())?;
            }
            if n % 20_000 == 19_999 {
                writeln!(text, "let found = zanzibar_turnstile_{n};")?;
            }
            fs::write(folder.join(format!("file{n}.{extension}")), text)?;
        }
        Ok(())
    }

    pub(super) fn big_file(&self) -> Result<BigFile> {
        let path = self.root.join("big.txt");
        let count = self.root.join("big.lines");
        if let Ok(lines) = fs::read_to_string(&count) {
            return Ok(BigFile { path, lines: lines.parse()? });
        }
        println!("making a file of 1 GiB …");
        let mut random = Random(11);
        let block: String = (0..20_000).map(|_| random.sentence() + "\n").collect();
        let mut file = BufWriter::new(fs::File::create(&path)?);
        let (mut bytes, mut lines) = (0, 0);
        while bytes < BIG_BYTES {
            file.write_all(block.as_bytes())?;
            bytes += block.len() as u64;
            lines += 20_000;
        }
        file.flush()?;
        fs::write(count, lines.to_string())?;
        Ok(BigFile { path, lines })
    }

    /// Two equal files of 100 MiB, each with one line to change in the middle.
    pub(super) fn two_edit_files(&self) -> Result<(PathBuf, PathBuf)> {
        let mut random = Random(13);
        let block: String = (0..5_000).map(|_| random.sentence() + "\n").collect();
        let mut text = String::with_capacity(EDIT_BYTES + block.len());
        while text.len() < EDIT_BYTES {
            if text.len() >= EDIT_BYTES / 2 && !text.contains("the line") {
                text.push_str("the line A to change\n");
            }
            text.push_str(&block);
        }
        let (mine, other) = (self.root.join("edit-ours.txt"), self.root.join("edit-theirs.txt"));
        fs::write(&mine, &text)?;
        fs::write(&other, &text)?;
        Ok((mine, other))
    }

    pub(super) fn patch_work(&self) -> Result<PatchWork> {
        let folder = self.root.join("patch");
        fs::create_dir_all(&folder)?;
        let mut random = Random(17);
        let mut lines: Vec<String> = Vec::new();
        let mut bytes = 0;
        while bytes < PATCH_BYTES {
            let line = format!("{} {}", lines.len(), random.sentence());
            bytes += line.len() + 1;
            lines.push(line);
        }
        let original = folder.join("original.txt");
        fs::write(&original, lines.join("\n") + "\n")?;
        let step = lines.len() / HUNKS;
        let mut diff = "--- a/ours.txt\n+++ b/ours.txt\n".to_owned();
        for hunk in 0..HUNKS {
            let at = hunk * step + 10;
            writeln!(diff, "@@ -{},7 +{},7 @@", at + 1, at + 1)?;
            for (index, line) in lines[at..at + 7].iter().enumerate() {
                match index {
                    3 => writeln!(diff, "-{line}\n+{line} changed")?,
                    _ => writeln!(diff, " {line}")?,
                }
            }
        }
        let (diff_path, input) = (folder.join("change.diff"), folder.join("input.json"));
        fs::write(&input, serde_json::json!({"path": "ours.txt", "patch": diff}).to_string())?;
        fs::write(&diff_path, diff)?;
        Ok(PatchWork { folder, diff: diff_path, input, original })
    }
}

impl PatchWork {
    /// Puts the original under a name again.
    pub(super) fn restore(&self, name: &str) -> impl Fn() -> Result<()> + 'static {
        let (original, copy) = (self.original.clone(), self.folder.join(name));
        move || {
            fs::copy(&original, &copy)?;
            Ok(())
        }
    }
}

/// A small generator of the same numbers every time (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn sentence(&mut self) -> String {
        const WORDS: [&str; 24] = [
            "let", "value", "return", "match", "input", "Result", "state", "error", "for", "index", "buffer",
            "while", "const", "async", "node", "path", "write", "handle", "count", "limit", "open", "line",
            "policy", "gate",
        ];
        let count = 3 + self.next() % 9;
        let words: Vec<&str> = (0..count).map(|_| WORDS[(self.next() % 24) as usize]).collect();
        words.join(" ")
    }
}
