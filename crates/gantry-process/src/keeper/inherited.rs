//! Handles the descriptors that the keeper inherited. None of them may reach the command.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::FdFlags;

/// Marks every descriptor beyond standard input, output and error as close-on-exec.
pub(super) fn close_on_exec() {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2) {
        mark(number);
    }
}

#[expect(unsafe_code, reason = "a descriptor number from the listing has no owner to borrow from")]
fn mark(number: RawFd) {
    // SAFETY: the keeper has one thread here and closes nothing between listing and this call,
    // except the listing itself, whose number then fails harmlessly. Setting a flag neither reads,
    // writes nor closes the file.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let _ = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC);
}
