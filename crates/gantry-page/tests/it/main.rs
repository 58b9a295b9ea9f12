//! Whole pages: kinds of page as snapshots, Mozilla's pages, hostile ones.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests set up their own world"
)]

mod decoding;
mod hostile;
mod kinds;
mod mozilla;
mod pdf;
mod soak;
