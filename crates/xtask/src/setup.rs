//! What the checks need beside cargo, and how to get it on Debian and its kin.

use anyhow::{Result, bail};

use crate::shell;

/// A program the tests compare with, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 11] = [
    ("rg", "ripgrep"),
    ("fdfind", "fd-find"),
    ("patch", "patch"),
    ("git", "git"),
    ("zsh", "zsh"),
    ("python3", "python3"),
    ("setsid", "util-linux"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("strace", "strace"),
    ("nc", "netcat-openbsd"),
];

/// A program from crates.io, and what to ask cargo for.
const CARGO_PROGRAMS: [(&str, &[&str]); 3] = [
    ("cargo-nextest", &["cargo-nextest"]),
    ("cargo-deny", &["cargo-deny"]),
    // The S3-compatible server that the object store is tested with.
    ("s3s-fs", &["s3s-fs@0.14.1", "--features", "binary"]),
];

pub(crate) fn run() -> Result<()> {
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !shell::exists(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    for (program, wanted) in CARGO_PROGRAMS {
        if !shell::exists(program) {
            shell::step(&[&["cargo", "install", "--locked"], wanted].concat())?;
        }
    }
    Ok(())
}

fn install_packages(packages: &[&str]) -> Result<()> {
    if !shell::exists("apt-get") {
        bail!("please install: {}", packages.join(", "));
    }
    let root = shell::output(&["id", "-u"], &[])?.trim() == "0";
    let lead: &[&str] = if root { &[] } else { &["sudo"] };
    shell::step(&[lead, &["apt-get", "update", "-qq"]].concat())?;
    let install: &[&str] = &["apt-get", "install", "-y", "-qq", "--no-install-recommends"];
    shell::step_with(&[lead, install, packages].concat(), &[("DEBIAN_FRONTEND", "noninteractive")])
}
