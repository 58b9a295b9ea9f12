//! `gantry completions` prints a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use gantry_tool::Reply;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry completions bash > ~/.local/share/bash-completion/completions/gantry\n  \
    gantry completions zsh > ~/.zfunc/_gantry")]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for
    pub(crate) shell: Shell,
}

pub(crate) fn run(output: &Output, args: &CompletionsArgs) -> Exit {
    // The script is generated in memory, because the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gantry", &mut script);
    output.reply(&Reply::Text(String::from_utf8_lossy(&script).into_owned()));
    Exit::Success
}
