//! The audit log as its readers and its attackers see it.
#![expect(clippy::disallowed_methods, reason = "tests play the attacker on the files")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod audit;
