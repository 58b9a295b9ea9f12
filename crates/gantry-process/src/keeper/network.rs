//! Creates a network for the commands of one session, and hands it to the engine.

use std::io::{Error, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::keeper::control_protocol::{MAX_NETWORK_DESCRIPTORS, NetworkReport};
use crate::sandbox::namespaces;

/// Answers over the control socket. The namespaces live as long as somebody holds them.
pub(super) fn create(control: &UnixStream) -> Result<(), Error> {
    let created = namespaces::create();
    let report = match &created {
        Ok(created) => NetworkReport::Created { with_user: created.user.is_some() },
        Err(reason) => NetworkReport::Failed { reason: reason.clone() },
    };
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    let descriptors: Vec<_> = created
        .iter()
        .flat_map(|created| {
            let user = created.user.as_ref().map(AsFd::as_fd);
            user.into_iter().chain([created.network.as_fd(), created.listener.as_fd()])
        })
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_NETWORK_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Error::other("the descriptors do not fit"));
    }
    let sent = rustix::net::sendmsg(control, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(Error::other("the report was cut")) }
}
