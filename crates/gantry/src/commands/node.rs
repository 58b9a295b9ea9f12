//! `gantry node`: this machine joins a gateway.

mod join;

use anyhow::Result;

use crate::cli::NodeCommand;
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: Places, output: &Output, command: NodeCommand) -> Result<Exit> {
    match command.action {
        None => join::run(places, output, &command.args),
        Some(action) => match action {},
    }
}
