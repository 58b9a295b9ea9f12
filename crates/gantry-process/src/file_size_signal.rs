//! Survives a limit on the size of files: the kernel sends SIGXFSZ, which by default ends the process.

/// From now on a write beyond the limit fails with an error. Programs that this process starts get the default back,
/// because the kernel resets handlers when a program is executed; it would not reset an ignored signal.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the handler does nothing, so it may interrupt anything")]
pub fn survive_file_size_limit() {
    extern "C" fn do_nothing(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = do_nothing;
    // SAFETY: the handler is a function that lives as long as the program and touches nothing.
    unsafe {
        libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn survive_file_size_limit() {}
