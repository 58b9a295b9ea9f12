//! Work on a large message, done so that others need not wait for it: on a runtime of several threads another one takes over
//! whatever this one had to do.

use tokio::runtime::{Handle, RuntimeFlavor};

/// A message of this length takes a millisecond or more to read.
const LARGE_BYTES: usize = 1 << 20;

/// Does the work for a message of so many bytes.
pub fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let is_large = bytes >= LARGE_BYTES;
    if is_large
        && Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
