//! `gantry ports` lists the ports that commands of isolated agents listen on, and forwards one to the loopback.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{Empty, PortForward, PortForwarded, PortList, method};

use crate::client::{Client, Target, runtime};
use crate::commands::interrupted;
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::output::{Output, printable};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry ports                                     list the ports of agents' commands\n  \
    gantry ports forward 8123                        reach one at 127.0.0.1:8123\n  \
    gantry ports forward 8123 --session work --listen 127.0.0.1:9000")]
pub(crate) struct PortsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<PortsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortsAction {
    /// Forward a port to this machine's loopback, until Ctrl-C
    Forward {
        /// Port that an agent's command listens on
        port: u16,
        /// Session of the command; needed if several sessions listen on the port
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// Loopback address to listen on; port 0 picks a free one [default: 127.0.0.1 and the same port]
        #[arg(long, value_name = "ADDR")]
        listen: Option<std::net::SocketAddr>,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: PortsArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let Some(PortsAction::Forward { port, session, listen }) = args.action else {
        list(output, &Client::once(&address, output, method::PORTS_LIST, &Empty {})?);
        return Ok(Exit::Success);
    };
    if !address.is_ours {
        let message = "cannot forward a port of a gateway on another machine; run the command there";
        return Err(UsageError(message.into()).into());
    }
    runtime()?.block_on(async {
        let client = Client::connect(&address).await.map_err(Refused)?;
        client.warn_of_other_version(output);
        let params = PortForward { port, session, listen: listen.map(|listen| listen.to_string()) };
        let interrupt = interrupted();
        let forwarded = client.request::<PortForwarded>(method::PORTS_FORWARD, &params).await;
        if let Ok(forwarded) = &forwarded {
            announce(output, forwarded);
            tokio::select! {
                () = interrupt => {}
                () = client.closed() => output.warning("the gateway closed the connection"),
            }
        }
        client.close().await;
        forwarded.map(|_| Exit::Success)
    })
}

fn announce(output: &Output, forwarded: &PortForwarded) {
    if output.json {
        return output.value(forwarded);
    }
    let PortForwarded { session, port, listen } = forwarded;
    output.line(&format!("{} leads to port {port} of {}", output.bold(listen), printable(session)));
    output.line(&output.dim("Press Ctrl-C to stop."));
}

fn list(output: &Output, listed: &PortList) {
    if output.json {
        return output.value(&listed.ports);
    }
    if listed.ports.is_empty() {
        output.note_on_terminal("No command of an isolated agent listens on a port.");
    }
    for found in &listed.ports {
        let process = match (&found.process, found.pid) {
            (Some(name), Some(pid)) => format!("{} (pid {pid})", printable(name)),
            _ => "unknown process".to_owned(),
        };
        output.line(&format!("{:>5}  {}  {process}", found.port, output.bold(&printable(&found.session))));
    }
}
