//! Chat services for tests of channels: real servers where there are some, scripted ones otherwise. Scripted ones check what
//! they get, and follow a script.

mod exchange;
mod mail;
pub mod slack;
mod synapse;
pub mod telegram;

pub use exchange::Call;
pub use mail::{MailServer, Submitted};
pub use synapse::Synapse;
