//! The data directory from outside: the audit log as its attackers see it, objects in both their homes.
#![expect(clippy::disallowed_methods, reason = "tests play the attacker on the files")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod audit;
mod audit_files;
mod crash;
mod objects;
mod s3_server;
mod s3_wire;
mod uploads;
