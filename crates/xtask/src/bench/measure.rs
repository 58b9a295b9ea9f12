//! Timing whole commands in turns, so that drift of the machine hits both sides alike.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// One side of a comparison: a command, and the untimed preparation before each run.
pub(super) struct Side {
    program: OsString,
    args: Vec<OsString>,
    cwd: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    before: Option<Box<dyn Fn() -> Result<()>>>,
    /// Takes every second run.
    other: Option<Box<Side>>,
    runs: usize,
}

impl Side {
    pub(super) fn new(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Side {
        Side {
            program: program.as_ref().to_owned(),
            args: args.iter().map(OsString::from).collect(),
            cwd: None,
            data_dir: None,
            before: None,
            other: None,
            runs: 0,
        }
    }

    pub(super) fn cwd(mut self, folder: &Path) -> Side {
        self.cwd = Some(folder.to_owned());
        self
    }

    pub(super) fn data_dir(mut self, folder: &Path) -> Side {
        self.data_dir = Some(folder.to_owned());
        self
    }

    pub(super) fn before(mut self, prepare: impl Fn() -> Result<()> + 'static) -> Side {
        self.before = Some(Box::new(prepare));
        self
    }

    pub(super) fn alternating(mut self, other: Side) -> Side {
        self.other = Some(Box::new(other));
        self
    }

    fn command(&mut self) -> Result<Command> {
        self.runs += 1;
        if self.runs.is_multiple_of(2)
            && let Some(other) = &mut self.other
        {
            return other.command();
        }
        if let Some(prepare) = &self.before {
            prepare()?;
        }
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(folder) = &self.cwd {
            command.current_dir(folder);
        }
        if let Some(folder) = &self.data_dir {
            command.env("GANTRY_DATA_DIR", folder);
        }
        Ok(command)
    }

    fn time(&mut self) -> Result<Duration> {
        let mut command = self.command()?;
        // Syncs the disk, so that one side does not wait for data that the other side wrote.
        Command::new("sync").status().context("cannot run sync")?;
        let started = Instant::now();
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let took = started.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed ({}): {errors}", output.status);
        Ok(took)
    }
}

/// The times of each side; one untimed turn warms the caches.
pub(super) fn turns(runs: usize, sides: &mut [Side]) -> Result<Vec<Vec<Duration>>> {
    let mut times = vec![Vec::new(); sides.len()];
    for turn in 0..=runs {
        for (side, times) in sides.iter_mut().zip(&mut times) {
            let took = side.time()?;
            if turn > 0 {
                times.push(took);
            }
        }
    }
    Ok(times)
}

pub(super) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(super) fn median_ms(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2].as_secs_f64() * 1e3
}

/// The highest resident memory seen while the command ran.
pub(super) fn peak_memory_mib(side: &mut Side) -> Result<f64> {
    let mut child = side.command()?.spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0.0_f64;
    while child.try_wait()?.is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0);
        peak_kib = peak_kib.max(kib);
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(peak_kib / 1024.0)
}
