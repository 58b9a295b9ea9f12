//! PDF: the text is extracted, and no document can stop or flood the reader.

use gantry_page::testing::{document, pdf};
use gantry_page::{PdfText, pdf_text, readable};
use gantry_testkit::{is_soak, seed};
use proptest::test_runner::{Config, RngSeed, TestRunner};

fn text(bytes: &[u8]) -> Result<String, String> {
    pdf_text(bytes, 1_000).map(|found| found.text).map_err(|err| err.to_string())
}

/// Creates a PDF with one page of the given content and resources.
fn one_page(content: &str, resources: &str, more: &[&str]) -> Vec<u8> {
    let stream = |content: &str| format!("<</Length {}>>\nstream\n{content}\nendstream", content.len());
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        format!("<</Type/Pages/Count 1/Kids[4 0 R]/MediaBox[0 0 612 792]/Resources {resources}>>"),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
        "<</Type/Page/Parent 2 0 R/Contents 5 0 R>>".to_owned(),
        stream(content),
    ];
    objects.extend(more.iter().map(|object| (*object).to_owned()));
    document(&objects)
}

const FONT: &str = "/Font<</F1 3 0 R>>";

#[test]
fn text_is_read_page_by_page() {
    assert_eq!(
        text(&pdf(&["One (1)".replace(['(', ')'], "").as_str(), "Two"])),
        Ok("One 1\n\nTwo".to_owned())
    );
    let lines = "BT /F1 12 Tf 72 720 Td (First line) Tj 0 -14 Td (second line) Tj ET";
    assert_eq!(text(&one_page(lines, &format!("<<{FONT}>>"), &[])), Ok("First line\nsecond line".to_owned()));
    let read = readable(&pdf(&["By its bytes"]), Some("application/octet-stream"), None).unwrap();
    assert_eq!(read.text, "By its bytes");
}

#[test]
fn truncation_is_reported() {
    let document = pdf(&["0123456789", "0123456789"]);
    let whole = pdf_text(&document, 1_000).unwrap();
    assert!(!whole.cut);
    let PdfText { text, cut } = pdf_text(&document, 5).unwrap();
    assert!(cut && text.len() <= 5 && whole.text.starts_with(&text), "{text}");
}

#[test]
fn documents_without_text_are_described() {
    for (bytes, error) in [
        (pdf(&[""]), "a PDF without text"),
        (b"%PDF-1.7".to_vec(), "a PDF that cannot be read"),
        (pdf(&["x"])[..200].to_vec(), "a PDF "),
    ] {
        let found = text(&bytes).unwrap_err();
        assert!(found.starts_with(error), "{found}");
    }
}

/// Creates a form that draws a form, up to the end of `objects`. Each draws the next one ten times.
fn nested_forms(depth: usize, last: &str) -> Vec<u8> {
    let form = |content: &str, next: &str| {
        let resources = format!("<<{FONT}/XObject<</N {next}>>>>");
        format!(
            "<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources {resources}/Length {}>>\nstream\n{content}\nendstream",
            content.len()
        )
    };
    let ten = "/N Do ".repeat(10);
    let mut forms: Vec<String> = (0..depth).map(|at| form(&ten, &format!("{} 0 R", 7 + at))).collect();
    forms.push(form("BT /F1 12 Tf (deep) Tj ET /N Do", last));
    let forms: Vec<&str> = forms.iter().map(String::as_str).collect();
    one_page("BT /F1 12 Tf 72 720 Td (page) Tj ET /N Do", &format!("<<{FONT}/XObject<</N 6 0 R>>>>"), &forms)
}

#[test]
fn recursive_forms_end() {
    assert!(text(&nested_forms(0, "99 0 R")).unwrap().contains("deep"));
    // A form draws itself, its parent, and a tower that would be drawn a billion times.
    for document in [nested_forms(0, "6 0 R"), nested_forms(2, "6 0 R"), nested_forms(9, "6 0 R")] {
        let started = std::time::Instant::now();
        let _ = text(&document);
        // Without a bound this would take days. The limit leaves room for a busy machine.
        assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
    }
}

#[test]
fn recursive_page_trees_end() {
    let looped = document(&[
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        "<</Type/Pages/Count 1/Kids[3 0 R 2 0 R]/Parent 2 0 R>>".to_owned(),
        "<</Type/Page/Parent 2 0 R/Contents 4 0 R>>".to_owned(),
        "<</Length 2>>\nstream\nBT\nendstream".to_owned(),
    ]);
    assert!(text(&looped).is_err());
}

#[test]
fn endlessly_unpacking_document_is_refused() {
    let mut bomb = lopdf::Document::load_mem(&pdf(&["x"])).unwrap();
    let page = bomb.get_pages()[&1];
    let content =
        bomb.get_object(page).unwrap().as_dict().unwrap().get(b"Contents").unwrap().as_reference().unwrap();
    let stream = bomb.get_object_mut(content).unwrap().as_stream_mut().unwrap();
    stream.set_plain_content(vec![b' '; 64 * 1024 * 1024]);
    stream.compress().unwrap();
    let mut bytes = Vec::new();
    bomb.save_to(&mut bytes).unwrap();
    assert!(bytes.len() < 200_000, "{}", bytes.len());
    assert_eq!(text(&bytes), Err("a PDF that is too large when it is unpacked".to_owned()));
}

#[test]
fn damaged_documents_cause_no_panic() {
    let runs = if is_soak() { 20_000 } else { 1_000 };
    let seed = seed();
    let mut runner = TestRunner::new(Config {
        cases: runs,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    });
    let whole = nested_forms(2, "99 0 R");
    let change = (0..whole.len(), proptest::prelude::any::<u8>());
    let changes = proptest::collection::vec(change, 1..8);
    let cut = 0..whole.len();
    runner
        .run(&(changes, proptest::option::weighted(0.2, cut)), |(changes, cut)| {
            let mut bytes = whole.clone();
            changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            bytes.truncate(cut.unwrap_or(bytes.len()));
            let _ = pdf_text(&bytes, 10_000);
            Ok(())
        })
        .unwrap();
}
