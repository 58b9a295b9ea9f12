//! The guarded client against servers that say anything, alone and on an internet of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests set up their own world"
)]

mod answers;
mod classifier;
mod hostile;
mod internet;
mod proxy;
