//! Converts between Google Docs and Markdown.
