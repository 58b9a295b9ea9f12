//! Builds and reads mail messages. Nothing here connects anywhere.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `address` | mailboxes, and a strict reader for lists of them |
//! | `compose` | a letter that is built, and read back before it is sent |
//! | `headers` | the headers of a message that somebody wrote |
//! | `part` | the tree of a message: its text and its attachments |
//! | `reply` | recipients, subject and references of an answer |

mod address;
#[cfg(feature = "testing")]
mod benchmark;
mod compose;
mod headers;
mod part;
mod raw;
mod reply;
#[cfg(test)]
mod round_trip_tests;

#[cfg(feature = "testing")]
pub use benchmark::build_and_read_mails;

pub(crate) use address::{Mailbox, is_address};
pub(crate) use compose::{Attached, Built, Letter, MAX_MESSAGE_BYTES};
pub(crate) use headers::Headers;
pub(crate) use part::{Content, Part};
pub(crate) use reply::reply_to;
