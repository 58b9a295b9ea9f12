//! `gantry completions`: a script for the user's shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Exit;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry completions bash > ~/.local/share/bash-completion/completions/gantry\n  \
    gantry completions zsh > ~/.zfunc/_gantry")]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Exit {
    clap_complete::generate(args.shell, &mut Cli::command(), "gantry", &mut std::io::stdout());
    Exit::Success
}
