//! Ports that commands listen on in the networks of their sessions, for the operator.

use std::net::TcpStream;
use std::sync::Arc;

use gantry_process::{Listener, ProcessError, SessionNetwork};

use super::AgentShells;

/// A port that a command of an agent session listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPort {
    /// The session's key, or the agent for commands outside a session.
    pub session: String,
    pub port: u16,
    /// The listening process and its name, if it is visible.
    pub process: Option<(i32, String)>,
}

/// The network of one agent session.
#[derive(Clone)]
pub struct AgentNetwork(Arc<SessionNetwork>);

impl AgentShells {
    /// The sessions that have a network, with their names and the ports of their proxies.
    fn networks(&self) -> Vec<(String, u16, Arc<SessionNetwork>)> {
        let sessions = self.sessions();
        let networks = sessions.iter().filter_map(|session| {
            let outlet = session.outlet.as_ref()?;
            Some((session.key.shown().to_owned(), outlet.address.port(), outlet.network.clone()))
        });
        networks.collect()
    }

    /// Lists the ports that commands of agents listen on, with the networks they are in.
    pub(crate) async fn ports(&self) -> Result<Vec<(AgentPort, AgentNetwork)>, ProcessError> {
        let mut found = Vec::new();
        for (session, proxy, network) in self.networks() {
            let listeners = self.processes.listeners(&network).await?;
            // The proxy is Gantry's own.
            for Listener { port, process } in listeners.into_iter().filter(|listener| listener.port != proxy)
            {
                let port = AgentPort { session: session.clone(), port, process };
                found.push((port, AgentNetwork(network.clone())));
            }
        }
        Ok(found)
    }

    pub(crate) async fn connect(&self, network: &AgentNetwork, port: u16) -> Result<TcpStream, ProcessError> {
        self.processes.connect_in(&network.0, port).await
    }
}
