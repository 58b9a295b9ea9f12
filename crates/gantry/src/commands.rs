//! The commands, one file each. A command takes its parsed arguments and returns an exit code.

mod agents;
pub(crate) mod apis;
mod ask;
pub(crate) mod audit;
pub(crate) mod browser;
pub(crate) mod call;
pub(crate) mod channels;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cron;
mod doctor;
pub(crate) mod google;
pub(crate) mod grants;
pub(crate) mod join;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod outbox;
pub(crate) mod page;
pub(crate) mod pipelines;
pub(crate) mod policy;
pub(crate) mod ports;
pub(crate) mod processes;
pub(crate) mod results;
pub(crate) mod secrets;
pub(crate) mod service;
pub(crate) mod sessions;
mod status;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod transfer;
pub(crate) mod up;
pub(crate) mod workspace;

use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;
use crate::running_gateway::LocalNode;

pub(crate) fn run(cli: Cli, output: &Output) -> Result<Exit> {
    if let Command::Completions(args) = &cli.command {
        return completions::run(output, args);
    }
    let environment = Environment::find(&cli.global)?;
    match cli.command {
        Command::Up(args) => up::run(environment, output, args, LocalNode::Included),
        Command::Serve(args) => up::run(environment, output, args, LocalNode::LeftOut),
        Command::Page(args) => page::run(&environment, output, args),
        Command::Nodes(args) => nodes::run(&environment, output, args),
        Command::Workspace(args) => workspace::run(environment, output, args),
        Command::Logs(args) => logs::run(environment, output, &args),
        Command::Transfer(args) => transfer::run(&environment, output, &args),
        Command::Secrets(args) => secrets::run(&environment, output, args),
        Command::Apis(args) => apis::run(&environment, output, args),
        Command::Models(args) => models::run(&environment, output, args),
        Command::Tokens(args) => tokens::run(&environment, output, args),
        Command::Tools(args) => tools::run(environment, output, &args),
        Command::Call(args) => call::run(environment, output, args),
        Command::Chat(args) => chat::run(environment, output, args),
        Command::Sessions(args) => sessions::run(&environment, output, args),
        Command::Cron(args) => cron::run(&environment, output, args),
        Command::Channels(args) => channels::run(&environment, output, args),
        Command::Google(args) => google::run(&environment, output, args),
        Command::Outbox(args) => outbox::run(&environment, output, args),
        Command::Grants(args) => grants::run(&environment, output, args),
        Command::Pipelines(args) => pipelines::run(&environment, output, args),
        Command::Processes(args) => processes::run(&environment, output, args),
        Command::Tasks(args) => tasks::run(&environment, output, args),
        Command::Agents => agents::run(&environment, output),
        Command::Mcp(args) => mcp::run(environment, output, args),
        Command::Join(args) => join::run(environment, output, &args),
        Command::Service(args) => service::run(&environment, output, args),
        Command::Node(command) => node::run(environment, output, command),
        Command::Results(args) => results::run(&environment, output, &args),
        Command::Audit(args) => audit::run(&environment, output, args),
        Command::Config(args) => config::run(&environment, output, args),
        Command::Policy(args) => policy::run(environment, output, args),
        Command::Ports(args) => ports::run(&environment, output, args),
        Command::Status => status::run(&environment, output),
        Command::Doctor => doctor::run(environment, output),
        Command::Completions(args) => completions::run(output, &args),
    }
}

/// Returns at the first SIGINT or SIGTERM after this call. Signals are caught from the call on, not from the first
/// poll: a program that has announced itself may be stopped at once.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
