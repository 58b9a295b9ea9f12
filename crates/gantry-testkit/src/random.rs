//! Random moments that can be had again.

use std::time::Duration;

pub(super) struct Dice {
    state: u64,
}

impl Dice {
    /// Seeded by `GANTRY_SEED` or the clock; says with what.
    pub(super) fn new(suite: &str) -> Dice {
        let given = std::env::var("GANTRY_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("{suite}: GANTRY_SEED={seed}");
        Dice { state: seed }
    }

    /// From 0 to below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// A moment within this many milliseconds.
    pub(super) fn moment(&mut self, within_ms: u64) -> Duration {
        Duration::from_millis(self.below(within_ms))
    }
}

pub(super) fn is_soak() -> bool {
    std::env::var_os("GANTRY_SOAK").is_some_and(|value| value == "1")
}

/// How often a suite does it.
pub(super) fn rounds() -> usize {
    if is_soak() { 100 } else { 10 }
}
