//! Drops privileges: root keeps its access to files, but loses every way around the other parts of
//! the sandbox.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Package managers and build tools that run as root need these. All others are dropped: with them
/// a command could read the memory of other processes, make device nodes, load modules or trace.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Restricts the calling thread.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let failed = |err: Errno| format!("cannot drop privileges: {err}");
    let held = rustix::thread::capabilities(None).map_err(failed)?;
    if held.permitted.is_empty() && !rustix::process::geteuid().is_root() {
        // A process without privileges and with `no_new_privs` cannot gain any.
        return Ok(());
    }
    // A program started by root regains its privileges from the bounding set, so that is cleared
    // first.
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if KEPT.contains(capability) {
            continue;
        }
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(capability).map_err(failed)?,
            Ok(false) => {}
            // The bit is beyond the last capability that this kernel knows.
            Err(_) => break,
        }
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let permitted = held.permitted & KEPT;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(failed)
}
