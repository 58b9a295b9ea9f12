//! Where things are on this machine. The only reader of the environment besides the terminal's `NO_COLOR`.
#![expect(clippy::disallowed_methods, reason = "the binary reads the environment and passes values in")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcetera::{BaseStrategy, choose_base_strategy};
use gantry_files::{Files, FilesOptions};
use gantry_store::DataDir;

use crate::cli::Global;
use crate::config::Layers;

pub(crate) struct Places {
    pub(crate) data: DataDir,
    pub(crate) layers: Layers,
    pub(crate) current_dir: PathBuf,
    /// The environment of this process, for commands to be given parts of.
    pub(crate) variables: Vec<(OsString, OsString)>,
}

impl Places {
    pub(crate) fn find(global: &Global) -> Result<Places> {
        let current_dir = std::env::current_dir().context("cannot tell the current directory")?;
        // Real places: what is closed is compared with what was opened, and that has no links or `..` left.
        let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
        let scope = files.free(&current_dir)?;
        let absolute = |path: &Path| scope.resolve(path).unwrap_or_else(|_| current_dir.join(path));
        let root = match &global.data_dir {
            Some(dir) => absolute(dir),
            None => choose_base_strategy()
                .context("cannot tell the home directory; give --data-dir")?
                .data_dir()
                .join("gantry"),
        };
        let data = DataDir::new(root);
        let layers = Layers {
            file: global.config.as_deref().map_or_else(|| data.config_file(), absolute),
            variables: configuration_variables(),
            overrides: global.overrides.clone(),
        };
        Ok(Places { data, layers, current_dir, variables: std::env::vars_os().collect() })
    }

    /// Where a configured path leads: `~` is the home, links are followed.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        let expanded = match (path.strip_prefix("~"), self.variable("HOME")) {
            (Ok(rest), Some(home)) => Path::new(home).join(rest),
            _ => path.to_owned(),
        };
        let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None });
        let scope = files.and_then(|files| files.free(&self.current_dir));
        scope.and_then(|scope| scope.resolve(&expanded)).unwrap_or(expanded)
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

fn configuration_variables() -> Vec<(String, String)> {
    let ours = |(name, value): (OsString, OsString)| {
        Some((name.to_str()?.strip_prefix("GANTRY_")?.to_owned(), value.to_string_lossy().into_owned()))
    };
    std::env::vars_os().filter_map(ours).collect()
}

/// This very program: the keeper of every command is another run of it.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot tell where the gantry program is")
}
