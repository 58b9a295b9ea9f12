//! Silences panics that are expected and caught. All others are reported on standard error as
//! before.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which catches its own panics. None of them is reported on this thread in the
/// meantime.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    // The hook is installed once, because the whole process shares it. It passes all other panics
    // to the previous hook.
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                report(info);
            }
        }));
    });
    let _loud = Restore(QUIET.replace(true));
    work()
}

struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        QUIET.set(self.0);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test looks at its own standard error from outside")]
mod tests {
    use std::panic::catch_unwind;
    use std::process::Command;

    use super::*;

    const INSIDE: &str = "GANTRY_QUIET_PANICS";

    #[test]
    fn only_caught_panics_are_silent() {
        if std::env::var_os(INSIDE).is_some() {
            let caught = quietly(|| catch_unwind(|| panic!("a page that nobody hears of")));
            let nested = quietly(|| {
                quietly(|| ());
                catch_unwind(|| panic!("another that nobody hears of"))
            });
            let elsewhere = quietly(|| std::thread::spawn(|| panic!("another thread")).join());
            let after = catch_unwind(|| panic!("after all"));
            assert!(caught.is_err() && nested.is_err() && elsewhere.is_err() && after.is_err());
            return;
        }
        let name = "pdf::silence_panics::tests::only_caught_panics_are_silent";
        let ran = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{output}");
        assert!(!output.contains("nobody hears of"), "{output}");
        assert!(output.contains("another thread") && output.contains("after all"), "{output}");
    }
}
