//! Compares the main content of real pages with what Mozilla expects.

use gantry_page::article;
use gantry_page::testing::mozilla::{Case, Score, cases, score};
use gantry_testkit::{is_soak, seed};

/// The mean over all pages. `cargo xtask bench web` compares them with Mozilla's own library.
const LEAST_MEAN_RECALL: f64 = 0.99;
const MOST_MEAN_NOISE: f64 = 0.01;
/// A sample may be below the mean.
const SAMPLE_ALLOWANCE: f64 = 0.01;

#[test]
fn main_content_is_found_with_little_noise() {
    let cases = cases();
    assert!(cases.len() >= 130, "{} pages", cases.len());
    let (chosen, allowance): (Vec<&Case>, f64) = if is_soak() {
        (cases.iter().collect(), 0.0)
    } else {
        let seed = seed() as usize;
        (cases.iter().skip(seed % 10).step_by(10).collect(), SAMPLE_ALLOWANCE)
    };
    let scores: Vec<(&str, Score)> = chosen
        .iter()
        .map(|case| {
            let found = article(&case.source, None).map(|article| article.text).unwrap_or_default();
            (case.name.as_str(), score(&case.expected, &found))
        })
        .collect();
    for (name, Score { recall, noise }) in &scores {
        println!("{name}: recall {recall:.3}, noise {noise:.3}");
    }
    let mean =
        |of: fn(&Score) -> f64| scores.iter().map(|(_, score)| of(score)).sum::<f64>() / scores.len() as f64;
    let (recall, noise) = (mean(|score| score.recall), mean(|score| score.noise));
    println!("mean: recall {recall:.3}, noise {noise:.3}");
    assert!(recall >= LEAST_MEAN_RECALL - allowance, "recall {recall}");
    assert!(noise <= MOST_MEAN_NOISE + allowance, "noise {noise}");
}
