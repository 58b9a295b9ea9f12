//! `[shell]`: the commands that tools run.

use std::path::PathBuf;

use gantry_domain::ConfigSection;
use gantry_tool::Violation;
use gantry_toolsets::{SandboxMode, ShellSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::misplaced;

/// Commands that tools run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct ShellConfig {
    /// `required` refuses a command that cannot be confined; `off` runs it unconfined.
    sandbox: SandboxConfig,
    /// Whether shells of Gantry's own agents get their own mounts and network (default: true). They then write the
    /// workspace, a private temporary directory and caches, and reach hosts only through the egress proxy.
    isolated: Option<bool>,
    /// Directories in which `tool::shell_exec` looks for programs, before the system's own.
    path: Vec<PathBuf>,
    /// Program names `tool::shell_exec` accepts in addition to the built-in list.
    allow: Vec<String>,
    /// Paths a confined command may read in addition to the system's, such as entries of the home directory.
    readable: Vec<PathBuf>,
    /// Paths a confined command may write in addition to the workspace, such as package caches.
    caches: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum SandboxConfig {
    #[default]
    Required,
    Off,
}

impl ShellConfig {
    pub(crate) fn settings(&self) -> ShellSettings {
        ShellSettings {
            sandbox: match self.sandbox {
                SandboxConfig::Required => SandboxMode::Required,
                SandboxConfig::Off => SandboxMode::Off,
            },
            isolated: self.isolated.unwrap_or(true),
            path: self.path.clone(),
            allow: self.allow.clone(),
            readable: self.readable.clone(),
            caches: self.caches.clone(),
        }
    }
}

impl ConfigSection for ShellConfig {
    fn needs_restart(&self) -> bool {
        false
    }

    fn violations(&self, at: &str) -> Vec<Violation> {
        let lists = [("path", &self.path), ("readable", &self.readable), ("caches", &self.caches)];
        lists.into_iter().flat_map(|(key, paths)| misplaced(&format!("{at}.{key}"), paths)).collect()
    }

    fn warnings(&self, at: &str) -> Vec<String> {
        let contradicts = self.isolated == Some(true) && matches!(self.sandbox, SandboxConfig::Off);
        let warning = || format!("{at}.isolated has no effect, because {at}.sandbox is \"off\"");
        contradicts.then(warning).into_iter().collect()
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.path, &mut self.readable, &mut self.caches].into_iter().flatten().collect()
    }
}
