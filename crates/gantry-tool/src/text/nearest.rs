//! The names closest to a mistyped one.

/// Longer names are not typos, and the time to compare them grows with the square of their length.
const LONGEST_TYPO: usize = 256;

/// Returns up to three of `names` that are similar to `wanted`, the closest first.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if wanted.len() > LONGEST_TYPO {
        return Vec::new();
    }
    let lowered = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (likeness(&lowered, &name.to_lowercase()), name))
        .filter(|(score, _)| *score >= 0.72)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

fn likeness(wanted: &str, name: &str) -> f64 {
    // Callers often omit `{node}__` and `tool::`, so the bare name counts almost as much as the whole.
    let bare = name.rsplit(['_', ':']).next().filter(|_| name.contains("__") || name.contains("::"));
    let whole = strsim::jaro_winkler(wanted, name);
    bare.map_or(whole, |bare| whole.max(strsim::jaro_winkler(wanted, bare) * 0.98))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typos_case_and_left_out_prefixes() {
        let names = ["local__Bash", "local__Read", "tool::file_read", "read", "write"];
        assert_eq!(nearest("bahs", names), ["local__Bash"]);
        assert_eq!(nearest("wriet", names)[0], "write");
        assert_eq!(nearest("Reed", names)[0], "read");
        assert_eq!(nearest("zzz", names), Vec::<&str>::new());
    }

    #[test]
    fn very_long_name_is_not_compared() {
        let began = std::time::Instant::now();
        assert_eq!(nearest(&"read".repeat(1 << 20), ["read", "write"]), Vec::<&str>::new());
        assert!(began.elapsed().as_secs() < 1, "{:?}", began.elapsed());
    }
}
