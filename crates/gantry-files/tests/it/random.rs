//! Reproducible choices for generated tests. `GANTRY_SEED` repeats a run, and `GANTRY_SOAK=1` runs
//! the full counts.

pub(crate) struct Random(u64);

impl Random {
    /// Takes the seed from the environment or the clock and prints it.
    pub(crate) fn new() -> Self {
        let given = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = given.unwrap_or(clock);
        println!("GANTRY_SEED={seed}");
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Returns how many cases to run: `full` under `GANTRY_SOAK=1`, else `short`.
pub(crate) fn cases(short: usize, full: usize) -> usize {
    if std::env::var("GANTRY_SOAK").is_ok_and(|value| value == "1") { full } else { short }
}
