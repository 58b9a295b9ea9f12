//! `gantry completions`: a script for the user's shell.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::Exit;

pub(crate) fn run(args: &CompletionsArgs) -> Exit {
    clap_complete::generate(args.shell, &mut Cli::command(), "gantry", &mut std::io::stdout());
    Exit::Success
}
