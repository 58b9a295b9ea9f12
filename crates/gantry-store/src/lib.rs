//! The door to the data directory: the audit log, kept results, and where everything else of Gantry's own lies.
//!
//! Nothing here opens a path that an agent named; that is `gantry-files`.
#![expect(clippy::disallowed_methods, reason = "this crate is the door to the data directory")]

mod audit_log;
mod audit_read;
mod data_dir;
mod kept_results;

pub use audit_log::AuditLog;
pub use audit_read::{AuditFilter, AuditLine, Problem, ProblemKind, Verification, list, verify};
pub use data_dir::{DataDir, DataDirError};
pub use kept_results::KeptResults;
