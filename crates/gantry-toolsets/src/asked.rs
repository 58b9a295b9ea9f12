//! Descriptions of calls for questions to a person, as the tools declare them.

use std::path::Path;
use std::sync::Arc;

use gantry_files::{Scope, diff, text};
use gantry_net::Url;
use gantry_protocol::{AskedAction, ChangeKind};
use gantry_tool::{AskedCall, Call, ToolError};
use serde::Deserialize;

use crate::Machine;

/// Where agents' own files are, as the paths of `gsv__Transfer` write it.
pub(crate) const STORAGE: &str = "gsv";
/// Larger files are not compared; the question shows the new content.
const MAX_COMPARED_BYTES: u64 = 1024 * 1024;
/// Lines around each change.
const CONTEXT: usize = 3;

/// Describes a command line.
pub(crate) fn command(
    machine: &Machine,
    asked: &AskedCall,
    command: String,
    directory: Option<String>,
) -> Option<AskedAction> {
    Some(AskedAction::Command {
        command,
        machine: asked.machine.clone(),
        directory,
        escalation: None,
        sandboxed: !asked.is_remote && machine.is_sandboxed(&asked.call),
        not_shown: 0,
    })
}

/// Describes a file that is written: `content` returns the new content for the present one, or `None` if the call would
/// fail. `shown` is what the call itself contains, for a file that cannot be read here.
pub(crate) async fn file_change<F>(
    machine: &Arc<Machine>,
    asked: AskedCall,
    path: String,
    shown: Shown,
    scope: fn(&Machine, &Call) -> Result<Scope, ToolError>,
    content: F,
) -> Option<AskedAction>
where
    F: FnOnce(&[u8]) -> Option<String> + Send + 'static,
{
    // The present content is shown to own agents' people only: the question of another client could show it a file that
    // policy does not let it read. Sensitive files are never shown.
    let may_read = !asked.is_remote && asked.call.principal.is_own_agent();
    let (machine, name, own) = (machine.clone(), asked.machine.clone(), asked.clone());
    let compared = may_read.then(|| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            let call = Call { avoid_sensitive: true, ..(*own.call).clone() };
            let scope = scope(&machine, &call).ok()?;
            compared(&scope, &own, &path, content)
        })
    });
    let compared = match compared {
        Some(compared) => compared.await.ok().flatten(),
        None => None,
    };
    let (change, text) = compared.unwrap_or_else(|| shown.described(&asked, &path));
    Some(AskedAction::FileChange { machine: name, paths: vec![path], change, text, not_shown: 0 })
}

/// What a call itself says about a change.
pub(crate) enum Shown {
    /// The whole new content.
    Content(String),
    /// One passage is replaced by another.
    Passage { old: String, new: String },
    /// A unified diff.
    Diff(String),
}

impl Shown {
    pub(crate) fn described(self, asked: &AskedCall, path: &str) -> (ChangeKind, String) {
        match self {
            Shown::Content(content) => (ChangeKind::Replace, content),
            Shown::Passage { old, new } => (ChangeKind::Change, difference(asked, path, &old, &new)),
            Shown::Diff(diff) => (ChangeKind::Change, diff),
        }
    }
}

/// The diff of two texts. Secrets are masked first, because a diff could split them.
pub(crate) fn difference(asked: &AskedCall, path: &str, old: &str, new: &str) -> String {
    let (old, new) = (asked.masked(old), asked.masked(new));
    let whole = diff::unified(&old, &new, path, CONTEXT);
    // The question names the path already.
    whole.lines().skip(2).map(|line| format!("{line}\n")).collect()
}

fn compared(
    scope: &Scope,
    asked: &AskedCall,
    path: &str,
    content: impl FnOnce(&[u8]) -> Option<String>,
) -> Option<(ChangeKind, String)> {
    let present = match scope.open(Path::new(path)) {
        Ok(file) => Some(file.read_all(MAX_COMPARED_BYTES).ok()?),
        Err(gantry_files::FileError::NotFound { .. }) => None,
        Err(_) => return None,
    };
    let new = content(present.as_deref().unwrap_or_default())?;
    match present {
        Some(present) => {
            let old = text::decode(&present).ok()?;
            Some((ChangeKind::Change, difference(asked, path, &old.text, &new)))
        }
        None => Some((ChangeKind::Create, new)),
    }
}

/// The input of a call that reads one file.
#[derive(Debug, Deserialize)]
pub(crate) struct ReadPath {
    path: String,
}

/// Describes a file that is read.
pub(crate) async fn file_read(asked: AskedCall, input: ReadPath) -> Option<AskedAction> {
    Some(AskedAction::FileRead { machine: asked.machine, path: input.path })
}

/// Decodes parts of a new content for a question.
pub(crate) fn joined(parts: &[impl AsRef<[u8]>]) -> Option<String> {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.as_ref().iter().copied()).collect();
    text::decode(&bytes).ok().map(|text| text.text.into_owned())
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Describes a request to a web server. An invalid URL has no host.
pub(crate) fn web_request(method: &str, url: &str, sent: Option<String>) -> Option<AskedAction> {
    let host = Url::parse(url).ok().and_then(|url| {
        let host = url.host_str()?;
        // An unusual port is part of the host, because a grant for a host covers the usual ports only.
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    Some(AskedAction::WebRequest {
        method: method.to_ascii_uppercase(),
        url: url.to_owned(),
        host: host.unwrap_or_default(),
        sent,
        not_shown: 0,
    })
}

/// Describes a change to a file in the agent's storage.
pub(crate) fn stored_change(path: &str, change: ChangeKind, text: String) -> Option<AskedAction> {
    let paths = vec![format!("{STORAGE}:{path}")];
    Some(AskedAction::FileChange { machine: STORAGE.to_owned(), paths, change, text, not_shown: 0 })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests;
