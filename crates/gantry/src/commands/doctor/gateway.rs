//! Checks the gateway: whether it answers, its clock, and the state of its nodes.

use std::path::Path;
use std::time::Instant;

use gantry_protocol::{AgentInfo, AgentList, Empty, NodeInfo, NodeList, method};

use super::{Check, Health, workspace};
use crate::client::{Address, Client, Target, runtime};
use crate::environment::Environment;
use crate::output::Output;

/// A larger difference between the clocks makes times in logs hard to compare.
const CLOCK_LIMIT_MS: i64 = 5_000;

pub(super) fn checks(environment: &Environment, output: &Output) -> Vec<Check> {
    let address = match Target::find(environment, output, false) {
        Ok(Target::Gateway(address)) => address,
        Ok(Target::InProcess) => {
            let text =
                "not running on this data directory, so tools run in-process; `gantry up` starts one".into();
            let here = workspace(environment, &environment.current_dir, "if you run `gantry up` here");
            return vec![Check { name: "gateway", health: Health::Good, text }, here];
        }
        Err(err) => return vec![Check { name: "gateway", health: Health::Bad, text: format!("{err:#}") }],
    };
    match ask(&address) {
        Ok(report) => {
            let mut checks = judge(&address, &report);
            // The paths of a gateway elsewhere mean nothing here.
            let agents = report.agents.iter().filter(|_| address.is_ours);
            checks.extend(agents.map(|agent| {
                workspace(environment, Path::new(&agent.workspace), &format!("agent {}", agent.id))
            }));
            checks
        }
        Err(text) => vec![Check { name: "gateway", health: Health::Bad, text }],
    }
}

/// `GatewayReport` is what the gateway answered.
struct GatewayReport {
    version: String,
    took_ms: f64,
    /// How far the gateway's clock is ahead of ours.
    ahead_ms: i64,
    nodes: Vec<NodeInfo>,
    /// Empty if the token may not list them.
    agents: Vec<AgentInfo>,
}

fn ask(address: &Address) -> Result<GatewayReport, String> {
    let runtime = runtime().map_err(|err| format!("{err:#}"))?;
    runtime.block_on(async {
        let started = Instant::now();
        let client = Client::connect(address).await.map_err(|refusal| refusal.message)?;
        let took_ms = started.elapsed().as_secs_f64() * 1e3;
        let server = client.hello.server.clone();
        let ahead_ms = server.now - jiff::Timestamp::now().as_millisecond();
        let listed = client.request::<NodeList>(method::NODES_LIST, &Empty {}).await;
        let agents = client.request::<AgentList>(method::AGENTS_LIST, &Empty {}).await;
        let agents = agents.map(|listed| listed.agents).unwrap_or_default();
        client.close().await;
        let nodes = listed.map_err(|err| err.to_string())?.nodes;
        Ok(GatewayReport { version: server.version, took_ms, ahead_ms, nodes, agents })
    })
}

fn judge(address: &Address, report: &GatewayReport) -> Vec<Check> {
    let ours = env!("CARGO_PKG_VERSION");
    let mut checks = vec![Check {
        name: "gateway",
        health: if report.version == ours { Health::Good } else { Health::Warning },
        text: format!("{} answers in {:.1} ms, version {}", address.url, report.took_ms, report.version),
    }];
    checks.push(match report.ahead_ms.abs() > CLOCK_LIMIT_MS {
        false => Check { name: "clock", health: Health::Good, text: "in sync with the gateway".into() },
        true => Check {
            name: "clock",
            health: Health::Warning,
            text: format!(
                "the gateway's clock differs from this machine's by {:+.1} s",
                report.ahead_ms as f64 / 1e3
            ),
        },
    });
    checks.extend(report.nodes.iter().map(|node| self::node(node, &report.version)));
    checks
}

fn node(node: &NodeInfo, gateway_version: &str) -> Check {
    let version = node.client_version.as_deref();
    let (health, state) = match (node.revoked, node.online, version) {
        (true, ..) => (Health::Warning, "its token is revoked".to_owned()),
        (_, false, None) => (Health::Warning, "has never connected".to_owned()),
        (_, false, Some(_)) => (Health::Warning, "is offline".to_owned()),
        (_, true, Some(version)) if version != gateway_version => {
            (Health::Warning, format!("has version {version}, the gateway has {gateway_version}"))
        }
        (_, true, _) => (Health::Good, format!("online, version {}", version.unwrap_or("unknown"))),
    };
    Check { name: "node", health, text: format!("{} {state}", node.id) }
}
