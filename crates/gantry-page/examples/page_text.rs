//! Prints the text of HTML and PDF files, so that benchmarks can measure a whole program.
//!
//! `page_text FILE…` prints the text of each page. `page_text --article FILE…` prints the main
//! content of each, or the whole page.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a program of its own, not the library")]

fn main() -> std::io::Result<()> {
    let mut paths: Vec<_> = std::env::args_os().skip(1).collect();
    let article = paths.first().is_some_and(|first| first == "--article");
    if article {
        paths.remove(0);
    }
    for path in paths {
        let bytes = std::fs::read(path)?;
        let html = article.then(|| gantry_page::decode(&bytes, Some("text/html")));
        match html.and_then(|html| gantry_page::article(&html, None)) {
            Some(main) => println!("{}", main.text),
            None => match gantry_page::readable(&bytes, None, None) {
                Ok(whole) => println!("{}", whole.text),
                Err(why) => println!("{why}"),
            },
        }
    }
    Ok(())
}
