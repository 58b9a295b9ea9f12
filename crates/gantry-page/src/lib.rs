//! Readable text from what the web sends. Bytes and strings in, text out: nothing here connects or opens anything.

mod article;
mod decode;
mod html;
mod pdf;
mod readable;
#[cfg(feature = "testing")]
pub mod testing;

pub use article::{Article, article};
pub use decode::{decode, decode_within};
pub use html::html_to_text;
pub use pdf::{PdfText, pdf_text};
pub use readable::{Readable, Unreadable, readable};
