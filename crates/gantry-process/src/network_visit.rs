//! Looks into the network of a session from outside: which ports are listened on, and connections to them.

use std::collections::HashMap;
use std::io::Error;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use crate::error::ProcessError;
use crate::keeper::control_protocol::{JoinNetwork, ListeningSocket, Order, Visit, VisitReport};
use crate::network::{SessionNetwork, ask_keeper, empty_order, receive_line};
use crate::options::ProcessesOptions;
#[cfg(target_os = "linux")]
use crate::os::process_table;
use crate::processes::Processes;

/// A TCP port that a command of the session listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub port: u16,
    /// The listening process and its name, if it is visible.
    pub process: Option<(i32, String)>,
}

impl Processes {
    /// Lists the ports that are listened on in a session's network, in order.
    pub async fn listeners(&self, network: &SessionNetwork) -> Result<Vec<Listener>, ProcessError> {
        let (report, _) = self.visit(network, Visit::Listeners).await?;
        let VisitReport::Listeners { sockets } = report else { return Err(unexpected()) };
        tokio::task::spawn_blocking(move || with_processes(sockets)).await.map_err(failed)
    }

    /// Connects to a port of the loopback in a session's network.
    pub async fn connect_in(&self, network: &SessionNetwork, port: u16) -> Result<TcpStream, ProcessError> {
        match self.visit(network, Visit::Connect { port }).await? {
            (VisitReport::Connected, Some(socket)) => Ok(TcpStream::from(socket)),
            _ => Err(unexpected()),
        }
    }

    async fn visit(
        &self,
        network: &SessionNetwork,
        visit: Visit,
    ) -> Result<(VisitReport, Option<OwnedFd>), ProcessError> {
        let options = self.inner.keepers.options.clone();
        let (user, network) = network.descriptors().map_err(failed)?;
        let visited = tokio::task::spawn_blocking(move || send(&options, visit, user, network)).await;
        let (report, socket) = visited.map_err(failed)?.map_err(failed)?;
        match report {
            VisitReport::Failed { reason } => Err(ProcessError::NetworkVisit(reason)),
            report => Ok((report, socket)),
        }
    }
}

fn send(
    options: &ProcessesOptions,
    visit: Visit,
    user: Option<OwnedFd>,
    network: OwnedFd,
) -> Result<(VisitReport, Option<OwnedFd>), Error> {
    let join = JoinNetwork { with_user: user.is_some() };
    let order = Order { visit: Some(visit), network: Some(join), ..empty_order() };
    let descriptors: Vec<OwnedFd> = user.into_iter().chain([network]).collect();
    let (line, sockets) = ask_keeper(options, &order, &descriptors, receive_line)?;
    Ok((serde_json::from_slice(&line)?, sockets.into_iter().next()))
}

fn with_processes(sockets: Vec<ListeningSocket>) -> Vec<Listener> {
    let holders = holders(&sockets);
    let listener = |socket: ListeningSocket| Listener {
        port: socket.port,
        process: holders.get(&socket.inode).cloned(),
    };
    sockets.into_iter().map(listener).collect()
}

#[cfg(not(target_os = "linux"))]
fn holders(_: &[ListeningSocket]) -> HashMap<u64, (i32, String)> {
    HashMap::new()
}

/// Finds the processes that hold these sockets. Processes of other users are not visible.
#[cfg(target_os = "linux")]
fn holders(sockets: &[ListeningSocket]) -> HashMap<u64, (i32, String)> {
    let mut found = HashMap::new();
    for process in process_table::all() {
        let files = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
        for link in files.filter_map(|file| std::fs::read_link(file.path()).ok()) {
            let inode =
                link.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            let Some(inode) = inode.filter(|inode| sockets.iter().any(|socket| socket.inode == *inode))
            else {
                continue;
            };
            let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
            found.entry(inode).or_insert((process.pid, name.trim().to_owned()));
        }
    }
    found
}

fn failed(err: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ProcessError {
    ProcessError::NetworkVisit(Error::other(err).to_string())
}

fn unexpected() -> ProcessError {
    ProcessError::NetworkVisit("the keeper sent another answer".to_owned())
}
