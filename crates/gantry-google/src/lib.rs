//! Google Workspace: Gmail, Sheets, Drive, Calendar and Docs as tools.
//!
//! `Api` is the only way to Google: it checks scopes, attaches tokens, retries what may be repeated and turns every
//! error into one sentence. A tool's file has its input, its questions and its actions. The gate asks people; no tool does.

mod accounts;
mod api;
mod auth_command;
mod calendar;
mod config;
mod credentials;
mod declare;
mod docs;
mod document;
mod domain;
mod drive;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test starts a server")]
mod emulate_tests;
mod errors;
mod file_place;
mod gmail;
mod ids;
#[cfg(test)]
mod injection_tests;
mod mail;
mod oauth;
mod others_words;
mod questions;
mod scopes;
mod sheets;
mod sign_ins;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests set up their own world")]
mod testing;
mod times;
mod tools;
mod workspace;

pub use accounts::{AccountStatus, Accounts};
pub use api::{Reachable, google_client};
pub use config::GoogleConfig;
pub use credentials::{Credentials, OAuthClient};
pub use domain::{GoogleDomain, GoogleParts};
#[cfg(feature = "testing")]
pub use mail::build_and_read_mails;
pub use oauth::SignInError;
pub use oauth::browser::BrowserSignIn;
pub use oauth::device::DeviceSignIn;
pub use scopes::check as check_scope;
pub use workspace::{FileFuture, WorkspaceFiles};
