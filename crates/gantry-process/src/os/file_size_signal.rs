//! Handles the limit on file sizes. The kernel sends SIGXFSZ, which by default ends the process.

/// From this call on, a write beyond the limit fails with an error instead. Programs that this
/// process starts get the default back: the kernel resets handlers on exec, but not ignored
/// signals.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the handler does nothing, so it is safe to interrupt any code")]
pub fn survive_file_size_limit() {
    extern "C" fn do_nothing(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = do_nothing;
    // SAFETY: the handler is a static function that touches nothing.
    unsafe {
        libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn survive_file_size_limit() {}
