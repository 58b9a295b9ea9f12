//! Writes a Debian package: an `ar` archive of two tarballs and a version.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{COMPLETIONS, pack};
use crate::shell;

/// Writes the package of the files in `staged`.
pub(super) fn write(
    out: &Path,
    staged: &Path,
    version: &str,
    architecture: &str,
    glibc: (u32, u32),
) -> Result<PathBuf> {
    let folder = tempfile::tempdir()?;
    let (data, control) = (folder.path().join("data"), folder.path().join("control"));
    let put = |from: PathBuf, to: &str| -> Result<u64> {
        let to = data.join(to);
        std::fs::create_dir_all(to.parent().context("the file has no folder")?)?;
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))
    };
    let mut bytes = put(staged.join("gantry"), "usr/bin/gantry")?;
    bytes += put(staged.join("LICENSE"), "usr/share/doc/gantry/copyright")?;
    bytes += put(staged.join("CHANGELOG.md"), "usr/share/doc/gantry/CHANGELOG.md")?;
    for (_, file, to) in COMPLETIONS {
        bytes += put(staged.join("completions").join(file), to)?;
    }
    for folder in [&data, &control] {
        std::fs::create_dir_all(folder)?;
        let text = folder.to_string_lossy().into_owned();
        shell::output(&["chmod", "-R", "u=rwX,go=rX", &text], &[])?;
    }
    std::fs::write(control.join("control"), control_text(version, architecture, glibc, bytes))?;
    let mut members = vec![("debian-binary", b"2.0\n".to_vec())];
    for (name, folder_of) in [("control.tar.gz", &control), ("data.tar.gz", &data)] {
        let file = folder.path().join(name);
        pack(folder_of, &file, &["."])?;
        members.push((name, std::fs::read(&file)?));
    }
    let package = out.join(format!("gantry_{version}_{architecture}.deb"));
    std::fs::write(&package, archive(&members))?;
    Ok(package)
}

fn control_text(version: &str, architecture: &str, glibc: (u32, u32), bytes: u64) -> String {
    format!(
        "Package: gantry\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The Gantry authors <gantry@localhost>\n\
         Installed-Size: {}\n\
         Depends: libc6 (>= {}.{}), libgcc-s1\n\
         Section: utils\n\
         Priority: optional\n\
         Description: Hands for AI agents on every machine their owner has\n \
         A gateway, node, command line and MCP server in one program. Every tool\n \
         call passes one gate that validates it, applies a policy and records it.\n",
        bytes.div_ceil(1024),
        glibc.0,
        glibc.1
    )
}

/// The `ar` format: a magic line, then for each member a head of 60 bytes and the content, padded to an even length.
fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        bytes.extend(
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, "100644", content.len()).bytes(),
        );
        bytes.extend(content);
        if content.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_aligned() {
        let bytes = archive(&[("a", b"odd".to_vec()), ("b", b"even".to_vec())]);
        assert_eq!(bytes.len(), 8 + 60 + 4 + 60 + 4);
        assert_eq!(&bytes[8..10], b"a ");
        assert_eq!(&bytes[8 + 60 + 4..8 + 60 + 6], b"b ");
        assert_eq!(&bytes[8 + 58..8 + 60], b"`\n");
    }
}
