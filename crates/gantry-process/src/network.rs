//! `SessionNetwork` is the network of one agent session: a network namespace that its commands
//! share, with one listening socket as the only way out.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::error::ProcessError;
use crate::keeper::control_protocol::{
    MAX_DESCRIPTORS, MAX_NETWORK_DESCRIPTORS, NetworkReport, Order, OsText, Output,
};
use crate::options::ProcessesOptions;
use crate::processes::Processes;
use crate::sandbox::Sandbox;

/// How long a keeper may take to answer an order that runs no command.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A longer line is invalid.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// The namespaces end when the last command in them and this handle are gone.
#[derive(Debug)]
pub struct SessionNetwork {
    user: Option<OwnedFd>,
    network: OwnedFd,
}

/// `NewNetwork` is a network, and the socket in it on which the engine serves a proxy.
#[derive(Debug)]
pub struct NewNetwork {
    pub network: SessionNetwork,
    pub listener: TcpListener,
    /// Where commands in the network reach the listener.
    pub address: SocketAddr,
}

impl SessionNetwork {
    pub(crate) fn of_descriptors(user: Option<OwnedFd>, network: OwnedFd) -> Self {
        Self { user, network }
    }

    /// Copies of the descriptors: the user namespace, if there is one, and the network namespace.
    pub(crate) fn descriptors(&self) -> Result<(Option<OwnedFd>, OwnedFd), Error> {
        Ok((self.user.as_ref().map(OwnedFd::try_clone).transpose()?, self.network.try_clone()?))
    }
}

impl Processes {
    /// Creates a network for the commands of one session. Fails if the system allows no namespaces.
    pub async fn create_network(&self) -> Result<NewNetwork, ProcessError> {
        let options = self.inner.keepers.options.clone();
        let failed = |source: Error| ProcessError::Network(source.to_string());
        let created = tokio::task::spawn_blocking(move || create(&options)).await;
        created.map_err(Error::other).and_then(|created| created).map_err(failed)
    }

    /// Creates a network and drops it, to learn whether this system allows namespaces. Blocks for a
    /// few milliseconds. The error is the reason.
    pub fn check_namespaces(&self) -> Result<(), String> {
        create(&self.inner.keepers.options).map(drop).map_err(|err| err.to_string())
    }
}

fn create(options: &ProcessesOptions) -> Result<NewNetwork, Error> {
    let order = Order { create_network: true, ..empty_order() };
    ask_keeper(options, &order, &[], receive)
}

/// An order that runs no command.
pub(crate) fn empty_order() -> Order {
    Order {
        program: OsText::from(""),
        args: Vec::new(),
        env: Vec::new(),
        cwd: None,
        stdin: false,
        output: Output::Merged,
        keep: None,
        sandbox: Sandbox::None,
        network: None,
        create_network: false,
        visit: None,
    }
}

/// Starts a keeper for an order that runs no command, and returns what `receive` reads from it.
pub(crate) fn ask_keeper<T>(
    options: &ProcessesOptions,
    order: &Order,
    descriptors: &[OwnedFd],
    receive: impl FnOnce(&mut UnixStream) -> Result<T, Error>,
) -> Result<T, Error> {
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(ANSWER_LIMIT))?;
    ours.set_write_timeout(Some(ANSWER_LIMIT))?;
    let mut keeper = std::process::Command::new(&options.keeper)
        .args(&options.keeper_args)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let answered = send(&mut ours, order, descriptors).and_then(|()| receive(&mut ours));
    if answered.is_err() {
        let _ = keeper.kill();
    }
    let _ = keeper.wait();
    answered
}

fn send(control: &mut UnixStream, order: &Order, descriptors: &[OwnedFd]) -> Result<(), Error> {
    let json = serde_json::to_vec(order)?;
    let length = u32::try_from(json.len()).map_err(Error::other)?.to_le_bytes();
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let sent =
        rustix::net::sendmsg(&*control, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL)?;
    control.write_all(&length[sent..])?;
    control.write_all(&json)
}

/// Reads one line of JSON, and the descriptors that travel with it.
pub(crate) fn receive_line(control: &mut UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_NETWORK_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut line = vec![0; MAX_LINE_BYTES];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = rustix::net::recvmsg(&*control, &mut [IoSliceMut::new(&mut line)], &mut ancillary, flags)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            descriptors.extend(files);
        }
    }
    let mut length = received.bytes;
    while length < line.len() && line[..length].last() != Some(&b'\n') {
        match control.read(&mut line[length..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    line.truncate(length);
    Ok((line, descriptors))
}

fn receive(control: &mut UnixStream) -> Result<NewNetwork, Error> {
    let (line, descriptors) = receive_line(control)?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| Error::other("the keeper sent too few descriptors"));
    match serde_json::from_slice(&line)? {
        NetworkReport::Failed { reason } => Err(Error::other(reason)),
        NetworkReport::Created { with_user } => {
            let user = if with_user { Some(next()?) } else { None };
            let network = SessionNetwork { user, network: next()? };
            let listener = TcpListener::from(next()?);
            let address = listener.local_addr()?;
            Ok(NewNetwork { network, listener, address })
        }
    }
}
