//! Ports that agents' commands listen on, as the gateway shows and forwards them.

use std::net::TcpStream;

use gantry_process::ProcessError;

use super::Machine;
use crate::{AgentNetwork, AgentPort};

impl Machine {
    /// Lists the ports that commands of agents listen on, with the networks they are in.
    pub async fn agent_ports(&self) -> Result<Vec<(AgentPort, AgentNetwork)>, ProcessError> {
        self.shells.ports().await
    }

    /// Connects to a port of the loopback in a session's network.
    pub async fn connect_to_agent(
        &self,
        network: &AgentNetwork,
        port: u16,
    ) -> Result<TcpStream, ProcessError> {
        self.shells.connect(network, port).await
    }
}
