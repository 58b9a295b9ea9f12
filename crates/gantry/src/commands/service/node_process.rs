//! Stops a node's process, and ends background commands that outlived their node or gateway.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gantry_node::NodeHome;
use gantry_store::GatewayLock;
use gantry_toolsets::LOCAL_NODE;

use super::Service;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;
use crate::services::manager::Manager;
use crate::services::unit::{Role, Scope};

/// Timeout for a node to stop: running calls get ten seconds to finish and three to be ended.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Stops the service, and also a node that runs in the foreground.
pub(crate) fn stop_node(
    environment: &Environment,
    output: &Output,
    home: &NodeHome,
    kill: bool,
) -> Result<Exit> {
    let manager = Manager::new(environment)?;
    let service = Service::of(environment, Role::Node(home.id().to_owned()), Scope::User)?;
    if service.is_installed()
        && let Err(err) = manager.stop(&service.unit, service.stop_seconds)
    {
        output.note(&format!("cannot reach the service manager: {err:#}"));
    }
    let was_running = home.ask_to_stop().context("cannot stop the node's process")?;
    let asked_at = Instant::now();
    while home.running().is_some() {
        if asked_at.elapsed() > STOP_LIMIT {
            bail!(
                "the node \"{}\" (process {}) did not stop in time",
                home.id(),
                home.running().unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut ended = 0;
    if kill {
        // This includes commands that other nodes left under this id, because no other id reaches them.
        for sessions in std::iter::once(home.processes()).chain(home.left_by_all()) {
            ended += manager.block_on(gantry_process::end_sessions(&sessions))?;
        }
    }
    let text = if was_running { "stopped" } else { "not running" };
    output.line(&format!("The node \"{}\" is {text}.", home.id()));
    if kill {
        print_ended(output, ended);
        let others = gateway_process_count(environment);
        if others > 0 && GatewayLock::running(&environment.data).is_none() {
            output.line(&format!(
                "A stopped gateway left {others} more; `gantry node stop --kill --id {LOCAL_NODE}` ends them."
            ));
        }
    }
    Ok(Exit::Success)
}

/// Ends background commands that stopped gateways on this data directory left running. A running gateway manages its own.
pub(crate) fn end_gateway_processes(environment: &Environment, output: &Output) -> Result<Exit> {
    if let Some(running) = GatewayLock::running(&environment.data) {
        bail!(
            "cannot end background commands: the gateway that owns them is running (process {})\nhint: stop the gateway \
             first, or end one command with `gantry call Process '{{\"action\": \"kill\", \"sessionId\": \"…\"}}'` \
             (action \"list\" shows them)",
            running.pid
        );
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    // If a gateway starts now, it holds the directory's lock and this fails.
    let ended = runtime.block_on(gantry_process::end_sessions(&environment.data.process_logs()))?;
    output.line("The gateway is not running.");
    print_ended(output, ended);
    Ok(Exit::Success)
}

/// Counts the running background commands of gateways on this data directory.
pub(crate) fn gateway_process_count(environment: &Environment) -> usize {
    gantry_process::living_sessions(&environment.data.process_logs())
}

fn print_ended(output: &Output, ended: usize) {
    let processes = if ended == 1 { "process" } else { "processes" };
    output.line(&format!("Ended {ended} background {processes}."));
}
