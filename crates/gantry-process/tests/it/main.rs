//! Runs real commands under a real keeper.
#![expect(clippy::disallowed_methods, reason = "tests prepare and inspect files and processes directly")]
#![expect(clippy::print_stdout, reason = "a failing test shows its seed and case")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod hostile;
mod isolated;
mod output;
mod piped;
mod restarts;
mod running;
mod sandbox;
mod sessions;
mod spare;
mod support;
mod trees;
