//! `gantry status` shows the gateway, its machines, channels, schedules and conversations at a glance.

use anyhow::Result;
use gantry_flow::relative_text;
use gantry_protocol::{
    ChannelList, CronStatus, CronStatusParams, Empty, GatewayStatus, NodeList, OutboxList, OutboxListParams,
    OutboxState, SessionList, SessionsListParams, method,
};
use gantry_store::GatewayLock;
use serde::Serialize;

use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

/// How many of the newest conversations are looked at.
const SESSIONS: u32 = 200;

/// The state of everything, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    url: String,
    /// Milliseconds since 1970; only known on the gateway's own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<i64>,
    needs_restart: Vec<String>,
    nodes: NodeList,
    channels: ChannelList,
    schedules: CronStatus,
    sessions: Sessions,
    /// Messages that may not have arrived, or that failed.
    outbox: Outbox,
}

#[derive(Debug, Default, Serialize)]
struct Sessions {
    total: u64,
    running: usize,
    waiting: usize,
}

#[derive(Debug, Serialize)]
struct Outbox {
    queued: u64,
    unknown: u64,
    failed: u64,
}

pub(crate) fn run(environment: &Environment, output: &Output) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let count = |state: OutboxState| -> Result<u64> {
        let params = OutboxListParams { state: Some(state), limit: Some(1), ..OutboxListParams::default() };
        let listed: OutboxList = Client::once(&address, output, method::OUTBOX_LIST, &params)?;
        Ok(listed.total)
    };
    let status: GatewayStatus = Client::once(&address, output, method::GATEWAY_STATUS, &Empty {})?;
    let params = SessionsListParams { limit: Some(SESSIONS), ..SessionsListParams::default() };
    let listed: SessionList = Client::once(&address, output, method::SESSIONS_LIST, &params)?;
    let running = GatewayLock::running(&environment.data).filter(|_| address.is_ours);
    let overview = Overview {
        url: address.url.to_string(),
        started: running.map(|running| running.started),
        needs_restart: status.needs_restart,
        nodes: Client::once(&address, output, method::NODES_LIST, &Empty {})?,
        channels: Client::once(&address, output, "channels.list", &Empty {})?,
        schedules: Client::once(&address, output, method::CRON_STATUS, &CronStatusParams::default())?,
        sessions: Sessions {
            total: listed.total,
            running: listed.sessions.iter().filter(|session| session.running && !session.waiting).count(),
            waiting: listed.sessions.iter().filter(|session| session.waiting).count(),
        },
        outbox: Outbox {
            queued: count(OutboxState::Queued)?,
            unknown: count(OutboxState::Unknown)?,
            failed: count(OutboxState::Failed)?,
        },
    };
    match output.json {
        true => output.value(&overview),
        false => show(output, &overview),
    }
    Ok(Exit::Success)
}

fn show(output: &Output, overview: &Overview) {
    let now = jiff::Timestamp::now().as_millisecond();
    let row =
        |name: &str, text: &str| output.prose(&format!("{}{text}", output.bold(&format!("{name:<11}"))), 11);
    let since = overview.started.map_or(String::new(), |at| format!(", started {}", relative_text(at, now)));
    row("gateway", &format!("{}{since}", overview.url));
    if !overview.needs_restart.is_empty() {
        let keys = overview.needs_restart.join(", ");
        row("", &output.yellow(&format!("restart it to apply {keys}")));
    }
    let nodes: Vec<String> = overview
        .nodes
        .nodes
        .iter()
        .map(|node| {
            let state = if node.online { output.green("online") } else { output.dim("offline") };
            format!("{} {state}", node.id)
        })
        .collect();
    row("machines", &if nodes.is_empty() { "none".to_owned() } else { nodes.join(" · ") });
    let channels: Vec<String> = overview
        .channels
        .accounts
        .iter()
        .map(|account| {
            let state = account.state.replace('_', " ");
            let state =
                if account.state == "connected" { output.green(&state) } else { output.yellow(&state) };
            format!("{} {state}", account.id)
        })
        .collect();
    row(
        "channels",
        &if channels.is_empty() {
            "none; `gantry channels add telegram` adds one".to_owned()
        } else {
            channels.join(" · ")
        },
    );
    let schedules = &overview.schedules;
    let next =
        schedules.next_run_at_ms.map_or(String::new(), |at| format!(", the next {}", relative_text(at, now)));
    let running = if schedules.running_count > 0 {
        format!(", {} running", schedules.running_count)
    } else {
        String::new()
    };
    row("schedules", &format!("{}{running}{next}", counted(schedules.count, "job", "jobs")));
    let sessions = &overview.sessions;
    let mut facts = vec![counted(sessions.total, "conversation", "conversations")];
    if sessions.running > 0 {
        facts.push(format!("{} running", sessions.running));
    }
    if sessions.waiting > 0 {
        facts.push(output.yellow(&format!("{} waiting for you: gantry sessions", sessions.waiting)));
    }
    row("sessions", &facts.join(", "));
    let Outbox { queued, unknown, failed } = overview.outbox;
    if queued + unknown + failed > 0 {
        let mut facts = vec![format!("{queued} to send")];
        if unknown + failed > 0 {
            facts.push(output.yellow(&format!("{unknown} unknown, {failed} failed: gantry outbox")));
        }
        row("outbox", &facts.join(", "));
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
