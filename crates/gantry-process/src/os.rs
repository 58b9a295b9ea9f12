//! Small functions on the operating system's processes: the process table and process attributes.

pub(crate) mod file_size_signal;
#[cfg(target_os = "linux")]
pub(crate) mod loopback;
pub(crate) mod not_dumpable;
#[cfg(target_os = "linux")]
pub(crate) mod process_table;
