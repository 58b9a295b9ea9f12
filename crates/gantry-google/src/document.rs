//! Converts between Google Docs and Markdown. Nothing here connects anywhere.
//!
//! Both directions go through a list of [`block::Block`]s:
//!
//! | file | direction |
//! | --- | --- |
//! | `parse` | Markdown to blocks |
//! | `render` | blocks to Markdown |
//! | `structure` | the JSON of a document to blocks |
//! | `requests` | blocks to the requests of `documents.batchUpdate` |

mod block;
mod json;
mod parse;
mod render;
mod requests;
mod structure;
#[cfg(test)]
mod tests;

pub(crate) use json::Document;
pub(crate) use parse::parse;
pub(crate) use render::render;
pub(crate) use requests::{Plan, append_plan, footnote_requests};
pub(crate) use structure::tabs;

/// Spans in this font are code.
const CODE_FONT: &str = "Courier New";
/// A line break inside a paragraph, as Docs stores it.
const LINE_BREAK: char = '\u{b}';
