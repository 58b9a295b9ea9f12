//! Runs a worker as a separate program, so that this crate's tests need no other binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    gantry_toolsets::worker_main()
}
