//! `ARCHITECTURE.md` names only crates, files, types and functions that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../../ARCHITECTURE.md");

/// Names in backticks that look like types of this workspace and are not.
const OTHER_NAMES: [&str; 2] = ["AtomicBool", "Bash"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns every path below the folders of sources and documentation, relative to the root.
fn paths() -> Vec<String> {
    let root = root();
    let mut found = Vec::new();
    let mut todo = vec![root.join("crates"), root.join("docs")];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                todo.push(path.clone());
            }
            found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

/// Returns the text in backticks, and the paths in the overview's diagram.
fn named() -> BTreeSet<&'static str> {
    let (mut inline, mut named) = (String::new(), BTreeSet::new());
    for (index, part) in PAGE.split("```").enumerate() {
        match index % 2 {
            0 => inline.push_str(part),
            _ => named.extend(part.split(['(', ')', ' ', '\n', ';']).filter(|word| word.ends_with(".rs"))),
        }
    }
    named.extend(PAGE.split('`').skip(1).step_by(2).filter(|text| inline.contains(&format!("`{text}`"))));
    named
}

/// Reports whether a source defines the name with one of the keywords.
fn is_defined(sources: &str, keywords: &[&str], name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    keywords.iter().any(|keyword| {
        let definition = format!("{keyword} {name}");
        sources.match_indices(&definition).any(|(at, _)| ends(&sources[at + definition.len()..]))
    })
}

#[test]
fn every_name_in_the_architecture_page_exists() {
    let paths = paths();
    let rust = paths.iter().filter(|path| path.ends_with(".rs"));
    let sources: String = rust.map(|path| std::fs::read_to_string(root().join(path)).unwrap()).collect();
    let mut missing = Vec::new();
    for name in named() {
        let is_path = name.ends_with(".rs") || name.ends_with('/') || name.contains('/');
        if is_path {
            let wanted = name.trim_end_matches('/');
            let known = paths.iter().any(|path| path == wanted || path.ends_with(&format!("/{wanted}")));
            missing.extend((!known).then_some(name));
            continue;
        }
        let (owner, member) = name.split_once("::").map_or((name, None), |(owner, rest)| (owner, Some(rest)));
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_type = owner.starts_with(|c: char| c.is_ascii_uppercase())
            && owner.contains(|c: char| c.is_ascii_lowercase())
            && is_name(owner);
        if is_type && !OTHER_NAMES.contains(&owner) {
            let known = is_defined(&sources, &["struct", "enum", "trait", "type"], owner);
            missing.extend((!known).then_some(name));
        }
        let member = member.and_then(|member| member.rsplit("::").next());
        if let Some(member) = member.filter(|member| is_name(member)) {
            let known = is_defined(&sources, &["fn", "struct", "enum", "trait"], member)
                || sources.contains(&format!("pub {member}:"));
            missing.extend((!known).then_some(name));
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "names in ARCHITECTURE.md that do not exist");
}

#[test]
fn every_crate_is_in_the_code_map() {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates: BTreeSet<String> = crates.collect();
    let rows =
        PAGE.lines().skip_while(|line| *line != "## Code map").take_while(|line| !line.starts_with("###"));
    let rows = rows.filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(listed, crates);
}
