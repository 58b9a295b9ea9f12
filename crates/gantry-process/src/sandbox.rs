//! What a command may reach: described here as data, enforced by the kernel once the keeper has applied it.
//!
//! Never a request that may be ignored: where the kernel cannot enforce it, the command is refused.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod filesystem;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod syscalls;

#[cfg(target_os = "linux")]
use syscalls::Sockets;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sandbox {
    None,
    /// The whole file system except the closed directories; what is in `read_only` can be read, and not changed.
    ///
    /// Landlock can only allow, so everything beside the way down to a closed directory is allowed and the directories
    /// on that way are not: such a command cannot list them nor create anything directly in them, and what is created
    /// there after its start stays closed to it. Not covered are other names of the same files (hard links, bind mounts
    /// made by somebody else), and the names, sizes, times and modes of closed files.
    ///
    /// Of `/dev` there are the usual harmless devices and shared memory. Disks are closed, since one could read the closed
    /// directories there, and so are terminals: others type into them.
    ///
    /// A read-only path need not exist: it cannot be created either, nor replaced, and nor can anything else directly
    /// in the directories on the way down to it. Those stay listable, unless something in them is closed. The same holds
    /// for every link on the way to what a read-only path means, for that itself, and, if it is a directory, for the
    /// links in it (down to four levels, of a thousand entries) and what they lead to.
    Except {
        closed: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        network: Network,
    },
    /// Nothing but these, the usual harmless devices and `/proc`; and no local sockets but pairs, since no rule about
    /// files keeps a command from connecting to a socket file outside.
    ///
    /// `read` may be read and executed; in `write` everything goes. Of `/proc` the kernel shows the environment,
    /// descriptors, root and memory of processes inside the sandbox only; command lines of others stay visible.
    Only {
        read: Vec<PathBuf>,
        write: Vec<PathBuf>,
        network: Network,
    },
    /// As `Only`, less `closed`, even where that lies inside what is allowed, as a data directory may in a workspace;
    /// and `read_only` likewise.
    ///
    /// What `Except` says about the directories on the way down holds here too.
    OnlyExcept {
        read: Vec<PathBuf>,
        write: Vec<PathBuf>,
        closed: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        network: Network,
    },
}

/// The real paths of those that are there: what is not needs no closing, which would only hide its neighbours.
pub fn existing(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    Allowed,
    /// No sockets at all, except pairs between the command's own processes: a local socket can lead out as well, and so
    /// can a pair of datagram sockets, which is refused too.
    Denied,
}

/// What the kernel can enforce, for `gantry doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSupport {
    /// The version of Landlock's interface; `None` when it is missing or switched off.
    pub landlock_abi: Option<u32>,
    pub seccomp: bool,
    /// Why a sandboxed command would be refused; `None` when it would run.
    pub reason: Option<String>,
}

#[cfg(target_os = "linux")]
pub fn sandbox_support() -> SandboxSupport {
    let landlock_abi = filesystem::abi();
    let seccomp = syscalls::supported();
    let reason = match landlock_abi {
        None => Some(filesystem::MISSING.to_owned()),
        Some(abi) if abi < filesystem::OLDEST_ABI => Some(filesystem::too_old(abi)),
        Some(_) if !seccomp => Some("the kernel has no seccomp filters".to_owned()),
        Some(_) => None,
    };
    SandboxSupport { landlock_abi, seccomp, reason }
}

#[cfg(not(target_os = "linux"))]
pub fn sandbox_support() -> SandboxSupport {
    let reason = Some("this system has no Landlock".to_owned());
    SandboxSupport { landlock_abi: None, seccomp: false, reason }
}

/// Binds the calling thread, and every process it starts from now on. There is no way back.
#[cfg(target_os = "linux")]
pub(crate) fn apply(sandbox: &Sandbox) -> Result<(), String> {
    match sandbox {
        Sandbox::None => Ok(()),
        Sandbox::Except { closed, read_only, network } => {
            filesystem::close(closed, read_only, None)?;
            capabilities::drop_most()?;
            limits::guard_others()?;
            match network {
                Network::Allowed => Ok(()),
                Network::Denied => syscalls::apply(Sockets::None),
            }
        }
        Sandbox::Only { read, write, network } => {
            let only = filesystem::Only { read, write };
            filesystem::close_devices(only)?;
            open_only(only, *network)
        }
        // Two layers of rules: what either refuses is refused.
        Sandbox::OnlyExcept { read, write, closed, read_only, network } => {
            let only = filesystem::Only { read, write };
            filesystem::close(closed, read_only, Some(only))?;
            open_only(only, *network)
        }
    }
}

#[cfg(target_os = "linux")]
fn open_only(only: filesystem::Only<'_>, network: Network) -> Result<(), String> {
    filesystem::open_only(only)?;
    capabilities::drop_most()?;
    limits::guard_others()?;
    syscalls::apply(match network {
        Network::Allowed => Sockets::NotLocal,
        Network::Denied => Sockets::None,
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(sandbox: &Sandbox) -> Result<(), String> {
    match sandbox {
        Sandbox::None => Ok(()),
        _ => Err("this system has no Landlock".to_owned()),
    }
}
