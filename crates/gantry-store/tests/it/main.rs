//! The data directory from outside: attacks on the audit log, and objects in a folder and in a bucket.
#![expect(clippy::disallowed_methods, reason = "tests play the attacker on the files")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod audit;
mod audit_files;
mod crash;
mod objects;
mod uploads;
