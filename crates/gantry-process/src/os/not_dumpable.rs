//! Marks the process as not dumpable: other programs of the same user cannot read its memory,
//! environment or descriptors.

/// Applies from this call on. `root` still has access, and programs that this process starts are
/// not affected.
pub fn hide_from_others() {
    // If this is unsupported, nothing else depends on it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}
