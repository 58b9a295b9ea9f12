//! Repeatable random numbers and the size of long suites. `GANTRY_SEED` repeats a run, and
//! `GANTRY_SOAK=1` runs the full size.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the seed of this run, from `GANTRY_SEED` or the clock, and prints it.
pub fn seed() -> u64 {
    seed_or(SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64))
}

/// Returns the seed of this run, from `GANTRY_SEED` or the default, and prints it. Use it for suites that must run the same
/// cases each time.
pub fn seed_or(default: u64) -> u64 {
    let given = std::env::var("GANTRY_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap_or_else(|_| panic!("GANTRY_SEED must be a number, not {seed:?}")));
    let seed = given.unwrap_or(default);
    println!("GANTRY_SEED={seed}");
    seed
}

/// Reports whether long suites run at full size.
pub fn is_soak() -> bool {
    std::env::var_os("GANTRY_SOAK").is_some_and(|value| value == "1")
}

/// Returns `full` under `GANTRY_SOAK=1`, otherwise `quick`.
pub fn scaled<T>(full: T, quick: T) -> T {
    if is_soak() { full } else { quick }
}

/// `Random` generates numbers (SplitMix64). The same seed gives the same numbers.
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Random::new()
    }
}

impl Random {
    /// Uses [`seed`], which prints the seed.
    pub fn new() -> Random {
        Random(seed())
    }

    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end.max(1) as u64) as usize
    }

    /// Returns a duration below `limit`, in whole milliseconds.
    pub fn duration_below(&mut self, limit: Duration) -> Duration {
        Duration::from_millis(self.below(limit.as_millis() as usize) as u64)
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
