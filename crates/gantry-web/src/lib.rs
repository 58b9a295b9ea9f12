//! The web page of the gateway: its files, its headers and its login.
//!
//! The page is a client of the documented protocol, like any other. What model output contains reaches it as data,
//! never as HTML.

mod ansi;
mod diff;
mod downloads;
mod graph;
mod login;
mod markdown;
mod one_time_codes;
mod page_files;
mod page_headers;
mod page_sessions;
mod rendering;
mod serve_page;
mod storage_access;
mod uploads;
mod web_domain;

pub use page_headers::CONTENT_SECURITY_POLICY;
pub use web_domain::{WebDomain, WebParts};
