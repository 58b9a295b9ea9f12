//! The size and the seed of the long suites.

pub(crate) fn whole() -> bool {
    std::env::var_os("GANTRY_SOAK").is_some_and(|value| value == "1")
}

/// Prints the seed, so that `GANTRY_SEED` can repeat a failure.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or(clock.as_nanos() as u64);
    println!("GANTRY_SEED={seed}");
    seed
}
