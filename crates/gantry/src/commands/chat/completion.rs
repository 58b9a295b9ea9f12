//! Completes slash commands, and files of the workspace after `@`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gantry_agent::SLASH_COMMANDS;
use gantry_files::{EntryKind, Files, FilesOptions, ListOptions};

use crate::environment::Environment;
use crate::line_editor::{Candidate, Complete};
use crate::live_screen::{columns, one_row};

/// Entries of a directory that are looked at.
const LOOKED_AT: usize = 5_000;
/// Files that are offered.
const OFFERED: usize = 50;

/// Commands of the conversation itself. The session has the others.
pub(super) const OWN_COMMANDS: &[(&str, &str, &str)] = &[
    ("output", "", "Show the whole output of the last tool call"),
    ("quit", "", "Leave the conversation; it is kept"),
];

/// Returns the completion of a conversation that works in `directory`.
pub(super) fn complete(environment: &Environment, directory: PathBuf) -> Complete {
    let closed = environment.closed();
    Arc::new(move |line, position| {
        let before = line.get(..position).unwrap_or_default();
        if let Some(word) = before.strip_prefix('/').filter(|word| !word.contains(char::is_whitespace)) {
            return (0, commands(word));
        }
        if let Some(level) = before.strip_prefix("/think ") {
            let levels = ["off", "on", "low", "medium", "high"].iter().filter(|name| name.starts_with(level));
            let offered = levels.map(|name| Candidate { text: (*name).into(), shown: (*name).into() });
            return (position - level.len(), offered.collect());
        }
        match mention(before) {
            Some((start, path)) => (start, files(&closed, &directory, path)),
            None => (position, Vec::new()),
        }
    })
}

/// Returns the lines of `/help` about the conversation's own commands.
pub(super) fn own_help() -> Vec<String> {
    let width = width();
    OWN_COMMANDS.iter().map(|(name, arguments, about)| shown(name, arguments, about, width)).collect()
}

fn commands(word: &str) -> Vec<Candidate> {
    let width = width();
    let all = SLASH_COMMANDS.iter().chain(OWN_COMMANDS).filter(|(name, ..)| name.starts_with(word));
    all.map(|(name, arguments, about)| Candidate {
        text: format!("/{name}{}", if arguments.is_empty() { "" } else { " " }),
        // A row that wraps would break the list.
        shown: one_row(&shown(name, arguments, about, width), columns()),
    })
    .collect()
}

fn shown(name: &str, arguments: &str, about: &str, width: usize) -> String {
    format!("{:width$}  {about}", usage(name, arguments))
}

fn usage(name: &str, arguments: &str) -> String {
    format!("/{name} {arguments}").trim_end().to_owned()
}

/// The width of the first column, as the session's own table has it.
fn width() -> usize {
    SLASH_COMMANDS.iter().map(|(name, arguments, _)| usage(name, arguments).len()).max().unwrap_or_default()
}

/// Returns the start and the path of the `@` word that the text ends with.
fn mention(before: &str) -> Option<(usize, &str)> {
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = before.get(start..)?;
    Some((start, word.strip_prefix('@')?))
}

/// Returns the files and directories that a path may become. Names with spaces are left out, because a space ends the word.
fn files(closed: &[PathBuf], directory: &Path, path: &str) -> Vec<Candidate> {
    let (parent, leaf) = path.rsplit_once('/').map_or(("", path), |(parent, leaf)| (parent, leaf));
    let listed = || {
        let files = Files::new(FilesOptions { closed: closed.to_vec(), pending_dir: None }).ok()?;
        let scope = files.contained(directory).ok()?;
        let place = if parent.is_empty() { "." } else { parent };
        let options = ListOptions { recursive: false, limit: LOOKED_AT };
        scope.list(place, options, &AtomicBool::new(false)).ok()
    };
    let Some(listing) = listed() else { return Vec::new() };
    let lower = leaf.to_lowercase();
    let is_wanted = |name: &str| {
        name.to_lowercase().starts_with(&lower)
            && (leaf.starts_with('.') || !name.starts_with('.'))
            && !name.contains(char::is_whitespace)
            && !name.chars().any(char::is_control)
    };
    let entries = listing.entries.iter().filter(|entry| !entry.lossy && is_wanted(&entry.path));
    entries
        .take(OFFERED)
        .map(|entry| {
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            let parent = if path.contains('/') { format!("{parent}/") } else { String::new() };
            let shown = format!("{}{slash}", entry.path);
            Candidate { text: format!("@{parent}{shown}"), shown }
        })
        .collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests {
    use super::*;

    fn texts(found: &[Candidate]) -> Vec<&str> {
        found.iter().map(|found| found.text.as_str()).collect()
    }

    #[test]
    fn commands_have_descriptions() {
        assert_eq!(texts(&commands("comp")), ["/compact"]);
        assert_eq!(texts(&commands("mod")), ["/model "]);
        assert!(commands("").iter().all(|found| found.shown.contains("  ")));
        assert_eq!(commands("nosuch"), []);
    }

    #[test]
    fn files_are_completed_within_the_workspace() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        std::fs::create_dir_all(work.join("src/inner")).unwrap();
        for name in ["src/main.rs", "src/.hidden", "shot.png", "with space.txt", "Readme.md"] {
            std::fs::write(work.join(name), "x").unwrap();
        }
        std::fs::write(home.path().join("secret"), "x").unwrap();
        std::fs::create_dir(work.join("closed")).unwrap();
        let closed = [work.join("closed")];
        let found = |path: &str| {
            let found = files(&closed, &work, path);
            texts(&found).iter().map(|&text| text.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("s"), ["@shot.png", "@src/"]);
        assert_eq!(found("readme"), ["@Readme.md"]);
        assert_eq!(found("src/"), ["@src/inner/", "@src/main.rs"]);
        assert_eq!(found("src/."), ["@src/.hidden"]);
        for outside in ["../s", "/etc/pass", "closed/", "nosuch/"] {
            assert_eq!(found(outside), [""; 0], "{outside}");
        }
        assert_eq!(mention("look at @src/ma"), Some((8, "src/ma")));
        assert_eq!(mention("mail me@example"), None);
    }
}
