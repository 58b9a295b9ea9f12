//! `gantry mcp install`: enters `gantry mcp` in a client's configuration. Shows what changes, asks, and keeps the old file.

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

/// A configuration beyond this is none.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp install claude                    ask, then write ~/.claude.json; the old file stays beside it\n  \
    gantry mcp install codex --print             only show what would change\n  \
    gantry mcp --read-only install cursor        the client gets these flags too")]
pub(crate) struct InstallArgs {
    /// Whose configuration is changed
    #[arg(value_enum)]
    pub(crate) client: McpClient,
    /// Only show what would change
    #[arg(long)]
    pub(crate) print: bool,
    /// Do not ask
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
    let file = args.client.file(environment).context("cannot tell the home directory")?;
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
        UsageError(format!("cannot change {}: {err}\nenter this there yourself:\n{snippet}", file.display()))
    })?;
    if edited == text {
        output.done(&format!("{} has it already", file.display()));
        return Ok(Exit::Success);
    }
    output.page(difference(&file, &text, &edited).trim_end());
    if args.print {
        return Ok(Exit::Success);
    }
    if !args.yes && !agreed(&file)? {
        output.done("nothing was changed");
        return Ok(Exit::Failure);
    }
    // Clients keep credentials in these files: the copy lies where no tool can read it.
    let backup = match &old {
        Some(old) => {
            Some(environment.data.keep_copy(&file, old).context("cannot keep a copy of the old file")?)
        }
        None => None,
    };
    let written = match &backup {
        Some(_) => scope
            .replace(&file, &[edited.as_bytes()], WriteOptions::default())
            .map(drop)
            .map_err(anyhow::Error::from),
        // Clients will keep credentials in it: a new file is its owner's alone.
        None => {
            DataDir::write_config(&file, &edited).with_context(|| format!("cannot write {}", file.display()))
        }
    };
    if let Err(err) = written {
        // A copy of what was not changed is of no use to anybody.
        if let Some(backup) = &backup {
            let _ = scope.remove(backup);
        }
        return Err(err);
    }
    if let Some(backup) = &backup {
        output.note(&format!("the old file is {}", backup.display()));
    }
    output.done(&format!("{} is written; restart the client", file.display()));
    choice::tell_of_token(environment, output);
    Ok(Exit::Success)
}

/// This very program, with the flags that were given, on the data directory and the configuration that are used now.
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
        let message = format!("nobody can be asked whether {} may be changed; say --yes", file.display());
        return Err(UsageError(message).into());
    }
    crate::output::question(&format!("Write {}? [y/N] ", file.display()));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
