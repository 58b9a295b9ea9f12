//! The configured MCP servers, put together from the configuration and this machine's surroundings.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use gantry_mcp::client::{ServerSpec, Servers, Surroundings};
use gantry_process::Processes;
use gantry_store::ServerRecords;
use gantry_tool::Registry;

use crate::config::{Config, read_at_start};
use crate::logging::FILE_ONLY;
use crate::output::RunningNotes;
use crate::places::Places;

/// How soon a gateway takes up a changed configuration.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Their tools are registered as far as they are known; none is started.
pub(crate) fn open(
    places: &Places,
    config: &Config,
    processes: Processes,
    registry: Registry,
) -> Result<Servers> {
    let around = Surroundings {
        processes,
        variables: places.variables.clone(),
        closed: places.closed(),
        secrets: places.secrets(),
        records: ServerRecords::new(&places.data),
        network: config.web.network(places.trust()?),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(Servers::open(around, registry, specs(places, config)))
}

pub(crate) fn specs(places: &Places, config: &Config) -> Vec<ServerSpec> {
    let home = places.variable("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    config.mcp_servers.iter().filter_map(|(name, server)| server.spec(name, &home)).collect()
}

/// Prints a warning, and logs it.
fn warn(notes: RunningNotes, detail: &str) {
    notes.warning(&format!("warning: {detail}"));
    tracing::warn!(target: FILE_ONLY, detail, "warning");
}

/// Takes up servers that are added, changed or removed while a gateway runs. A configuration that is not valid changes
/// nothing, and is told.
pub(crate) async fn follow_configuration(places: &Places, servers: &Servers, notes: RunningNotes) {
    let mut seen = places.configuration_version();
    let mut last = places.layers.load().ok();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = places.configuration_version();
        if now != seen {
            seen = now;
            match places.layers.load() {
                Ok(mut config) => {
                    let keys = last.as_ref().map(|last| read_at_start(last, &config)).unwrap_or_default();
                    if !keys.is_empty() {
                        warn(
                            notes,
                            &format!(
                                "{} has changed ({}). Restart the gateway to apply the change (only mcpServers and \
                             models are reloaded live).",
                                places.layers.file.display(),
                                keys.join(", ")
                            ),
                        );
                    }
                    last = Some(config.clone());
                    config.resolve_paths(|path| places.resolve(path));
                    let known = servers.problems();
                    places.live_secrets.add(config.secrets());
                    servers.apply(specs(places, &config)).await;
                    for problem in servers.problems().iter().filter(|problem| !known.contains(problem)) {
                        warn(notes, problem);
                    }
                }
                Err(err) => warn(
                    notes,
                    &format!(
                        "{} has changed and is not valid, so what was configured before stays: {err:#}",
                        places.layers.file.display()
                    ),
                ),
            }
        }
    }
}
