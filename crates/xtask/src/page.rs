//! The tests of the web page: types, units and a browser against the real program.

use anyhow::Result;

use crate::{setup, shell};

/// Where the tests and their development packages are.
pub(crate) const FOLDER: &str = "crates/gantry-web/tests";

/// Runs the tests. `gantry` is built already.
pub(crate) fn check() -> Result<()> {
    setup::for_page()?;
    script("types", &[])?;
    script("unit", &[])?;
    script("specs", &[])
}

/// Runs the tests at all sizes and in both themes.
pub(crate) fn soak() -> Result<()> {
    setup::for_page()?;
    shell::step_with(&["npm", "--prefix", FOLDER, "run", "specs"], &[("GANTRY_SOAK", "1")])
}

/// Makes the pictures of the documentation.
pub(crate) fn screenshots() -> Result<()> {
    setup::for_page()?;
    shell::step(&["cargo", "build", "-p", "gantry"])?;
    let images = shell::root().join("docs/images");
    script("screenshots", &[&images.to_string_lossy()])
}

/// Runs a script of the tests' `package.json`.
fn script(name: &str, arguments: &[&str]) -> Result<()> {
    shell::step(&[&["npm", "--prefix", FOLDER, "run", "--silent", name, "--"][..], arguments].concat())
}
