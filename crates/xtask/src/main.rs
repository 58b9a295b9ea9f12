//! Commands for developers and CI: `cargo xtask check`, `docs`, `dist`, `soak`, `bench`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's program, not part of the product"
)]

mod bench;
mod check;
mod dist;
mod docs;
mod page;
mod setup;
mod shell;
mod soak;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask check          format, lints, tests, generated docs, dependency policy; installs what it needs
cargo xtask docs           write docs/tools.md from the registry (--check only compares)
cargo xtask dist           make a tarball, a Debian package, a list of dependencies and checksums
cargo xtask screenshots    make the pictures of the documentation, in docs/images
cargo xtask soak           the long suites at full length, then the fuzz targets
cargo xtask bench [NAME…]  compare with real programs, side by side; needs a quiet machine
cargo xtask bench build    time a first build of the release and dist profiles
cargo xtask setup          install what the checks need";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let result = match args.first().map(String::as_str) {
        Some("check") => check::run(),
        Some("docs") => docs::run(rest.iter().any(|arg| arg == "--check")),
        Some("dist") => dist::run(rest),
        Some("screenshots") => page::screenshots(),
        Some("soak") => soak::run(),
        Some("bench") => bench::run(rest),
        Some("setup") => setup::run(),
        _ => {
            println!("{HELP}");
            return if args.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}
