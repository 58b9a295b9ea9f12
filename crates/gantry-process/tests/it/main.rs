//! Real commands under a real keeper.
#![expect(clippy::disallowed_methods, reason = "tests set the scene and look at it themselves")]
#![expect(clippy::print_stdout, reason = "the seed and the case must be seen when a test fails")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod hostile;
mod output;
mod piped;
mod restarts;
mod running;
mod sandbox;
mod sessions;
mod spare;
mod support;
mod trees;
