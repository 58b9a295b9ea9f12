//! Compares generated diffs, intact and damaged, with GNU `patch`: both must give the same bytes
//! with the same fuzz, or both must refuse.
//!
//! Deliberate differences, and what is required instead:
//! - Wrong counts and truncated patches are recounted. The result must be GNU's for the patch with
//!   right counts.
//! - `--- x`, `+++ y`, `@@` inside a hunk with wrong counts may be refused as a second file.
//! - A hunk that names a line before the previous hunk's change is refused, never applied to a
//!   similar passage below.
//! - A hunk marked `adapted` (endings, final newline, one-sided context) may apply where GNU
//!   refuses.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use gantry_files::patch::{LineRole, PatchError, apply, parse};
use gantry_testkit::{Random, scaled};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    ShiftedFile,
    ChangedLine,
    DroppedHunk,
    SwappedHunks,
    WrongStart,
    WrongCounts,
    CutOff,
}

const DAMAGES: [Damage; 9] = [
    Damage::None,
    Damage::ShiftedFile,
    Damage::ShiftedFile,
    Damage::ChangedLine,
    Damage::DroppedHunk,
    Damage::SwappedHunks,
    Damage::WrongStart,
    Damage::WrongCounts,
    Damage::CutOff,
];

#[test]
fn patches_apply_like_gnu_patch() {
    let mut random = Random::new();
    let dir = tempfile::tempdir().unwrap();
    let (mut applied, mut refused, mut adapted, mut ambiguous, mut misordered, mut git_agrees) =
        (0, 0, 0, 0, 0, 0);
    let count = scaled(2_500, 200);
    for case in 0..count {
        let Some((file, patch, intact, damage)) = generate(&mut random, dir.path()) else { continue };
        let fuzz = if random.one_in(4) { 1 + random.below(2) as u8 } else { 0 };
        let expected = gnu_patch(dir.path(), &file, &recounted(&intact), fuzz);
        let git = git_apply(dir.path(), &file, &recounted(&intact));
        git_agrees += usize::from(git == expected);
        let text = String::from_utf8_lossy(&file).into_owned();
        let context = || {
            format!(
                "case {case}, {damage:?}, fuzz {fuzz}\n--- file\n{text:?}\n--- patch\n{patch}\n--- expected\n{:?}",
                expected.as_deref().map(String::from_utf8_lossy)
            )
        };
        match (apply(&file, &patch, fuzz), &expected) {
            (Ok(ours), Some(bytes)) => {
                assert_eq!(
                    String::from_utf8_lossy(&ours.bytes()),
                    String::from_utf8_lossy(bytes),
                    "{}",
                    context()
                );
                applied += 1;
            }
            (Err(_), None) => refused += 1,
            (Ok(ours), None) => {
                assert!(
                    ours.hunks.iter().any(|hunk| hunk.adapted),
                    "applied, but GNU refuses: {}",
                    context()
                );
                assert!(
                    one_sided(&patch) || !text.ends_with('\n') || patch.contains("\n\\ "),
                    "nothing to adapt: {}",
                    context()
                );
                adapted += 1;
            }
            // With wrong counts `--- x`, `+++ y`, `@@` may also be the next file's header, so it is
            // refused rather than guessed.
            (Err(PatchError::SeveralFiles { .. }), Some(_)) if damage == Damage::WrongCounts => {
                ambiguous += 1
            }
            // GNU may apply a hunk that comes too late to a similar passage below.
            (Err(PatchError::Overlapping { .. }), Some(_)) if damage != Damage::None => misordered += 1,
            (Err(error), Some(_)) => panic!("refused ({error}), but GNU applies: {}", context()),
        }
    }
    println!(
        "{count} cases: {applied} same bytes, {refused} both refused, {adapted} adapted, git agrees with GNU in {git_agrees}"
    );
    assert!(applied > count / 4 && refused > count / 20, "the generator has become one-sided");
    assert!(misordered <= 1 + count / 200, "too many misordered hunks");
    assert!(ambiguous <= 1 + count / 200, "too many ambiguous headers");
    assert!(adapted < count / 4, "too many differences");
}

fn one_sided(patch: &str) -> bool {
    let Ok(patch) = parse(patch) else { return false };
    patch.hunks.iter().any(|hunk| {
        let context = |line: &&gantry_files::patch::HunkLine<'_>| line.role == LineRole::Context;
        hunk.lines.iter().take_while(context).count() != hunk.lines.iter().rev().take_while(context).count()
    })
}

/// Returns a file, a patch for it (perhaps damaged), and the patch before its numbers were damaged.
fn generate(random: &mut Random, dir: &Path) -> Option<(Vec<u8>, String, String, Damage)> {
    let ending = if random.one_in(4) { "\r\n" } else { "\n" };
    let old = some_lines(random);
    let mut new = old.clone();
    for _ in 0..=random.below(5) {
        let at = random.below(new.len() + 1);
        match random.below(3) {
            0 if at < new.len() => drop(new.remove(at)),
            1 if at < new.len() => new[at] = some_line(random),
            _ => new.insert(at, some_line(random)),
        }
    }
    let old_text = joined(random, &old, ending);
    let new_text = joined(random, &new, ending);
    let diff = make_diff(random, dir, &old_text, &new_text)?;
    let damage = *random.pick(&DAMAGES);
    let (mut file, mut patch, mut intact) = (old_text.clone(), diff.clone(), diff);
    match damage {
        Damage::None => {}
        Damage::ShiftedFile => {
            let mut lines = old;
            let count = 1 + random.below(6);
            let at = if random.one_in(2) { 0 } else { random.below(lines.len() + 1) };
            for _ in 0..count {
                lines.insert(at, some_line(random));
            }
            file = joined(random, &lines, ending);
        }
        Damage::ChangedLine => {
            let mut lines = old;
            let at = random.below(lines.len());
            *lines.get_mut(at)? = some_line(random);
            file = joined(random, &lines, ending);
        }
        Damage::DroppedHunk | Damage::SwappedHunks => {
            let (head, mut hunks) = split_hunks(&patch);
            if hunks.len() < 2 {
                return None;
            }
            let at = random.below(hunks.len() - 1);
            if damage == Damage::DroppedHunk {
                hunks.remove(at);
            } else {
                hunks.swap(at, at + 1);
            }
            patch = head + &hunks.concat();
            intact = patch.clone();
        }
        Damage::WrongStart => {
            patch = renumbered(&patch, |numbers| {
                numbers[0] = (numbers[0] + random.below(9)).saturating_sub(4).max(1)
            });
            intact = patch.clone();
        }
        Damage::WrongCounts => {
            patch = renumbered(&patch, |numbers| {
                // A count of zero says something about the place, so it is not changed.
                for index in [1, 3] {
                    if numbers[index] > 0 {
                        numbers[index] = (numbers[index] + random.below(5)).saturating_sub(2).max(1);
                    }
                }
            });
        }
        Damage::CutOff => {
            let lines: Vec<&str> = patch.split_inclusive('\n').collect();
            let body = lines.iter().position(|line| line.starts_with("@@"))? + 2;
            let keep = body + random.below(lines.len().saturating_sub(body) + 1);
            patch = lines[..keep.min(lines.len())].concat();
            intact = patch.clone();
        }
    }
    Some((file, patch, intact, damage))
}

fn some_lines(random: &mut Random) -> Vec<String> {
    let count = if random.one_in(10) { random.below(3) } else { random.below(60) };
    (0..count).map(|_| some_line(random)).collect()
}

fn some_line(random: &mut Random) -> String {
    const COMMON: [&str; 8] = ["", "}", "    return;", "a", "-- x", "++ y", "\tindented", "@@ no hunk"];
    if random.one_in(3) { (*random.pick(&COMMON)).to_owned() } else { format!("line {}", random.below(40)) }
}

fn joined(random: &mut Random, lines: &[String], ending: &str) -> Vec<u8> {
    let mut text = lines.join(ending);
    if !lines.is_empty() && !random.one_in(6) {
        text.push_str(ending);
    }
    text.into_bytes()
}

fn make_diff(random: &mut Random, dir: &Path, old: &[u8], new: &[u8]) -> Option<String> {
    for (side, text) in [("a", old), ("b", new)] {
        fs::create_dir_all(dir.join(side)).unwrap();
        fs::write(dir.join(side).join("f"), text).unwrap();
    }
    let context = format!("-U{}", random.below(6));
    let output = if random.one_in(3) {
        let fixed = ["diff", "--no-index", "--no-color", "--src-prefix=", "--dst-prefix="];
        Command::new("git").args(fixed).args([&context, "a/f", "b/f"]).current_dir(dir).output().unwrap()
    } else {
        let labels = ["--label", "a/f", "--label", "b/f"];
        Command::new("diff").args(labels).args([&context, "a/f", "b/f"]).current_dir(dir).output().unwrap()
    };
    let diff = String::from_utf8(output.stdout).unwrap();
    (!diff.is_empty()).then_some(diff)
}

fn gnu_patch(dir: &Path, file: &[u8], patch: &str, fuzz: u8) -> Option<Vec<u8>> {
    fs::write(dir.join("f"), file).unwrap();
    fs::write(dir.join("p"), patch).unwrap();
    let _ = fs::remove_file(dir.join("out"));
    let status = Command::new("patch")
        .arg(format!("-F{fuzz}"))
        .args(["-f", "-s", "-r", "-", "-o", "out", "f", "p"])
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("GNU patch is needed");
    status.success().then(|| fs::read(dir.join("out")).unwrap_or_default())
}

fn git_apply(dir: &Path, file: &[u8], patch: &str) -> Option<Vec<u8>> {
    fs::write(dir.join("f"), file).unwrap();
    fs::write(dir.join("p"), patch).unwrap();
    let status = Command::new("git")
        .args(["apply", "--whitespace=nowarn", "--unidiff-zero", "p"])
        .env("GIT_CEILING_DIRECTORIES", dir)
        .current_dir(dir)
        .stderr(Stdio::null())
        .status()
        .expect("git is needed");
    status.success().then(|| fs::read(dir.join("f")).unwrap_or_default())
}

/// Returns the text above the first hunk, and each hunk.
fn split_hunks(patch: &str) -> (String, Vec<String>) {
    let (mut head, mut hunks) = (String::new(), Vec::<String>::new());
    for line in patch.split_inclusive('\n') {
        if line.starts_with("@@") {
            hunks.push(String::new());
        }
        match hunks.last_mut() {
            Some(hunk) => hunk.push_str(line),
            None => head.push_str(line),
        }
    }
    (head, hunks)
}

/// Returns the patch with the numbers of every header changed.
fn renumbered(patch: &str, mut change: impl FnMut(&mut [usize; 4])) -> String {
    let (mut text, hunks) = split_hunks(patch);
    for hunk in hunks {
        let (header, body) = hunk.split_once('\n').unwrap();
        let mut numbers = numbers_of(header);
        change(&mut numbers);
        let [old_start, old_count, new_start, new_count] = numbers;
        text.push_str(&format!("@@ -{old_start},{old_count} +{new_start},{new_count} @@\n{body}"));
    }
    text
}

/// Returns the patch with the counts that its bodies have.
fn recounted(patch: &str) -> String {
    let (mut text, hunks) = split_hunks(patch);
    for hunk in hunks {
        let (header, body) = hunk.split_once('\n').unwrap();
        let [mut old_start, said, new_start, _] = numbers_of(header);
        let count = |signs: [char; 2]| body.lines().filter(|line| line.starts_with(signs)).count();
        let (old_count, new_count) = (count([' ', '-']), count([' ', '+']));
        if old_count == 0 && said > 0 {
            // An empty range names the line before it.
            old_start = old_start.saturating_sub(1);
        }
        text.push_str(&format!("@@ -{old_start},{old_count} +{new_start},{new_count} @@\n{body}"));
    }
    text
}

fn numbers_of(header: &str) -> [usize; 4] {
    let mut parts = header.split_whitespace().skip(1);
    let mut range = || {
        let part = parts.next().unwrap().trim_start_matches(['-', '+']);
        let (start, count) = part.split_once(',').unwrap_or((part, "1"));
        (start.parse().unwrap(), count.parse().unwrap())
    };
    let ((old_start, old_count), (new_start, new_count)) = (range(), range());
    [old_start, old_count, new_start, new_count]
}
