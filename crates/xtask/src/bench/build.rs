//! How long a first build takes, from nothing but downloaded packages.

use std::time::Instant;

use anyhow::Result;

use crate::shell;

/// The longest that a first `cargo run --release` may take on two cores.
const GOAL_MINUTES: f64 = 7.0;

/// Builds both profiles into empty folders and prints their times and sizes.
pub(super) fn run() -> Result<()> {
    shell::step(&["cargo", "fetch", "--locked"])?;
    let root = shell::root().join("target/bench");
    let mut lines = Vec::new();
    for profile in ["release", "dist"] {
        let folder = root.join(format!("build-{profile}"));
        let _ = std::fs::remove_dir_all(&folder);
        let target = folder.to_string_lossy().into_owned();
        let began = Instant::now();
        shell::step_with(
            &["cargo", "build", "--profile", profile, "-p", "gantry"],
            &[("CARGO_TARGET_DIR", &target)],
        )?;
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        let size = std::fs::metadata(folder.join(profile).join("gantry"))?.len() as f64 / 1_048_576.0;
        let goal = match profile {
            "release" if minutes <= GOAL_MINUTES => "  goal 7 min: met",
            "release" => "  goal 7 min: MISSED",
            _ => "",
        };
        lines.push(format!("first build, {profile}: {minutes:.1} min, {size:.1} MiB{goal}"));
        std::fs::remove_dir_all(&folder)?;
    }
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}
