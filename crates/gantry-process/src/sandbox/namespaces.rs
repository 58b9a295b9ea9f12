//! The namespaces of a sandboxed command: its network, and a user namespace for users without
//! privileges, who cannot make the others without one.
//!
//! A keeper creates a network for an agent's session and hands it to the engine as descriptors.
//! The keepers of that session's commands join it. Only a process with one thread may enter a user
//! namespace, so all of this runs before the keeper starts the thread that becomes the command.

use std::fs::File;
use std::io::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::DumpableBehavior;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::os::loopback;

/// `NetworkNamespace` is a network with one listening socket in it, and the user namespace that
/// owns the network. `root` needs no user namespace.
#[derive(Debug)]
pub(crate) struct NetworkNamespace {
    pub(crate) user: Option<OwnedFd>,
    pub(crate) network: OwnedFd,
    pub(crate) listener: OwnedFd,
}

/// Moves this process into new namespaces and returns handles to them.
///
/// Some systems let a process create namespaces but give it no rights in them. The function
/// therefore brings the loopback interface up and connects over it.
pub(crate) fn create() -> Result<NetworkNamespace, String> {
    let is_root = unshare_network()?;
    let failed = |what: &str, err: Error| format!("cannot {what} in a new network namespace: {err}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|err| failed("listen", err))?;
    let address = listener.local_addr().map_err(|err| failed("listen", err))?;
    TcpStream::connect(address).and_then(|_| listener.accept()).map_err(|err| failed("connect", err))?;
    let open = |name: &str| {
        File::open(format!("/proc/self/ns/{name}"))
            .map(OwnedFd::from)
            .map_err(|err| format!("cannot open the {name} namespace: {err}"))
    };
    let user = if is_root { None } else { Some(open("user")?) };
    Ok(NetworkNamespace { user, network: open("net")?, listener: listener.into() })
}

/// Moves this process into the network of its session.
pub(crate) fn join(user: Option<&OwnedFd>, network: &OwnedFd) -> Result<(), String> {
    let failed = |err: rustix::io::Errno| format!("cannot join the session's network namespace: {err}");
    if let Some(user) = user {
        rustix::thread::move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
            .map_err(failed)?;
    }
    rustix::thread::move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(failed)
}

/// Moves this process into an empty network. Its loopback interface is up.
pub(crate) fn unshare_network() -> Result<bool, String> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let is_root = user.is_root();
    let flags = if is_root { UnshareFlags::NEWNET } else { UnshareFlags::NEWNET | UnshareFlags::NEWUSER };
    unshare(flags).map_err(|err| format!("cannot create a network namespace: {err}"))?;
    if !is_root {
        map_ids(user.as_raw(), group.as_raw())?;
    }
    loopback::bring_up().map_err(|err| format!("cannot bring up the loopback interface: {err}"))?;
    Ok(is_root)
}

/// Moves the calling thread into a copy of the mounts. The other threads keep theirs.
pub(super) fn unshare_mounts() -> Result<(), String> {
    unshare(UnshareFlags::NEWNS).map_err(|err| format!("cannot create a mount namespace: {err}"))
}

#[expect(deprecated, reason = "only unsharing descriptors is unsafe, and none are unshared here")]
fn unshare(flags: UnshareFlags) -> Result<(), rustix::io::Errno> {
    rustix::thread::unshare(flags)
}

/// Maps the user and the group to themselves, so that files keep their owners.
///
/// Only a dumpable process may write its own map. Keepers are not dumpable, and no command runs yet.
fn map_ids(user: u32, group: u32) -> Result<(), String> {
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
    let write = |name: &str, text: &str| {
        std::fs::write(format!("/proc/self/{name}"), text)
            .map_err(|err| format!("cannot map ids in the user namespace ({name}): {err}"))
    };
    let mapped = write("uid_map", &format!("{user} {user} 1"))
        .and_then(|()| write("setgroups", "deny"))
        .and_then(|()| write("gid_map", &format!("{group} {group} 1")));
    crate::hide_from_others();
    mapped
}
