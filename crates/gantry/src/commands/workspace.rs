//! `gantry workspace` manages an agent's files in storage, through the native tools and the gate.

use std::io::Read;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_tool::{Answer, Refusal, RefusalCode, Reply};
use serde_json::{Value, json};

use crate::commands::ask::Asking;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry workspace ls memory/\n  \
    gantry workspace cat SOUL.md\n  \
    gantry workspace put notes.md memory/notes.md\n  \
    gantry workspace edit SOUL.md 'old text' 'new text'\n  \
    gantry workspace rm -r memory/2025\n  \
    gantry workspace ls --agent helper")]
pub(crate) struct WorkspaceArgs {
    #[command(subcommand)]
    pub(crate) action: WorkspaceAction,
    /// Agent whose files are used [default: main]
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceAction {
    /// List a directory
    Ls {
        /// Directory in storage [default: the top]
        path: Option<String>,
    },
    /// Print a file
    Cat {
        /// File in storage
        path: String,
    },
    /// Write a file from a local text file, or from standard input
    Put {
        /// Local file, or - for standard input
        file: String,
        /// File in storage
        path: String,
    },
    /// Delete a file, or with -r a directory
    Rm {
        /// File in storage
        path: String,
        /// Delete a directory and all files in it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Replace exact text in a file
    Edit {
        /// File in storage
        path: String,
        /// Exact text to replace
        old: String,
        /// Replacement text
        new: String,
        /// Replace every occurrence [default: the text must occur exactly once]
        #[arg(long)]
        all: bool,
    },
}

/// The largest file that `put` writes.
const MAX_PUT_BYTES: u64 = 32 << 20;

pub(crate) fn run(environment: Environment, output: &Output, args: WorkspaceArgs) -> Result<Exit> {
    let local_file = match &args.action {
        WorkspaceAction::Put { file, .. } => Some(read_text(&environment, file)?),
        _ => None,
    };
    let asking = Asking::open(environment, output, args.agent.as_deref())?;
    if let WorkspaceAction::Rm { path, recursive: true } = &args.action {
        return remove_all(&asking, output, path);
    }
    let (tool, input) = match &args.action {
        WorkspaceAction::Ls { path } => ("gsv__ReadFile", json!({"path": path.as_deref().unwrap_or("/")})),
        WorkspaceAction::Cat { path } => ("gsv__ReadFile", json!({"path": path})),
        WorkspaceAction::Put { path, .. } => ("gsv__WriteFile", json!({"path": path, "content": local_file})),
        WorkspaceAction::Rm { path, .. } => ("gsv__DeleteFile", json!({"path": path})),
        WorkspaceAction::Edit { path, old, new, all } => {
            ("gsv__EditFile", json!({"path": path, "oldString": old, "newString": new, "replaceAll": all}))
        }
    };
    let outcome = asking.call(output, tool, input)?;
    let Answer::Success(Reply::Json(answer)) = &outcome.answer else {
        let exit = crate::commands::call::print(output, &outcome);
        if let (WorkspaceAction::Rm { path, .. }, Answer::ToolError(_)) = (&args.action, &outcome.answer)
            && is_directory(&asking, output, path)?
        {
            output.warning("use `gantry workspace rm -r` to delete a directory");
        }
        return Ok(exit);
    };
    Ok(show(output, &args.action, &answer["result"]))
}

/// Returns whether a path has entries below it.
fn is_directory(asking: &Asking, output: &Output, path: &str) -> Result<bool> {
    let path = format!("{}/", path.trim_end_matches('/'));
    let outcome = asking.call(output, "gsv__ReadFile", json!({"path": path}))?;
    let Answer::Success(Reply::Json(answer)) = &outcome.answer else { return Ok(false) };
    let entries = |field: &str| texts(&answer["result"][field]).count();
    Ok(entries("files") + entries("directories") > 0)
}

fn show(output: &Output, action: &WorkspaceAction, result: &Value) -> Exit {
    if output.json {
        output.value(result);
        return Exit::Success;
    }
    match action {
        WorkspaceAction::Ls { .. } if result.get("files").is_some() => {
            for directory in texts(&result["directories"]) {
                output.line(&format!("{}/", directory.trim_end_matches('/')));
            }
            texts(&result["files"]).for_each(|file| output.line(file));
        }
        WorkspaceAction::Ls { path } => output.line(path.as_deref().unwrap_or("/")),
        WorkspaceAction::Cat { path } => match result["content"].as_str() {
            Some(content) => output.reply(&Reply::Text(content.to_owned())),
            None => {
                let refusal = Refusal::new(RefusalCode::InvalidInput, format!("{path} is a directory"));
                return output
                    .refused(&refusal.with_hint(format!("list it with `gantry workspace ls {path}`")));
            }
        },
        WorkspaceAction::Put { path, .. } => {
            output.done(&format!("Wrote {} bytes to {path}.", result["size"]));
        }
        WorkspaceAction::Rm { path, .. } => output.done(&format!("Deleted {path}.")),
        WorkspaceAction::Edit { path, .. } => {
            output.done(&format!("Replaced {} occurrences in {path}.", result["replacements"]));
        }
    }
    Exit::Success
}

/// Deletes the files in a directory, one call per file, so that policy and audit log cover each. Skills that all agents
/// share cannot be deleted, and stay.
fn remove_all(asking: &Asking, output: &Output, path: &str) -> Result<Exit> {
    let root = path.trim_end_matches('/');
    if root.is_empty() {
        return Err(UsageError("cannot delete the whole workspace; name a directory in it".into()).into());
    }
    let (mut deleted, mut kept) = (0_u64, Vec::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let outcome = asking.call(output, "gsv__ReadFile", json!({"path": format!("{folder}/")}))?;
        let Answer::Success(Reply::Json(answer)) = &outcome.answer else {
            if folder != root {
                return Ok(crate::commands::call::print(output, &outcome));
            }
            // The path is a file, or does not exist.
            let outcome = asking.call(output, "gsv__DeleteFile", json!({"path": root}))?;
            return Ok(match &outcome.answer {
                Answer::Success(_) => removed(output, root, 1, &[]),
                _ => crate::commands::call::print(output, &outcome),
            });
        };
        let result = &answer["result"];
        let before = deleted;
        for name in texts(&result["files"]) {
            let file = format!("{folder}/{name}");
            let outcome = asking.call(output, "gsv__DeleteFile", json!({"path": file}))?;
            match &outcome.answer {
                Answer::Success(_) => deleted += 1,
                Answer::ToolError(reply) if may_be_shared(asking, output, &file)? => {
                    kept.push(reply.to_text())
                }
                _ => {
                    output.warning(&format!("{deleted} files were deleted before {file} failed"));
                    return Ok(crate::commands::call::print(output, &outcome));
                }
            }
        }
        // A truncated listing is read again for the remaining files.
        if result["truncated"] == true && deleted > before {
            folders.push(folder.clone());
        }
        folders.extend(texts(&result["directories"]).map(|name| format!("{folder}/{name}")));
    }
    Ok(removed(output, root, deleted, &kept))
}

/// Returns whether a file that could not be deleted may be a skill that all agents share: it is below `skills/` and can
/// still be read.
fn may_be_shared(asking: &Asking, output: &Output, file: &str) -> Result<bool> {
    if !file.trim_start_matches('/').starts_with("skills/") {
        return Ok(false);
    }
    let outcome = asking.call(output, "gsv__ReadFile", json!({"path": file}))?;
    Ok(matches!(outcome.answer, Answer::Success(_)))
}

/// Reports a recursive deletion. `kept` holds the error of each file that stayed.
fn removed(output: &Output, path: &str, deleted: u64, kept: &[String]) -> Exit {
    kept.iter().for_each(|error| output.warning(&format!("kept: {error}")));
    if output.json {
        output.value(&json!({"path": path, "deleted": deleted, "kept": kept.len()}));
    } else {
        let files = if deleted == 1 { "file" } else { "files" };
        output.done(&format!("Deleted {deleted} {files} in {path}."));
    }
    Exit::Success
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn read_text(environment: &Environment, file: &str) -> Result<String> {
    let bytes = if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .take(MAX_PUT_BYTES + 1)
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        bytes
    } else {
        environment.read_own(file.as_ref())?
    };
    if bytes.len() as u64 > MAX_PUT_BYTES {
        return Err(unsupported(file, "is larger than 32 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| unsupported(file, "is not UTF-8 text"))
}

fn unsupported(file: &str, problem: &str) -> anyhow::Error {
    let hint = "copy any file with `gantry transfer local:PATH gsv:PATH`";
    UsageError(format!("{file} {problem}")).with_hint(hint).into()
}
