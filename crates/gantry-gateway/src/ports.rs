//! `PortsDomain` shows the operator which ports agents' commands listen on, and forwards one to the loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use gantry_domain::{Domain, MethodContext, Methods};
use gantry_link::Link;
use gantry_protocol::{
    Empty, ErrorCode, PortForward, PortForwarded, PortList, SessionPort, WireError, method,
};
use gantry_toolsets::{AgentNetwork, AgentPort, Machine};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many connections one forward carries at once. Further ones wait.
const MAX_CONNECTIONS: usize = 64;

/// Ports of the gateway's own machine.
pub struct PortsDomain(pub Arc<Machine>);

impl Domain for PortsDomain {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn methods(&self) -> Methods {
        Methods::default().on_operator(method::PORTS_LIST, &self.0, list).on_operator(
            method::PORTS_FORWARD,
            &self.0,
            forward,
        )
    }
}

async fn list(machine: Arc<Machine>, _: MethodContext, _: Empty) -> Result<PortList, WireError> {
    let found = agent_ports(&machine).await?;
    let shown = |(AgentPort { session, port, process }, _)| {
        let (pid, process) = process.unzip();
        SessionPort { session, port, pid, process }
    };
    Ok(PortList { ports: found.into_iter().map(shown).collect() })
}

async fn agent_ports(machine: &Machine) -> Result<Vec<(AgentPort, AgentNetwork)>, WireError> {
    machine.agent_ports().await.map_err(|err| WireError::new(ErrorCode::Failed, err.to_string()))
}

/// Listens on the loopback until the client disconnects.
#[expect(clippy::disallowed_methods, reason = "the gateway listens, and here on the loopback only")]
async fn forward(
    machine: Arc<Machine>,
    context: MethodContext,
    params: PortForward,
) -> Result<PortForwarded, WireError> {
    let (target, network) = target(agent_ports(&machine).await?, &params)?;
    let listen = params.listen.clone().unwrap_or_else(|| format!("127.0.0.1:{}", params.port));
    let address: SocketAddr = listen.parse().map_err(|_| {
        bad_params(format!("cannot listen on {listen:?}; write an address such as 127.0.0.1:8080"))
    })?;
    if !address.ip().is_loopback() {
        return Err(bad_params(format!("cannot listen on {address}; only the loopback is possible")));
    }
    let failed =
        |err: std::io::Error| WireError::new(ErrorCode::Failed, format!("cannot listen on {address}: {err}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let listen = listener.local_addr().map_err(failed)?.to_string();
    let port = target.port;
    tokio::spawn(serve(machine, network, port, listener, context.link));
    Ok(PortForwarded { session: target.session, port, listen })
}

fn bad_params(message: String) -> WireError {
    WireError::new(ErrorCode::BadParams, message)
}

/// Finds the one session that listens on the port.
fn target(
    ports: Vec<(AgentPort, AgentNetwork)>,
    wanted: &PortForward,
) -> Result<(AgentPort, AgentNetwork), WireError> {
    let is_wanted = |found: &AgentPort| {
        found.port == wanted.port
            && wanted.session.as_ref().is_none_or(|session| is_session(&found.session, session))
    };
    let mut matching: Vec<_> = ports.into_iter().filter(|(found, _)| is_wanted(found)).collect();
    match matching.len() {
        1 => Ok(matching.remove(0)),
        0 => {
            let message = format!("no agent session listens on port {}", wanted.port);
            Err(WireError::new(ErrorCode::NotFound, message))
        }
        _ => {
            let sessions: Vec<&str> = matching.iter().map(|(found, _)| found.session.as_str()).collect();
            let message = format!(
                "several sessions listen on port {}: {}; choose one",
                wanted.port,
                sessions.join(", ")
            );
            Err(WireError::new(ErrorCode::Conflict, message))
        }
    }
}

/// Whether a session's whole key, or its last part, is the given one.
fn is_session(key: &str, given: &str) -> bool {
    key == given || key.rsplit(':').next() == Some(given)
}

async fn serve(machine: Arc<Machine>, network: AgentNetwork, port: u16, listener: TcpListener, link: Link) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            // A failed accept is not repeated at once: the process may be out of descriptors.
            let Ok((client, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let (machine, network) = (machine.clone(), network.clone());
            while connections.try_join_next().is_some() {}
            connections.spawn(async move {
                relay(&machine, &network, port, client).await;
                drop(permit);
            });
        }
    };
    // Dropping the set ends its connections.
    tokio::select! {
        () = accepting => {}
        _ = link.closed() => {}
    }
}

/// Passes bytes both ways. A client whose server does not answer is disconnected.
async fn relay(machine: &Machine, network: &AgentNetwork, port: u16, mut client: TcpStream) {
    let server = match machine.connect_to_agent(network, port).await {
        Ok(server) => server,
        Err(err) => return tracing::debug!(port, error = %err, "portForwardFailed"),
    };
    let server = server.set_nonblocking(true).and_then(|()| TcpStream::from_std(server));
    if let Ok(mut server) = server {
        // An error ends the connection, as it would without the forward.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

#[cfg(test)]
mod tests {
    use super::is_session;

    #[test]
    fn session_is_named_by_its_key_or_the_last_part() {
        assert!(is_session("agent:main:work", "agent:main:work") && is_session("agent:main:work", "work"));
        assert!(!is_session("agent:main:work", "main") && !is_session("agent:main:work", "wor"));
    }
}
