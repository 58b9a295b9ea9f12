//! `gantry mcp install` adds `gantry mcp` to a client's configuration. It shows the change, asks, and backs up the file.

use std::io::{BufRead, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use gantry_files::{FileError, Files, FilesOptions, WriteOptions};
use gantry_store::DataDir;
use similar::TextDiff;

use super::clients::{Entry, McpClient};
use super::{ServeArgs, choice};
use crate::environment::{Environment, own_program};
use crate::exit::{Exit, UsageError};
use crate::output::Output;

/// Configuration files beyond this size are rejected.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp install claude                    ask, then write ~/.claude.json and back up the old file\n  \
    gantry mcp install codex --print             show the change only\n  \
    gantry mcp --read-only install cursor        pass flags to `gantry mcp`")]
pub(crate) struct InstallArgs {
    /// Client to configure
    #[arg(value_enum)]
    pub(crate) client: McpClient,
    /// Show the change without writing it
    #[arg(long)]
    pub(crate) print: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

pub(super) fn run(
    environment: &Environment,
    output: &Output,
    args: &InstallArgs,
    serve: &ServeArgs,
) -> Result<Exit> {
    choice::check(environment, output, serve)?;
    let file = args.client.file(environment).context("cannot find the home directory: HOME is not set")?;
    let scope =
        Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?.free(&environment.current_dir)?;
    let old = match scope.open(&file) {
        Ok(opened) => Some(opened.read_all(MAX_BYTES)?),
        Err(FileError::NotFound { .. }) => None,
        Err(err) => return Err(err.into()),
    };
    let text = String::from_utf8(old.clone().unwrap_or_default())
        .map_err(|_| UsageError(format!("cannot change {}: it is not UTF-8", file.display())))?;
    let entry = entry(environment, serve)?;
    let edited = args.client.edited(&text, &entry).map_err(|err| {
        let snippet = args.client.snippet(&entry);
        UsageError(format!(
            "cannot change {}: {err}\nhint: add this entry yourself:\n{snippet}",
            file.display()
        ))
    })?;
    if edited == text {
        output.done(&format!("{} is already up to date.", file.display()));
        return Ok(Exit::Success);
    }
    output.page(difference(&file, &text, &edited).trim_end());
    if args.print {
        return Ok(Exit::Success);
    }
    if !args.yes && !agreed(&file)? {
        output.done("Nothing was changed.");
        return Ok(Exit::Failure);
    }
    // Clients keep credentials in these files, so the backup is stored where no tool can read it.
    let backup = match &old {
        Some(old) => Some(environment.data.keep_copy(&file, old).context("cannot back up the old file")?),
        None => None,
    };
    let written = match &backup {
        Some(_) => scope
            .replace(&file, &[edited.as_bytes()], WriteOptions::default())
            .map(drop)
            .map_err(anyhow::Error::from),
        // Clients will keep credentials in it, so a new file is readable only by its owner.
        None => {
            DataDir::write_config(&file, &edited).with_context(|| format!("cannot write {}", file.display()))
        }
    };
    if let Err(err) = written {
        // The file was not changed, so the backup is removed.
        if let Some(backup) = &backup {
            let _ = scope.remove(backup);
        }
        return Err(err);
    }
    if let Some(backup) = &backup {
        output.note(&format!("the backup of the old file is {}", backup.display()));
    }
    output.done(&format!("Wrote {}. Restart the client to apply the change.", file.display()));
    choice::explain_token(environment, output);
    Ok(Exit::Success)
}

/// Returns the entry: this program with the given flags, data directory and configuration.
fn entry(environment: &Environment, serve: &ServeArgs) -> Result<Entry> {
    let mut args = Vec::new();
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
    };
    if environment.data_dir_is_given {
        args.extend(["--data-dir".to_owned(), text(environment.data.root())?]);
    }
    if environment.layers.file != environment.data.config_file() {
        args.extend(["--config".to_owned(), text(&environment.layers.file)?]);
    }
    for setting in &environment.layers.overrides {
        args.extend(["--set".to_owned(), setting.clone()]);
    }
    if let Some(gateway) = &environment.gateway {
        args.extend(["--gateway".to_owned(), gateway.clone()]);
    }
    args.push("mcp".to_owned());
    for (flag, values) in [("--toolset", &serve.toolset), ("--tools", &serve.tools)] {
        if !values.is_empty() {
            args.extend([flag.to_owned(), values.join(",")]);
        }
    }
    if let Some(agent) = &serve.agent {
        args.extend(["--agent".to_owned(), agent.clone()]);
    }
    if let Some(workspace) = &serve.workspace {
        args.extend([
            "--workspace".to_owned(),
            text(&environment.resolve(&environment.current_dir.join(workspace)))?,
        ]);
    }
    for (flag, is_on) in
        [("--read-only", serve.read_only), ("--namespaced", serve.namespaced), ("--local", serve.local)]
    {
        args.extend(is_on.then(|| flag.to_owned()));
    }
    Ok(Entry { program: text(&own_program()?)?, args })
}

fn difference(file: &Path, old: &str, new: &str) -> String {
    let name = file.display().to_string();
    TextDiff::from_lines(old, new).unified_diff().context_radius(3).header(&name, &name).to_string()
}

fn agreed(file: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let message = format!(
            "cannot ask whether to change {}: standard input is not a terminal; use --yes",
            file.display()
        );
        return Err(UsageError(message).into());
    }
    crate::output::question(&format!("Write {}? [y/N] ", file.display()));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
