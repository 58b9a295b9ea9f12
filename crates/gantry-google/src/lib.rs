//! Google Workspace: Gmail, Sheets, Drive, Calendar and Docs as tools.
//!
//! [`api::Api`] is the only way to Google: it checks scopes, attaches tokens, retries what may be repeated and turns every
//! error into one sentence. A tool's file has its input, its questions and its actions. The gate asks people; no tool does.

mod accounts;
mod api;
mod calendar;
mod declare;
mod document;
mod errors;
mod file_place;
mod gmail;
mod ids;
mod mail;
mod others_words;
mod scopes;
mod times;
mod workspace;

pub use workspace::WorkspaceFiles;
