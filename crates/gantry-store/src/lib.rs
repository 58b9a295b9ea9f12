//! The only crate that works in the data directory: the database, the audit log, kept results, objects, secrets, and
//! the paths of everything else in it. Domains keep their own records in a [`PrivateFolder`].
//!
//! This crate never opens a path that an agent named; `gantry-files` does that.
#![expect(clippy::disallowed_methods, reason = "this crate is the door to the data directory")]

mod audit_files;
mod audit_key;
mod audit_log;
mod audit_read;
mod audit_retention;
mod audit_rotation;
mod config_lock;
mod data_dir;
mod database;
mod gateway_keys;
mod gateway_lock;
mod kept_results;
mod objects;
mod private_folder;
mod secrets;
mod server_records;
mod staged;
mod token;

pub use audit_log::{AuditLimits, AuditLog};
pub use audit_read::{AuditFilter, AuditLine, Problem, ProblemKind, Verification, list, verify, visit};
pub use config_lock::ConfigLock;
pub use data_dir::{DataDir, DataDirError, FileVersion, make_folder};
pub use database::channels::{ChannelEvent, LastActive, LinkOutcome, PairingRequest, PersonRole, PersonRow};
pub use database::client_tokens::{ClientCheck, ClientToken};
pub use database::cron_jobs::{CronJobRow, CronState, StateChange};
pub use database::cron_occurrences::{
    Admission, CronHistoryRow, MAX_HISTORY_ROWS, NewCronRun, NewOccurrence,
};
pub use database::cron_runs::{CronRunRow, FinishedRun, JobAfterRun, RUN_MESSAGE};
pub use database::grants::{Grants, MAX_GRANTS, StoredGrant};
pub use database::idempotency::{Begun, MAX_KEPT_ANSWER, StoredAnswer};
pub use database::inspection::DatabaseState;
pub use database::join_codes::{InviteKnown, JoinOutcome};
pub use database::journal::{
    Append, FoundEvent, Journal, JournalEvent, LoadedSession, MAX_EVENT_BYTES, NewEvent, Parentage,
    SessionRow,
};
pub use database::memory::{MAX_MEMORY_CHARS, Memories, Memory, Recalled, Remembered};
pub use database::nodes::{NodeRow, SeenNode, TokenCheck, check_tag};
pub use database::outbox::{ClaimedMessage, NewOutboxMessage, SettledMessage, send_key};
pub use database::page_sessions::{PAGE_SESSION_IDLE_MS, PageCredentials, PageSession};
pub use database::pipelines::{
    MAX_PIPELINES, PipelineRow, PipelineRunRow, PipelineStepRow, RunEnd, StepSession, TierCost,
};
pub use database::plans::PlanRow;
pub use database::process_ends::ProcessEnd;
pub use database::processes::{MAX_PROCESSES, ProcessRow};
pub use database::spending::{ACCOUNT_SEPARATOR, Spending};
pub use database::taint_marks::TaintMarks;
pub use database::task_runs::{FinishedTaskRun, NewTaskRun, TaskOccurrence, TaskPause, TaskRunRow};
pub use database::tasks::{TaskFilter, TaskRow, priority_rank};
pub use database::transfers::{NewTransfer, TransferRow, TransferState};
pub use database::usage::{USAGE_BUCKET_MS, UsageBucket};
pub use database::watches::WatchRow;
pub use database::{Database, DatabaseError};
pub use gateway_lock::{GatewayLock, GatewayLockError, Running};
pub use kept_results::KeptResults;
pub use objects::{
    Depth, ListedObject, MAX_LISTED, Object, ObjectError, ObjectInfo, ObjectListing, ObjectReader, Objects,
    S3Config, check_key, content_type,
};
pub use private_folder::{FolderLock, PrivateFolder};
pub use secrets::{
    MAX_SECRET_BYTES, Reference, SHORTEST_MASTER_KEY, Secret, Secrets, SecretsError, references,
};
pub use server_records::{Pin, RecordError, RecordVersion, ServerRecord, ServerRecords};
pub use staged::{Staged, UPLOAD_PREFIX};
pub use token::{PlainToken, new_join_token, new_node_token};
