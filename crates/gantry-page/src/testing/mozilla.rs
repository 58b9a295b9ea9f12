//! The 130 pages with which Mozilla tests its readability library, each with the expected content.
//! A crate ships them and cargo downloads it; they are not part of this repository.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::html_to_text;

const CRATE: &str = "readabilityrs";
const VERSION: &str = "0.1.4";

pub struct Case {
    pub name: String,
    pub source: String,
    /// The main content, as HTML.
    pub expected: String,
}

/// Returns all cases, by name.
pub fn cases() -> Vec<Case> {
    let pages = folder();
    let mut names: Vec<String> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| pages.join(name).join("expected.html").is_file())
        .collect();
    names.sort();
    let read = |name: &str, file: &str| std::fs::read_to_string(pages.join(name).join(file)).unwrap();
    let case = |name: String| Case {
        source: read(&name, "source.html"),
        expected: read(&name, "expected.html"),
        name,
    };
    names.into_iter().map(case).collect()
}

/// Returns the folder of the pages. Cargo downloads the crate for a separate package below
/// `target`.
pub fn folder() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mozilla-pages");
    std::fs::create_dir_all(package.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"mozilla-pages\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\n{CRATE} = \"={VERSION}\"\n"
    );
    let path = package.join("Cargo.toml");
    // The file is written once, so that a parallel reader never sees a partial one.
    if std::fs::read_to_string(&path).ok().as_ref() != Some(&manifest) {
        std::fs::write(package.join("src/lib.rs"), "").unwrap();
        let unique = package.join(format!("Cargo.toml.{}", std::process::id()));
        std::fs::write(&unique, &manifest).unwrap();
        std::fs::rename(unique, &path).unwrap();
    }
    let crate_folder = ask_cargo(&path, &["--offline"]).or_else(|_| ask_cargo(&path, &[]));
    crate_folder.expect("cargo does not get Mozilla's pages").join("tests/test-pages")
}

fn ask_cargo(manifest: &Path, more: &[&str]) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest).args(more);
    let output = command.output().map_err(|err| err.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let found: Value = serde_json::from_slice(&output.stdout).map_err(|err| err.to_string())?;
    let package =
        found["packages"].as_array().unwrap().iter().find(|package| package["name"] == CRATE).unwrap();
    Ok(Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned())
}

/// `Score` compares a text with the expected one, by words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The share of expected words that were found.
    pub recall: f64,
    /// The share of found words that were not expected.
    pub noise: f64,
}

/// Compares readable text with the expected content, which is HTML.
pub fn score(expected: &str, found: &str) -> Score {
    let expected = words(&html_to_text(expected, None));
    let found = words(found);
    let common: usize = expected.iter().map(|(word, count)| found.get(word).unwrap_or(&0).min(count)).sum();
    let total = |words: &HashMap<String, usize>| words.values().sum::<usize>();
    let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let wanted = total(&expected);
    Score {
        recall: if wanted == 0 { 1.0 } else { share(common, wanted) },
        noise: share(total(&found) - common, total(&found)),
    }
}

/// Counts each word. Link targets are not words.
fn words(text: &str) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    for part in text.split("](").enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once(')').map_or("", |(_, after)| after),
    }) {
        let of_words =
            part.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
        of_words.for_each(|word| *words.entry(word.to_lowercase()).or_insert(0) += 1);
    }
    words
}
