//! The privileges part of a sandbox: root keeps its way with files, and none of the ways around the other parts.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// What package managers and build tools run by root need. All others go: with them one could read the memory of other
/// processes, make device nodes, load modules or trace.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Binds the calling thread.
pub(super) fn drop_most() -> Result<(), String> {
    let failed = |err: Errno| format!("cannot drop privileges: {err}");
    let held = rustix::thread::capabilities(None).map_err(failed)?;
    if held.permitted.is_empty() && !rustix::process::geteuid().is_root() {
        // Without privileges, and with `no_new_privs`, none can be gained.
        return Ok(());
    }
    // What a program started by root regains comes out of the bounding set, so that goes first.
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if KEPT.contains(capability) {
            continue;
        }
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(capability).map_err(failed)?,
            Ok(false) => {}
            // Beyond the last one that this kernel knows.
            Err(_) => break,
        }
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let permitted = held.permitted & KEPT;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(failed)
}
