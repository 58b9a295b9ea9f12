//! Test helpers: an engine in a scratch directory, a shell, and functions on the process table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gantry_process::{Command, Cwd, Processes, ProcessesOptions};
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) processes: Processes,
    pub(crate) directory: TempDir,
}

/// Names a copy of the keeper that other users may execute.
pub(crate) const KEEPER_COPY: &str = "GANTRY_TEST_KEEPER";

pub(crate) fn keeper() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_gantry-keeper");
    std::env::var_os(KEEPER_COPY).map_or_else(|| PathBuf::from(built), PathBuf::from)
}

pub(crate) fn bench() -> Bench {
    bench_with(|_| {})
}

pub(crate) fn bench_with(change: impl FnOnce(&mut ProcessesOptions)) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let mut options = ProcessesOptions::new(keeper(), directory.path().join("logs"));
    change(&mut options);
    Bench { processes: Processes::new(options), directory }
}

/// Creates an engine whose detached sessions outlive it, and which adopts those of the previous
/// engine.
pub(crate) async fn recover(log_dir: &Path) -> Processes {
    recover_with(log_dir, |_| {}).await
}

pub(crate) async fn recover_with(log_dir: &Path, change: impl FnOnce(&mut ProcessesOptions)) -> Processes {
    let mut options = ProcessesOptions::new(keeper(), log_dir.to_owned());
    change(&mut options);
    Processes::recover(options).await.unwrap()
}

impl Bench {
    pub(crate) fn shell(&self, script: &str) -> Command {
        self.command("/bin/bash", &["-c", script])
    }

    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program, Cwd::Path(self.directory.path().to_owned()));
        command.args = args.iter().map(OsString::from).collect();
        command.env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        command
    }
}

/// Returns a word that no other process has in its arguments.
pub(crate) fn marker() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("gantry-marker-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Lists processes whose arguments contain the marker. Zombies count while they show arguments.
pub(crate) fn survivors(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path().join("cmdline");
        if let Ok(arguments) = std::fs::read(&path) {
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            if arguments.contains(marker) {
                found.push(format!("{}: {arguments}", entry.file_name().display()));
            }
        }
    }
    found
}

/// Lists children of this process that ended and were not reaped.
pub(crate) fn zombies() -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) {
            let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
            if fields.first() == Some(&"Z") && fields.get(1) == Some(&own.as_str()) {
                found.push(stat);
            }
        }
    }
    found
}

pub(crate) fn assert_clean(marker: &str) {
    assert_eq!(survivors(marker), Vec::<String>::new());
    assert_eq!(zombies(), Vec::<String>::new());
}

/// Reports whether a process runs whose first argument is the marker.
pub(crate) fn running(marker: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|arguments| arguments.starts_with(marker.as_bytes()))
    })
}
