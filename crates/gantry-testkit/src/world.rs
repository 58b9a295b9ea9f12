//! The real program in a home folder of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Returns the `gantry` program that Cargo built next to this test executable.
///
/// Cargo builds it for the tests of the `gantry` package alone.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("gantry");
        assert!(program.is_file(), "{} is missing: run `cargo build -p gantry`", program.display());
        program
    })
}

/// `World` is one machine of a user: a home folder with a workspace and a data directory.
///
/// Commands run in the workspace, with a small environment of their own.
pub struct World {
    pub folder: tempfile::TempDir,
}

/// `Ran` is the outcome of one command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|err| panic!("{err} in {:?} {:?}", self.stdout, self.stderr))
    }
}

impl Default for World {
    fn default() -> Self {
        World::new()
    }
}

impl World {
    pub fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        World { folder }
    }

    pub fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("workspace")
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("data")
    }

    /// Writes `gantry.toml`.
    pub fn configure(&self, text: &str) {
        std::fs::create_dir_all(self.data()).unwrap();
        std::fs::write(self.data().join("gantry.toml"), text).unwrap();
    }

    /// Writes a file below the workspace.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.workspace().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(args)
            .current_dir(self.workspace())
            .env_clear()
            .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("SHELL", "/bin/sh"), ("LANG", "C.UTF-8")])
            .env("HOME", self.folder.path())
            .env("GANTRY_DATA_DIR", self.data());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    pub fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        ran(self.command(args).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap())
    }

    pub fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        ran(child.wait_with_output().unwrap())
    }
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
