//! Both ends of a file transfer, without any idea of links: what is opened, what has come, streams with credit.
//!
//! A [`Desk`] answers the requests of a transfer and takes its frames; what stands behind it, files or objects, are
//! [`Books`]. [`FileBooks`] are those of files. A node, the gateway's own machine and its storage all sit behind a desk.

mod books;
mod credit;
mod desk;
mod error;
mod file_books;
mod receiving;
mod sending;
mod streams;

pub use books::{Books, BooksFuture, Landing, MAX_ENTRY_BYTES, Origin, check_entry};
pub use desk::{Ask, Desk};
pub use error::TransferError;
pub use file_books::{Beneath, FileBooks, Wanted, part_name};
pub use streams::{FrameFuture, FrameOut, Gone};
