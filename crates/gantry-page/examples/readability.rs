//! Finds the main content of Mozilla's test pages, for the benchmarks. It prints one JSON object
//! with the time and the score of each page.
//!
//! `readability folder` prints where the pages are. `readability THEIRS.json` also scores another
//! program's results: an object of HTML by page.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program of its own"
)]

use std::time::Instant;

use gantry_page::testing::mozilla::{cases, folder, score};
use gantry_page::{article, html_to_text};
use serde_json::{Value, json};

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("folder") {
        println!("{}", folder().display());
        return;
    }
    let theirs: Value = match argument {
        Some(path) => serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        None => Value::Null,
    };
    let (cases, mut pages, mut took) = (cases(), Vec::new(), Vec::new());
    for case in &cases {
        let started = Instant::now();
        let found = article(&case.source, None).map(|article| article.text).unwrap_or_default();
        took.push(started.elapsed().as_secs_f64() * 1_000.0);
        let ours = score(&case.expected, &found);
        let other = theirs[&case.name].as_str().map(|html| score(&case.expected, &html_to_text(html, None)));
        pages.push(json!({
            "name": case.name,
            "ms": took.last(),
            "recall": ours.recall,
            "noise": ours.noise,
            "theirRecall": other.map(|score| score.recall),
            "theirNoise": other.map(|score| score.noise),
        }));
    }
    println!("{}", json!({"pages": pages}));
}
