//! `cargo xtask dist` makes what people install: a tarball and a Debian package for each platform, a list of the
//! dependencies, and checksums.

mod deb;
mod sbom;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell;

/// A platform: its target, its name in file names, and its name in Debian.
struct Platform {
    target: &'static str,
    name: &'static str,
    debian: &'static str,
}

const PLATFORMS: [Platform; 2] = [
    Platform { target: "x86_64-unknown-linux-gnu", name: "linux-x64", debian: "amd64" },
    Platform { target: "aarch64-unknown-linux-gnu", name: "linux-arm64", debian: "arm64" },
];

/// Completion scripts: the shell, and the path in the Debian package.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "gantry.bash", "usr/share/bash-completion/completions/gantry"),
    ("zsh", "_gantry", "usr/share/zsh/vendor-completions/_gantry"),
    ("fish", "gantry.fish", "usr/share/fish/vendor_completions.d/gantry.fish"),
];

/// `--binary FILE` packs a program that is built already, for this machine's platform.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let binary = match args {
        [] => None,
        [flag, file] if flag == "--binary" => Some(PathBuf::from(file)),
        _ => bail!("usage: cargo xtask dist [--binary FILE]"),
    };
    let host = shell::output(&["rustc", "-vV"], &[])?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let out = shell::root().join("target/dist-packages");
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(&out)?;
    let metadata = shell::output(&["cargo", "metadata", "--format-version", "1", "--locked"], &[])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let version = sbom::version(&metadata)?;
    let mut made = Vec::new();
    for platform in &PLATFORMS {
        let program = match (&binary, platform.target == host) {
            (Some(binary), true) => binary.clone(),
            (Some(_), false) => {
                println!("{}: not built, because --binary packs one platform", platform.name);
                continue;
            }
            (None, _) if !has_standard_library(platform.target)? => {
                println!(
                    "{}: not built, because its standard library is not installed (rustup target add {})",
                    platform.name, platform.target
                );
                continue;
            }
            (None, _) => {
                shell::step(&[
                    "cargo",
                    "build",
                    "--locked",
                    "--profile",
                    "dist",
                    "-p",
                    "gantry",
                    "--target",
                    platform.target,
                ])?;
                shell::root().join("target").join(platform.target).join("dist/gantry")
            }
        };
        let glibc = needed_glibc(
            &std::fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?,
        );
        let glibc = glibc.context("the program names no version of glibc")?;
        println!("{}: needs glibc {}.{} or newer", platform.name, glibc.0, glibc.1);
        let staged = stage(&out, platform, &version, &program, platform.target == host)?;
        made.push(tarball(&out, &staged)?);
        made.push(deb::write(&out, &staged, &version, platform.debian, glibc)?);
        std::fs::remove_dir_all(&staged)?;
    }
    ensure!(!made.is_empty(), "nothing was built");
    let list = out.join(format!("gantry-{version}.cdx.json"));
    std::fs::write(&list, serde_json::to_string_pretty(&sbom::cyclonedx(&metadata)?)?)?;
    made.push(list);
    let names: Vec<String> =
        made.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    let sums = [&["sha256sum".to_owned()], names.as_slice()].concat();
    let words: Vec<&str> = sums.iter().map(String::as_str).collect();
    let sums = shell::command(&words).current_dir(&out).output()?;
    ensure!(sums.status.success(), "sha256sum failed");
    std::fs::write(out.join("SHA256SUMS"), sums.stdout)?;
    println!("\n{}:", out.display());
    names.iter().for_each(|name| println!("  {name}"));
    println!("  SHA256SUMS");
    Ok(())
}

fn has_standard_library(target: &str) -> Result<bool> {
    let folder = shell::output(&["rustc", "--print", "target-libdir", "--target", target], &[])?;
    let entries = std::fs::read_dir(folder.trim()).into_iter().flatten().flatten();
    Ok(entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-")))
}

/// Returns the newest version of glibc that the program's symbols name.
fn needed_glibc(program: &[u8]) -> Option<(u32, u32)> {
    const NAME: &[u8] = b"GLIBC_";
    let numbers = |at: usize| {
        let text = program.get(at + NAME.len()..)?;
        let text = std::str::from_utf8(text.get(..text.iter().position(|byte| *byte == 0)?)?).ok()?;
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    let places = program.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    places.filter_map(|(at, _)| numbers(at)).max()
}

/// Puts the files of a tarball into a folder.
fn stage(out: &Path, platform: &Platform, version: &str, program: &Path, runs_here: bool) -> Result<PathBuf> {
    let folder = out.join(format!("gantry-{version}-{}", platform.name));
    std::fs::create_dir_all(folder.join("completions"))?;
    let binary = folder.join("gantry");
    std::fs::copy(program, &binary)?;
    let text = binary.to_string_lossy().into_owned();
    shell::step(&["strip", &text]).or_else(|err| if runs_here { Err(err) } else { Ok(()) })?;
    shell::output(&["chmod", "755", &text], &[])?;
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        std::fs::copy(shell::root().join(name), folder.join(name))?;
    }
    // A program of another platform cannot print its scripts here; they are the same.
    let printer = if runs_here {
        text
    } else {
        shell::root().join("target/dist/gantry").to_string_lossy().into_owned()
    };
    for (name, file, _) in COMPLETIONS {
        std::fs::write(
            folder.join("completions").join(file),
            shell::output(&[&printer, "completions", name], &[])?,
        )?;
    }
    Ok(folder)
}

/// Packs a folder so that the same content makes the same file.
fn tarball(out: &Path, folder: &Path) -> Result<PathBuf> {
    let name = folder.file_name().and_then(|name| name.to_str()).context("the folder has no name")?;
    let file = out.join(format!("{name}.tar.gz"));
    pack(out, &file, &[name])?;
    Ok(file)
}

/// Writes a compressed archive of these entries of a folder: owned by root, sorted, with the time of the last commit.
fn pack(folder: &Path, file: &Path, entries: &[&str]) -> Result<()> {
    let time = shell::output(&["git", "log", "-1", "--format=%ct"], &[])?;
    let (time, folder) = (format!("--mtime=@{}", time.trim()), folder.to_string_lossy().into_owned());
    let file = file.to_string_lossy().into_owned();
    let mut words =
        vec!["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", &time, "-C", &folder];
    words.extend(["--use-compress-program=gzip -n -9", "-cf", &file]);
    words.extend(entries);
    shell::output(&words, &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_glibc_is_found() {
        let program = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(needed_glibc(program), Some((2, 34)));
        assert_eq!(needed_glibc(b"static"), None);
    }
}
