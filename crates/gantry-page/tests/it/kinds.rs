//! Kinds of pages, each with its expected text. To see what changed, run with `GANTRY_ACCEPT=1` and
//! read the diff.

use std::path::Path;

use gantry_page::html_to_text;
use url::Url;

#[test]
fn each_kind_of_page_gives_the_expected_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    let base = Url::parse("https://site.example/a/page.html").unwrap();
    let mut pages: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "html"));
    pages.sort();
    assert!(pages.len() >= 20, "{} kinds", pages.len());
    let mut wrong = Vec::new();
    for path in pages {
        let text = html_to_text(&std::fs::read_to_string(&path).unwrap(), Some(&base)) + "\n";
        let expected = path.with_extension("md");
        if std::env::var_os("GANTRY_ACCEPT").is_some() {
            std::fs::write(&expected, &text).unwrap();
        }
        if std::fs::read_to_string(&expected).ok().as_ref() != Some(&text) {
            wrong.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{} pages are not as they should be:\n{}", wrong.len(), wrong.join("\n\n"));
}
