//! Both ends of a file transfer, independent of connections: open sources, part files, streams with credit.
//!
//! A [`TransferService`] answers the requests of a transfer and takes its frames. Its [`TransferBackend`] reads and
//! writes files or objects; [`FileBackend`] works on files. A node, the gateway's own machine and its storage
//! each have one service.

mod backend;
mod credit;
mod error;
mod file_backend;
mod receiving;
mod sending;
mod service;
mod streams;

pub use backend::{BackendFuture, MAX_ENTRY_BYTES, PartFile, SourceFile, TransferBackend, check_entry};
pub use error::TransferError;
pub use file_backend::{Beneath, FileBackend, Wanted, part_name};
pub use service::{Ask, TransferService};
pub use streams::{FrameFuture, FrameOut, Gone};
