//! `gantry workspace`: an agent's files in storage, through the native tools like everybody else.

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
    gantry workspace edit SOUL.md 'old words' 'new words'\n  \
    gantry workspace rm -r memory/2025\n  \
    gantry workspace ls --agent helper")]
pub(crate) struct WorkspaceArgs {
    #[command(subcommand)]
    pub(crate) action: WorkspaceAction,
    /// Whose workspace [default: main]
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceAction {
    /// List a directory
    Ls {
        /// The directory in the workspace [default: all of it]
        path: Option<String>,
    },
    /// Print a file
    Cat {
        /// The file in the workspace
        path: String,
    },
    /// Write a file from a text file here, or from standard input with -
    Put {
        /// The file here, or - for standard input
        file: String,
        /// The file in the workspace
        path: String,
    },
    /// Delete a file
    Rm {
        /// The file in the workspace
        path: String,
        /// Or a directory, with all files in it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Replace exact text in a file
    Edit {
        /// The file in the workspace
        path: String,
        /// The text that is there, exactly
        old: String,
        /// The text that takes its place
        new: String,
        /// Every occurrence, not just the only one
        #[arg(long)]
        all: bool,
    },
}

/// What is written as text in one go.
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
        if matches!(args.action, WorkspaceAction::Rm { .. })
            && matches!(&outcome.answer, Answer::ToolError(Reply::Json(error))
                if error["error"].as_str().is_some_and(|message| message.contains("is a directory")))
        {
            output.warning("`gantry workspace rm -r` deletes a directory");
        }
        return Ok(crate::commands::call::print(output, &outcome));
    };
    Ok(show(output, &args.action, &answer["result"]))
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
                return output.refused(&refusal.with_hint(format!("`gantry workspace ls {path}` lists it")));
            }
        },
        WorkspaceAction::Put { path, .. } => {
            output.done(&format!("{path}: {} bytes written", result["size"]));
        }
        WorkspaceAction::Rm { path, .. } => output.done(&format!("{path} is deleted")),
        WorkspaceAction::Edit { path, .. } => {
            output.done(&format!("{path}: {} replaced", result["replacements"]));
        }
    }
    Exit::Success
}

/// Deletes what lies in a directory, each file by a call of its own, so that each is judged and on record. A skill that all
/// agents share stays.
fn remove_all(asking: &Asking, output: &Output, path: &str) -> Result<Exit> {
    let root = path.trim_end_matches('/');
    if root.is_empty() {
        return Err(UsageError("name a directory of the workspace, not all of it".into()).into());
    }
    let (mut deleted, mut kept) = (0_u64, 0_u64);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let outcome = asking.call(output, "gsv__ReadFile", json!({"path": format!("{folder}/")}))?;
        let Answer::Success(Reply::Json(answer)) = &outcome.answer else {
            if folder != root {
                return Ok(crate::commands::call::print(output, &outcome));
            }
            // A file, or nothing at all.
            let outcome = asking.call(output, "gsv__DeleteFile", json!({"path": root}))?;
            return Ok(match &outcome.answer {
                Answer::Success(_) => removed(output, root, 1, 0),
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
                Answer::ToolError(Reply::Json(error)) if is_shared(error) => kept += 1,
                _ => {
                    output.warning(&format!("{deleted} files were deleted before {file}"));
                    return Ok(crate::commands::call::print(output, &outcome));
                }
            }
        }
        // A listing has an end; what lies behind it is in the next one.
        if result["truncated"] == true && deleted > before {
            folders.push(folder.clone());
        }
        folders.extend(texts(&result["directories"]).map(|name| format!("{folder}/{name}")));
    }
    Ok(removed(output, root, deleted, kept))
}

/// Whether a file could not be deleted because it is everybody's.
fn is_shared(error: &Value) -> bool {
    error["error"].as_str().is_some_and(|message| message.contains("all agents share"))
}

fn removed(output: &Output, path: &str, deleted: u64, kept: u64) -> Exit {
    if kept > 0 {
        output.warning(&format!("{kept} skills that all agents share stay"));
    }
    if output.json {
        output.value(&json!({"path": path, "deleted": deleted, "kept": kept}));
    } else {
        let files = if deleted == 1 { "file is" } else { "files are" };
        output.done(&format!("{path}: {deleted} {files} deleted"));
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
        return Err(too_much(file, "is longer than 32 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| too_much(file, "is not text"))
}

fn too_much(file: &str, what: &str) -> anyhow::Error {
    UsageError(format!("{file} {what}; `gantry transfer local:PATH gsv:PATH` takes any file")).into()
}
