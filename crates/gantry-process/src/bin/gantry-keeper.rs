//! Runs the keeper as a separate program, so that this crate's tests need no other binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    std::env::args_os()
        .skip(1)
        .for_each(|argument| gantry_process::workers::memory_limit::restore(&argument));
    gantry_process::keeper::main()
}
