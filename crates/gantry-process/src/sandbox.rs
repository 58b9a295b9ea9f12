//! `Sandbox` describes what a command may reach. The keeper applies it and the kernel enforces it.
//!
//! A sandbox is never optional: if the kernel cannot enforce it, the command is refused.

use std::path::{Path, PathBuf};

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
mod mounts;
#[cfg(target_os = "linux")]
pub(crate) mod namespaces;
pub(crate) mod private_tmp;
pub(crate) mod quarantine;
#[cfg(target_os = "linux")]
mod syscalls;

#[cfg(target_os = "linux")]
use syscalls::Sockets;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sandbox {
    None,
    /// The whole file system except the closed directories. Paths in `read_only` can be read but
    /// not changed.
    ///
    /// Landlock can only allow. Everything off the path to a closed directory is allowed, and the
    /// directories on that path are not. Such a command cannot list them or create anything
    /// directly in them, and what is created there after its start stays closed to it. Two things
    /// are not covered: other names of the same files (hard links, bind mounts made by somebody
    /// else), and the names, sizes, times and modes of closed files.
    ///
    /// In `/dev` only the usual harmless devices and shared memory are allowed. Disks are closed,
    /// because one could read the closed directories from them. Terminals are closed, because other
    /// people type into them.
    ///
    /// A read-only path need not exist. It cannot be created or replaced, and neither can anything
    /// else directly in the directories on the path to it. Those directories can still be listed,
    /// unless something in them is closed.
    ///
    /// The same holds for every link on the way to the target of a read-only path, and for the
    /// target itself. If the target is a directory, it also holds for the links in it (down to four
    /// levels, of a thousand entries) and for their targets.
    Except {
        closed: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        network: Network,
    },
    /// Only these paths, the usual harmless devices and `/proc`. Of local sockets only pairs are
    /// allowed, because no file rule stops a command from connecting to a socket file outside.
    ///
    /// `read` may be read and executed; `write` may also be changed. In `/proc` the kernel shows
    /// the environment, descriptors, root and memory only of processes inside the sandbox. Command
    /// lines of others stay visible.
    Only {
        read: Vec<PathBuf>,
        write: Vec<PathBuf>,
        network: Network,
    },
    /// Like `Only`, without `closed`, even where that is inside an allowed path, as a data
    /// directory may be in a workspace. `read_only` works in the same way.
    ///
    /// What `Except` says about the directories on the path holds here too.
    OnlyExcept {
        read: Vec<PathBuf>,
        write: Vec<PathBuf>,
        closed: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        network: Network,
    },
    /// Everything can be read, except `covered` and devices; only `write` can be changed. The
    /// command has its own mounts and its own network.
    ///
    /// Empty read-only mounts cover the paths in `covered` that exist, so the directories around
    /// them stay usable: a home directory can be listed and files can be created in it. At least
    /// one of them must be a directory. Paths in `read_only` that exist are mounted read-only.
    ///
    /// No mount can cover a path that does not exist. What the command creates at such a path is
    /// renamed after the command ends, and reported as [`crate::Ended::quarantined`].
    ///
    /// The network is that of [`crate::Command::network`]. Without one the command gets an empty
    /// network. Of local sockets only pairs are allowed.
    Isolated {
        write: Vec<PathBuf>,
        covered: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        network: Network,
    },
}

impl Sandbox {
    /// Reports whether the command gets its own mounts and network.
    pub(crate) fn needs_namespaces(&self) -> bool {
        matches!(self, Sandbox::Isolated { .. })
    }
}

/// Returns the real paths of those that exist. A missing path needs no closing, which would only
/// hide its neighbours.
pub fn existing(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// Reports whether this process may write the path, or create it in its nearest existing directory.
pub fn could_write(path: &Path) -> bool {
    let nearest = path.ancestors().find(|path| path.symlink_metadata().is_ok());
    nearest.is_some_and(|path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    Allowed,
    /// No sockets, except pairs between the command's own processes. A local socket can also lead
    /// out, and so can a pair of datagram sockets, so these are refused too.
    Denied,
}

/// `SandboxSupport` says what the kernel can enforce, for `gantry doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSupport {
    /// The version of the Landlock ABI; `None` if it is missing or disabled.
    pub landlock_abi: Option<u32>,
    pub seccomp: bool,
    /// Why a sandboxed command would be refused; `None` if it would run.
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

/// Restricts the calling thread and every process it starts from now on. This cannot be undone.
#[cfg(target_os = "linux")]
pub(crate) fn apply(sandbox: &Sandbox) -> Result<(), String> {
    match sandbox {
        Sandbox::None => Ok(()),
        Sandbox::Except { closed, read_only, network } => {
            filesystem::close(closed, read_only, None)?;
            capabilities::drop_capabilities()?;
            limits::protect_other_processes()?;
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
        // These are two layers of rules. What either layer refuses is refused.
        Sandbox::OnlyExcept { read, write, closed, read_only, network } => {
            let only = filesystem::Only { read, write };
            filesystem::close(closed, read_only, Some(only))?;
            open_only(only, *network)
        }
        // Landlock refuses every mount, so the mounts come first.
        Sandbox::Isolated { write, covered, read_only, network } => {
            mounts::apply(covered, read_only, write)?;
            let root = [PathBuf::from("/")];
            let only = filesystem::Only { read: &root, write };
            filesystem::close_devices(only)?;
            open_only(only, *network)
        }
    }
}

#[cfg(target_os = "linux")]
fn open_only(only: filesystem::Only<'_>, network: Network) -> Result<(), String> {
    filesystem::open_only(only)?;
    capabilities::drop_capabilities()?;
    limits::protect_other_processes()?;
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
