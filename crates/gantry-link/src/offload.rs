//! Runs work on a large message without blocking other tasks: on a multi-threaded runtime another thread takes
//! over the tasks of this one.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Reading a message of this length takes a millisecond or more.
const LARGE_BYTES: usize = 1 << 20;

/// Runs `work` on a message of `bytes` bytes, with `block_in_place` if the message is large.
pub fn offload_if_large<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let is_large = bytes >= LARGE_BYTES;
    if is_large
        && Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
