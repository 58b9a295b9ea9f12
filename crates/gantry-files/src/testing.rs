//! Test support for everything that takes a path: hostile and legitimate paths against one known
//! tree.
//!
//! [`Arena::new`] creates a workspace next to a secret outside. Each of [`Arena::hostile`] tries to
//! reach the outside; each of [`Arena::legitimate`] names `workspace/dir/inner.txt`.
//! [`Arena::outside`] shows whether anything outside changed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The content of the secret outside. No operation in the workspace may ever return it.
pub const SECRET: &str = "the-secret-outside";
/// The content of the file that every legitimate path names.
pub const INNER: &str = "inner-content\n";

/// `Arena` is a workspace, a directory whose name has it as a prefix, and an outside, all below one
/// directory.
#[derive(Debug)]
pub struct Arena {
    base: PathBuf,
}

impl Arena {
    /// Creates the arena in an empty directory, which the caller removes.
    pub fn new(base: &Path) -> io::Result<Arena> {
        let base = base.canonicalize()?;
        let (workspace, outside, twin) = (base.join("ws"), base.join("outside"), base.join("ws-evil"));
        for dir in [&workspace.join("dir/sub"), &outside.join("dir"), &twin] {
            fs::create_dir_all(dir)?;
        }
        for file in
            [outside.join("secret"), outside.join("dir/secret"), twin.join("secret"), base.join("secret")]
        {
            fs::write(file, SECRET)?;
        }
        fs::write(workspace.join("dir/inner.txt"), INNER)?;
        fs::write(workspace.join("plain"), "plain\n")?;
        let link = |target: &Path, name: &str| symlink(target, workspace.join(name));
        link(&outside, "out_dir")?;
        link(&outside.join("secret"), "out_file")?;
        link(Path::new("../outside"), "out_rel_dir")?;
        link(Path::new("../outside/secret"), "out_rel_file")?;
        link(Path::new("../outside/not-yet"), "out_new_file")?;
        link(&outside.join("not-yet-either"), "out_new_absolute")?;
        link(&twin, "out_twin")?;
        link(Path::new("out_dir"), "chain1")?;
        link(Path::new("chain1"), "chain2")?;
        link(Path::new("chain2/secret"), "chain_file")?;
        link(Path::new("dir/../../outside"), "out_dotdot")?;
        link(Path::new(".."), "up")?;
        link(Path::new("/"), "slash")?;
        link(Path::new("/proc/self/root"), "magic_root")?;
        link(Path::new("/proc/self/cwd"), "magic_cwd")?;
        link(&outside.join("dir"), "dir/out")?;
        link(Path::new("dir"), "in_dir")?;
        link(Path::new("dir/inner.txt"), "in_file")?;
        link(&workspace.join("dir"), "in_absolute_dir")?;
        link(&workspace.join("dir/inner.txt"), "in_absolute_file")?;
        link(Path::new("in_absolute_dir"), "in_chain")?;
        link(Path::new("in_chain/sub/../inner.txt"), "in_chain_file")?;
        link(Path::new("../dir"), "dir/self")?;
        Ok(Arena { base })
    }

    /// The root of the contained scope.
    pub fn workspace(&self) -> PathBuf {
        self.base.join("ws")
    }

    /// Returns paths that lead, or try to lead, out of the workspace, to existing and missing files
    /// and directories.
    pub fn hostile(&self) -> Vec<OsString> {
        let out = self.base.join("outside");
        let up = self.base.display();
        let mut ways: Vec<String> = Vec::new();
        let to_base = [
            "..",
            "./..",
            "../.",
            ".//..",
            "dir/../..",
            "dir/../dir/../..",
            "dir/sub/../../..",
            "./dir/.././..",
            "in_dir/../..",
            "in_dir/sub/../../..",
            "in_absolute_dir/../..",
            "in_chain/../..",
            "dir/self/../..",
            "dir/self/self/self/../..",
            "up",
            "./up",
            "dir/../up",
            "up/ws/..",
            "up/ws/../ws/..",
            "in_dir/self/../../../ws/..",
        ];
        for way in to_base {
            ways.extend(["outside", "outside/dir", "ws-evil"].map(|dir| format!("{way}/{dir}")));
        }
        let to_outside = [
            "out_dir",
            "out_rel_dir",
            "out_dotdot",
            "chain1",
            "chain2",
            "out_twin",
            "dir/out",
            "dir/self/out",
            "in_dir/out",
        ];
        ways.extend(to_outside.map(String::from));
        ways.extend([out.display().to_string(), format!("{up}/ws-evil"), format!("{up}/ws/../outside")]);
        ways.extend([
            format!("{up}/ws/dir/../../outside"),
            format!("{up}//ws/..//outside"),
            format!("{up}/./ws-evil"),
        ]);
        for top in ["slash", "magic_root", "/proc/self/root", "/proc/1/root", "/proc/thread-self/root"] {
            ways.push(format!("{top}{}", out.display()));
        }
        ways.push(format!("..{}", "/..".repeat(40)) + &out.display().to_string());
        let mut paths: Vec<OsString> = Vec::new();
        for way in &ways {
            for last in ["secret", "planted", "secret/.", "./secret"] {
                paths.push(format!("{way}/{last}").into());
            }
        }
        paths.extend(ways.iter().map(OsString::from));
        paths.extend(
            [
                "out_file",
                "out_rel_file",
                "out_new_file",
                "out_new_absolute",
                "chain_file",
                "slash",
                "magic_root",
                "magic_cwd",
            ]
            .map(OsString::from),
        );
        paths.extend((0..8).map(|fd| format!("/proc/self/fd/{fd}").into()));
        paths.extend(
            [
                "/proc/self/cwd/planted",
                "/proc/self/environ",
                "/etc/passwd",
                "/etc/shadow",
                "/",
                "//",
                "..",
                "../",
                "/dev/null",
                "/dev/stdin",
            ]
            .map(OsString::from),
        );
        paths.extend(self.malformed());
        paths
    }

    /// Returns strings that are not usable as a path; they find nothing.
    pub fn malformed(&self) -> Vec<OsString> {
        vec![
            "".into(),
            "\0".into(),
            "plain\0".into(),
            "dir/\0/../../outside/secret".into(),
            "../outside/secret\0.txt".into(),
            "x".repeat(256).into(),
            "x".repeat(5000).into(),
            "a/".repeat(3000).into(),
            "../".repeat(1300).into(),
            format!("{}outside/secret", "../".repeat(1200)).into(),
            OsString::from_vec(b"\xff\xfe/../../outside/secret".to_vec()),
            OsString::from_vec(b"..\xff/../../outside/secret".to_vec()),
            "~/.ssh/id_rsa".into(),
            "..\\outside\\secret".into(),
            "%2e%2e/outside/secret".into(),
            "\u{2025}/outside/secret".into(),
            "．．/outside/secret".into(),
            "file:///etc/passwd".into(),
        ]
    }

    /// Returns different ways to write `dir/inner.txt`, all inside.
    pub fn legitimate(&self) -> Vec<OsString> {
        let root = self.workspace();
        let dirs = [
            "dir",
            "./dir",
            "dir/.",
            "dir/sub/..",
            "dir//",
            "in_dir",
            "in_absolute_dir",
            "in_chain",
            "dir/self",
            "in_dir/self/self",
            "in_chain/sub/..",
            "dir/sub/../../in_dir",
            "./in_absolute_dir/./sub/../",
            "in_dir/../in_dir",
            "dir/../dir/../dir",
        ];
        let mut paths: Vec<OsString> = dirs.iter().map(|dir| format!("{dir}/inner.txt").into()).collect();
        paths.extend(dirs.iter().map(|dir| root.join(dir).join("inner.txt").into_os_string()));
        paths.extend(dirs.iter().map(|dir| OsString::from(format!("{dir}/sub/../inner.txt"))));
        for file in ["in_file", "in_absolute_file", "in_chain_file"] {
            paths.push(file.into());
            paths.push(format!("./{file}").into());
            paths.push(format!("dir/../{file}").into());
            paths.push(root.join(file).into_os_string());
        }
        paths
    }

    /// Returns everything outside the workspace: path, kind, size, time, inode and content.
    pub fn outside(&self) -> io::Result<BTreeMap<PathBuf, String>> {
        let mut seen = BTreeMap::new();
        let mut todo = vec![self.base.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                if path == self.workspace() {
                    continue;
                }
                let meta = fs::symlink_metadata(&path)?;
                let content = if meta.is_file() { fs::read(&path)? } else { Vec::new() };
                let facts = (meta.mode(), meta.ino(), meta.mtime_nsec(), content);
                seen.insert(path.clone(), format!("{facts:?}"));
                if meta.is_dir() {
                    todo.push(path);
                }
            }
        }
        Ok(seen)
    }

    /// Reports whether bytes contain the secret.
    pub fn leaks(bytes: &[u8]) -> bool {
        memchr::memmem::find(bytes, SECRET.as_bytes()).is_some()
    }
}

/// Runs `work` on a separate thread to which file modes apply. If tests run as root, the thread
/// becomes another user, who also gets the files in `theirs`.
pub fn as_user(theirs: &[&Path], work: impl FnOnce() + Send) -> io::Result<()> {
    const NOBODY: u32 = 65_534;
    let as_nobody = || {
        if rustix::process::geteuid().is_root() {
            theirs.iter().try_for_each(|path| std::os::unix::fs::chown(path, Some(NOBODY), None))?;
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY))?;
        }
        work();
        Ok(())
    };
    std::thread::scope(|threads| {
        threads.spawn(as_nobody).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
