//! Documents for tests.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests read their own files and fail by panicking"
)]

pub mod mozilla;

use std::fmt::Write;

/// Creates a PDF with one line of text per page, in a standard font.
pub fn pdf(pages: &[&str]) -> Vec<u8> {
    let mut objects = vec!["<</Type/Catalog/Pages 2 0 R>>".to_owned(), String::new()];
    objects.push("<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned());
    let mut kids = String::new();
    for text in pages {
        let content = format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET");
        let number = objects.len() + 1;
        let _ = write!(kids, "{number} 0 R ");
        objects.push(format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {} 0 R>>",
            number + 1
        ));
        objects.push(format!("<</Length {}>>\nstream\n{content}\nendstream", content.len()));
    }
    objects[1] = format!("<</Type/Pages/Count {}/Kids[{kids}]>>", pages.len());
    document(&objects)
}

/// Creates a PDF of objects that are numbered from 1; the first is the catalog.
pub fn document(objects: &[String]) -> Vec<u8> {
    let mut written = "%PDF-1.7\n".to_owned();
    let mut places = String::new();
    for (at, object) in objects.iter().enumerate() {
        let _ = writeln!(places, "{:010} 00000 n ", written.len());
        let _ = writeln!(written, "{} 0 obj\n{object}\nendobj", at + 1);
    }
    let (count, start) = (objects.len() + 1, written.len());
    let _ = write!(
        written,
        "xref\n0 {count}\n0000000000 65535 f \n{places}trailer\n<</Size {count}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n"
    );
    written.into_bytes()
}
