//! Both ends of a file transfer, independent of connections: open sources, part files, streams with credit.
//!
//! A [`TransferService`] answers the requests of a transfer and takes its frames. Its [`PathOpener`] checks and opens
//! the paths that a caller named. Its [`TransferBackend`] reads and writes below them; [`FileBackend`] works on files.
//! A node, the gateway's own machine and its storage each have one service.

mod backend;
mod credit;
mod error;
mod file_backend;
mod receiving;
mod sending;
mod service;
mod streams;
#[cfg(feature = "testing")]
pub mod testing;

pub use backend::{
    BackendFuture, MAX_ENTRY_BYTES, PartFile, PathOpener, SourceFile, TransferBackend, check_entry,
};
pub use error::TransferError;
pub use file_backend::{Beneath, FileBackend, Wanted, part_name};
pub use service::{TransferRequest, TransferService};
pub use streams::{FrameFuture, FrameOut, Gone};
