//! `gantry completions` prints a shell's completion script, or writes the man pages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::env::Shells;
use gantry_files::{Files, FilesOptions, WriteOptions};
use gantry_tool::Reply;

use crate::cli::Cli;
use crate::completion::VARIABLE;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry completions bash > ~/.local/share/bash-completion/completions/gantry\n  \
    gantry completions zsh > ~/.zfunc/_gantry\n  \
    gantry completions fish > ~/.config/fish/completions/gantry.fish\n  \
    gantry completions man --dir /usr/local/share/man/man1\n\n\
    Print the script again after an update of Gantry.")]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for, or man for the man pages
    #[arg(value_name = "SHELL")]
    pub(crate) form: Form,
    /// With man: the directory to write the pages to
    #[arg(long, value_name = "DIR", required_if_eq("form", "man"))]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    Man,
}

pub(crate) fn run(output: &Output, args: &CompletionsArgs) -> Result<Exit> {
    let shell = match args.form {
        Form::Bash => "bash",
        Form::Elvish => "elvish",
        Form::Fish => "fish",
        Form::Powershell => "powershell",
        Form::Zsh => "zsh",
        Form::Man => {
            let dir = args.dir.as_deref().unwrap_or(Path::new("."));
            let count = write_pages(dir)?;
            output.done(&format!("wrote {count} man pages to {}", dir.display()));
            return Ok(Exit::Success);
        }
    };
    let shells = Shells::builtins();
    let shell = shells.completer(shell).ok_or_else(|| UsageError(format!("unknown shell {shell}")))?;
    // The script is generated in memory, so that a failed write is reported like that of any other output.
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "gantry", "gantry", "gantry", &mut script)?;
    output.reply(&Reply::Text(String::from_utf8_lossy(&script).into_owned()));
    Ok(Exit::Success)
}

/// Writes a page for each command: `gantry.1`, `gantry-call.1` and so on. Returns how many there are.
#[expect(clippy::disallowed_methods, reason = "the operator's own directory")]
fn write_pages(dir: &Path) -> Result<usize> {
    let base = std::env::current_dir().context("cannot find the current directory")?;
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    let scope = files.free(&base)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut count = 0;
    pages(&command, &mut |name, page| {
        let path = dir.join(name);
        let options = WriteOptions { make_parents: true, only_new: false };
        scope.replace(&path, &[page], options).with_context(|| format!("cannot write {}", path.display()))?;
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

fn pages(command: &clap::Command, write: &mut impl FnMut(String, &[u8]) -> Result<()>) -> Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    write(page.get_filename(), &text)?;
    command.get_subcommands().filter(|child| !child.is_hide_set()).try_for_each(|child| pages(child, write))
}
