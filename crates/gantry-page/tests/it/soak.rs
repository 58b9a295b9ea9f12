//! How much the long suites do, and with which seed.

pub(crate) fn whole() -> bool {
    std::env::var_os("GANTRY_SOAK").is_some_and(|value| value == "1")
}

/// Printed, so that a failure can be repeated with `GANTRY_SEED`.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or(clock.as_nanos() as u64);
    println!("GANTRY_SEED={seed}");
    seed
}
