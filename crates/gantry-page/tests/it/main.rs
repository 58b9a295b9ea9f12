//! Whole pages: kinds of pages as snapshots, Mozilla's pages, hostile ones.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests read their own files and fail by panicking"
)]

mod decoding;
mod hostile;
mod kinds;
mod mozilla;
mod pdf;
