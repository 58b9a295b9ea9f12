//! Readable text: HTML to text against programs that do it, and the main content of real pages against Mozilla's own library.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::corpus::Corpus;
use super::measure::{Side, median_ms, turns};
use super::{RUNS, Row};
use crate::shell;

/// The reader under Node.js. It prints its times and writes its results to a file.
const THEIR_SCRIPT: &str = include_str!("readability.mjs");
const THEIR_PACKAGES: [&str; 3] = ["node@24", "@mozilla/readability@0.6.0", "jsdom@26"];
const HTML2TEXT: &str = "html2text==2025.4.15";
/// One of Mozilla's pages, of 1 MB.
const LARGE_PAGE: &str = "wikipedia-2";
/// How many of the pages are timed.
const TIMED: usize = 100;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let examples = gantry.with_file_name("examples");
    let target = &shell::root().join("target");
    let profile = super::profile();
    let build =
        ["cargo", "build", "--profile", &profile, "-p", "gantry-page", "--features", "testing", "--examples"];
    shell::step(&build)?;
    let example = |name: &str| examples.join(name).to_string_lossy().into_owned();
    let pages = shell::output(&[&example("readability"), "folder"], &[])?;
    let pages = Path::new(pages.trim());
    let mut rows = vec![html_to_text(&example("page_text"), target, pages)?];
    rows.extend(main_content(&example("readability"), target, pages)?);
    Ok(rows)
}

fn html_to_text(ours: &str, target: &Path, pages: &Path) -> Result<Row> {
    ensure!(shell::exists("lynx"), "please install lynx");
    let environment = target.join("bench/html2text");
    let html2text = environment.join("bin/html2text");
    if !html2text.is_file() {
        shell::step(&["python3", "-m", "venv", &environment.to_string_lossy()])?;
        shell::step(&[&environment.join("bin/pip").to_string_lossy(), "install", "-q", HTML2TEXT])?;
    }
    let page = pages.join(LARGE_PAGE).join("source.html").to_string_lossy().into_owned();
    let mut sides =
        [Side::new(ours, &[&page]), Side::new("lynx", &["-dump", &page]), Side::new(&html2text, &[&page])];
    let times = turns(RUNS, &mut sides)?;
    let [ours, lynx, python] = [0, 1, 2].map(|side| median_ms(&times[side]));
    let (against, theirs) = if lynx <= python { ("lynx -dump", lynx) } else { ("html2text", python) };
    let ratio = ours / theirs;
    println!("html to text: ours {ours:.1} ms, lynx -dump {lynx:.1} ms, html2text {python:.1} ms");
    Ok(Row {
        work: "HTML to text, 1 MB page",
        against,
        ours: format!("{ours:.1} ms"),
        theirs: format!("{theirs:.1} ms"),
        result: format!("{ratio:.2} ×"),
        goal: "≤ 0.5 ×",
        met: ratio <= 0.5,
    })
}

fn main_content(ours: &str, target: &Path, pages: &Path) -> Result<Vec<Row>> {
    let folder = target.join("bench/readability");
    let node = folder.join("node_modules/.bin/node").to_string_lossy().into_owned();
    let script = folder.join("readability.mjs").to_string_lossy().into_owned();
    let found = folder.join("found.json").to_string_lossy().into_owned();
    std::fs::create_dir_all(&folder)?;
    std::fs::write(&script, THEIR_SCRIPT)?;
    if !Path::new(&node).exists() {
        ensure!(shell::exists("npm"), "please install npm, for Mozilla's library under Node.js");
        let install = ["npm", "install", "--silent", "--prefix", &folder.to_string_lossy()];
        shell::step(&[&install[..], &THEIR_PACKAGES].concat())?;
    }
    let theirs = shell::output(&[&node, &script, &pages.to_string_lossy(), &found], &[])?;
    let theirs: Value = serde_json::from_str(&theirs).context("cannot parse the output of the library")?;
    let ours = shell::output(&[ours, &found], &[])?;
    let ours: Value = serde_json::from_str(&ours).context("cannot parse our output")?;
    let ours = ours["pages"].as_array().context("no pages")?;

    println!("\n| page | recall | Mozilla's | noise | Mozilla's |\n| --- | --- | --- | --- | --- |");
    let number = |page: &Value, key: &str| page[key].as_f64().unwrap_or(f64::NAN);
    for page in ours {
        let name = page["name"].as_str().unwrap_or_default();
        let [recall, their_recall, noise, their_noise] =
            ["recall", "theirRecall", "noise", "theirNoise"].map(|key| number(page, key));
        println!("| {name} | {recall:.3} | {their_recall:.3} | {noise:.3} | {their_noise:.3} |");
    }
    let mean = |key: &str| ours.iter().map(|page| number(page, key)).sum::<f64>() / ours.len() as f64;
    let [recall, their_recall, noise, their_noise] =
        ["recall", "theirRecall", "noise", "theirNoise"].map(mean);
    println!(
        "| mean of {} | {recall:.3} | {their_recall:.3} | {noise:.3} | {their_noise:.3} |\n",
        ours.len()
    );

    let our_ms: f64 = ours.iter().take(TIMED).map(|page| number(page, "ms")).sum();
    let their_ms: f64 = ours
        .iter()
        .take(TIMED)
        .map(|page| theirs["ms"][page["name"].as_str().unwrap_or_default()].as_f64().unwrap_or(f64::NAN))
        .sum();
    let ratio = our_ms / their_ms;
    let quality = |work, ours: f64, theirs: f64, goal, met| Row {
        work,
        against: "Mozilla's library, Node.js",
        ours: format!("{:.1} %", ours * 100.0),
        theirs: format!("{:.1} %", theirs * 100.0),
        result: format!("{:+.1} points", (ours - theirs) * 100.0),
        goal,
        met,
    };
    Ok(vec![
        Row {
            work: "readability, 100 real pages",
            against: "Mozilla's library, Node.js",
            ours: format!("{our_ms:.0} ms"),
            theirs: format!("{their_ms:.0} ms"),
            result: format!("{ratio:.2} ×"),
            goal: "≤ 0.3 ×",
            met: ratio <= 0.3,
        },
        quality(
            "  words found, 130 pages",
            recall,
            their_recall,
            "≥ −2 points",
            recall >= their_recall - 0.02,
        ),
        quality("  words too many", noise, their_noise, "≤ +2 points", noise <= their_noise + 0.02),
    ])
}
