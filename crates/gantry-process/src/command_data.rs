//! `CommandData` is a command in a form that another process can run: plain data, with its descriptors next to it.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::{Capture, Command, Cwd, Stdin};
use crate::keeper::control_protocol::OsText;
use crate::network::SessionNetwork;
use crate::sandbox::Sandbox;

/// A foreground command. Standard input is empty.
#[derive(Debug, Serialize, Deserialize)]
pub struct CommandData {
    program: OsText,
    args: Vec<OsText>,
    env: Vec<(OsText, OsText)>,
    /// If `None`, the last descriptor is the directory.
    cwd: Option<OsText>,
    timeout: Option<Duration>,
    capture: Capture,
    beyond_cut: usize,
    sandbox: Sandbox,
    network: Option<JoinedNetwork>,
}

/// The descriptors of a network come before the directory's: the user namespace, if there is one, and the network
/// namespace.
#[derive(Debug, Serialize, Deserialize)]
struct JoinedNetwork {
    with_user: bool,
}

impl Command {
    /// Splits a command without standard input into its data and its descriptors.
    pub fn into_data(self) -> Result<(CommandData, Vec<OwnedFd>), Error> {
        let Command { program, args, cwd, env, stdin, timeout, capture, beyond_cut, sandbox, network } = self;
        if stdin == Stdin::Pipe {
            return Err(Error::other("a command with standard input cannot run in another process"));
        }
        let mut descriptors = Vec::new();
        let mut joined = None;
        if let Some(network) = network {
            let (user, network) = network.descriptors()?;
            joined = Some(JoinedNetwork { with_user: user.is_some() });
            descriptors.extend(user);
            descriptors.push(network);
        }
        let cwd = match cwd {
            Cwd::Path(path) => Some(OsText::from(&path)),
            Cwd::Dir(directory) => {
                descriptors.push(directory);
                None
            }
        };
        let data = CommandData {
            program: OsText::from(&program),
            args: args.iter().map(OsText::from).collect(),
            env: env.iter().map(|(name, value)| (OsText::from(name), OsText::from(value))).collect(),
            cwd,
            timeout,
            capture,
            beyond_cut,
            sandbox,
            network: joined,
        };
        Ok((data, descriptors))
    }
}

impl CommandData {
    /// Returns the command. Fails if descriptors are missing.
    pub fn into_command(self, descriptors: Vec<OwnedFd>) -> Result<Command, Error> {
        let CommandData { program, args, env, cwd, timeout, capture, beyond_cut, sandbox, network } = self;
        let mut descriptors = descriptors.into_iter();
        let mut next =
            || descriptors.next().ok_or_else(|| Error::other("a descriptor of the command is missing"));
        let network = match network {
            Some(JoinedNetwork { with_user }) => {
                let user = if with_user { Some(next()?) } else { None };
                Some(Arc::new(SessionNetwork::of_descriptors(user, next()?)))
            }
            None => None,
        };
        let cwd = match cwd {
            Some(path) => Cwd::Path(path.path()),
            None => Cwd::Dir(next()?),
        };
        Ok(Command {
            program: program.0,
            args: args.into_iter().map(|arg| arg.0).collect(),
            cwd,
            env: env.into_iter().map(|(name, value)| (name.0, value.0)).collect(),
            stdin: Stdin::Empty,
            timeout,
            capture,
            beyond_cut,
            sandbox,
            network,
        })
    }
}
