//! Sessions end to end: a real journal, a real gate, a scripted model.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests set up their own environment"
)]

mod approvals;
mod background;
mod children;
mod flow;
mod kills;
mod long_runs;
mod overflow;
mod runs;
mod watching;
mod world;
