//! Extracts readable text from what web servers send. It takes bytes and strings and returns text;
//! it connects to nothing and opens nothing.

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
