//! `gantry node status` and `gantry node logs` show a node's state and its log.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gantry_node::{Follow, NodeHome, NodeState, Phase, tail};
use serde_json::json;

use crate::commands::logs::format_line;
use crate::commands::service::node_state;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::{Output, printable};

/// How often `--follow` reads new lines.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Prints the node's state. Succeeds only if the node runs and is connected.
pub(super) fn status(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    let service = node_state(environment, home.id());
    let pid = home.running();
    let state = NodeState::read(home);
    let connected = pid.is_some() && state.as_ref().is_some_and(|state| state.phase == Phase::Connected);
    if output.json {
        output.value(&json!({
            "id": home.id(), "service": service, "pid": pid, "connected": connected, "state": state,
            "logs": home.logs(),
        }));
        return Ok(if connected { Exit::Success } else { Exit::Failure });
    }
    let row = |name: &str, text: &str| output.line(&format!("{name:<12} {}", printable(text)));
    row("node", home.id());
    row("service", &service);
    match (pid, connected) {
        (None, _) => row("process", "not running"),
        (Some(pid), true) => row("process", &format!("{pid}, connected")),
        (Some(pid), false) => row("process", &format!("{pid}, not connected")),
    }
    if let Some(state) = &state {
        row("gateway", &state.gateway);
        row("workspace", &state.workspace);
        row("since", &format!("{:.0}", state.since));
        if let (Some(error), Some(at)) = (&state.last_error, state.last_error_at) {
            row("last error", &format!("{error} ({at:.0})"));
        }
    }
    row("logs", &home.logs().display().to_string());
    Ok(if connected { Exit::Success } else { Exit::Failure })
}

/// Prints the newest lines of a log, and follows it. `whose` names the owner in errors.
pub(crate) fn logs_of(
    output: &Output,
    folder: &Path,
    whose: &str,
    lines: usize,
    follow: bool,
) -> Result<Exit> {
    let failed = || format!("cannot read the log in {}", folder.display());
    // Following starts before the tail is read, so that a line in between is shown twice rather than never.
    let mut following = if follow { Some(Follow::new(folder).with_context(failed)?) } else { None };
    let found = tail(folder, lines).with_context(failed)?;
    // A process logs its start first, so an empty log means that none has run.
    if found.lines.is_empty() && !found.truncated {
        let hint = if whose == "gateway" {
            "the log is written when `gantry up` runs with this data directory"
        } else {
            "the log is written when `gantry node` runs with this id and data directory"
        };
        bail!("the {whose} has no log in {}\nhint: {hint}", folder.display());
    }
    found.lines.iter().for_each(|line| output.line(&format_line(output, line)));
    if found.truncated {
        output.note(&format!("older lines are in {}", folder.display()));
    }
    while let Some(following) = &mut following {
        std::thread::sleep(LOOK_EVERY);
        following
            .lines()
            .with_context(failed)?
            .iter()
            .for_each(|line| output.line(&format_line(output, line)));
        if !output.is_read() {
            break;
        }
    }
    Ok(Exit::Success)
}
