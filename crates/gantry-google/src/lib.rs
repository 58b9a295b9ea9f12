//! Google Workspace.

mod document;
mod mail;
