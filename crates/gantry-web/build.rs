//! Writes the table of the page's files, each embedded with `include_bytes!`. It runs no program and opens no socket.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a build script reads the sources and talks to cargo on standard output"
)]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = |name| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let page = folder("CARGO_MANIFEST_DIR").join("page");
    println!("cargo::rerun-if-changed={}", page.display());
    let mut files = Vec::new();
    list(&page, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&page).map_err(io::Error::other)?;
        let _ = writeln!(table, "    ({:?}, include_bytes!({:?})),", name.display().to_string(), file);
    }
    table.push(']');
    fs::write(folder("OUT_DIR").join("page_files.rs"), table)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Editors leave hidden files behind.
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        match path.is_dir() {
            _ if is_hidden => {}
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
