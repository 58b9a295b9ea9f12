//! A process whose memory, environment and descriptors other programs of the same user cannot look into.

/// From now on; `root` still can. What it starts can be looked into as usual.
pub fn hide_from_others() {
    // Where it cannot be had, nothing else depends on it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}
