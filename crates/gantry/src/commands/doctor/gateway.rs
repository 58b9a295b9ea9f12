//! What a doctor asks a gateway: whether it answers, what time it has, and how its nodes are.

use std::time::Instant;

use gantry_protocol::{Empty, NodeInfo, NodeList, method};

use super::{Check, Health};
use crate::client::{Address, Client, Target, runtime};
use crate::environment::Environment;
use crate::output::Output;

/// Clocks that differ more than this make times in logs hard to follow.
const CLOCK_LIMIT_MS: i64 = 5_000;

pub(super) fn checks(environment: &Environment, output: &Output) -> Vec<Check> {
    let address = match Target::find(environment, output, false) {
        Ok(Target::Gateway(address)) => address,
        Ok(Target::InProcess) => {
            let text =
                "none runs on this data directory; tools run in-process (`gantry up` starts one)".into();
            return vec![Check { name: "gateway", health: Health::Good, text }];
        }
        Err(err) => return vec![Check { name: "gateway", health: Health::Bad, text: format!("{err:#}") }],
    };
    match ask(&address) {
        Ok(answer) => judge(&address, &answer),
        Err(text) => vec![Check { name: "gateway", health: Health::Bad, text }],
    }
}

struct Asked {
    version: String,
    took_ms: f64,
    /// How far its clock is ahead of ours.
    ahead_ms: i64,
    nodes: Vec<NodeInfo>,
}

fn ask(address: &Address) -> Result<Asked, String> {
    let runtime = runtime().map_err(|err| format!("{err:#}"))?;
    runtime.block_on(async {
        let started = Instant::now();
        let client = Client::connect(address).await.map_err(|refusal| refusal.message)?;
        let took_ms = started.elapsed().as_secs_f64() * 1e3;
        let server = client.hello.server.clone();
        let ahead_ms = server.now - jiff::Timestamp::now().as_millisecond();
        let listed = client.request::<NodeList>(method::NODES_LIST, &Empty {}).await;
        client.close().await;
        let nodes = listed.map_err(|err| err.to_string())?.nodes;
        Ok(Asked { version: server.version, took_ms, ahead_ms, nodes })
    })
}

fn judge(address: &Address, asked: &Asked) -> Vec<Check> {
    let ours = env!("CARGO_PKG_VERSION");
    let mut checks = vec![Check {
        name: "gateway",
        health: if asked.version == ours { Health::Good } else { Health::Warning },
        text: format!("{} answers in {:.1} ms, version {}", address.url, asked.took_ms, asked.version),
    }];
    checks.push(match asked.ahead_ms.abs() > CLOCK_LIMIT_MS {
        false => Check { name: "clock", health: Health::Good, text: "agrees with the gateway's".into() },
        true => Check {
            name: "clock",
            health: Health::Warning,
            text: format!("the gateway's is {:+.1} s from ours", asked.ahead_ms as f64 / 1e3),
        },
    });
    checks.extend(asked.nodes.iter().map(|node| self::node(node, &asked.version)));
    checks
}

fn node(node: &NodeInfo, gateway_version: &str) -> Check {
    let version = node.client_version.as_deref();
    let (health, state) = match (node.revoked, node.online, version) {
        (true, ..) => (Health::Warning, "its token is revoked".to_owned()),
        (_, false, None) => (Health::Warning, "has never connected".to_owned()),
        (_, false, Some(_)) => (Health::Warning, "is offline".to_owned()),
        (_, true, Some(version)) if version != gateway_version => {
            (Health::Warning, format!("has version {version}, the gateway {gateway_version}"))
        }
        (_, true, _) => (Health::Good, format!("online, version {}", version.unwrap_or("unknown"))),
    };
    Check { name: "node", health, text: format!("{} {state}", node.id) }
}
