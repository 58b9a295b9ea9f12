//! Reads the environment: variables, home, data directory. Only `NO_COLOR` is read elsewhere.
#![expect(clippy::disallowed_methods, reason = "the binary reads the environment and passes values in")]

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcetera::{BaseStrategy, choose_base_strategy};
use gantry_files::{Files, FilesOptions};
use gantry_net::{GatewayUrl, KeyPin, KnownKeys, Trust};
use gantry_node::{JoinedNode, NodeHome};
use gantry_store::{DataDir, Secrets};

use crate::cli::Global;
use crate::config::Layers;
use crate::exit::UsageError;
use crate::live_secrets::LiveSecrets;

#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) data: DataDir,
    pub(crate) layers: Layers,
    pub(crate) current_dir: PathBuf,
    /// The variables of this process. Commands get a selection of them.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// The gateway given by flag or variable.
    pub(crate) gateway: Option<String>,
    /// Whether the data directory was given by flag or variable.
    pub(crate) data_dir_is_given: bool,
    /// Secrets of a configuration that changed while this process runs.
    pub(crate) live_secrets: LiveSecrets,
}

impl Environment {
    pub(crate) fn find(global: &Global) -> Result<Environment> {
        let current_dir = std::env::current_dir().context("cannot find the current directory")?;
        // Paths are resolved, because closed paths are compared with opened ones, which have no links or `..`.
        let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
        let scope = files.free(&current_dir)?;
        let absolute = |path: &Path| scope.resolve(path).unwrap_or_else(|_| current_dir.join(path));
        let root = match &global.data_dir {
            Some(dir) => absolute(dir),
            None => choose_base_strategy()
                .context("cannot find the home directory; set HOME or use --data-dir")?
                .data_dir()
                .join("gantry"),
        };
        let data = DataDir::new(root);
        let layers = Layers {
            file: global.config.as_deref().map_or_else(|| data.config_file(), absolute),
            is_named: global.config.is_some(),
            variables: configuration_variables(),
            overrides: global.overrides.clone(),
        };
        let (variables, gateway) = (std::env::vars_os().collect(), global.gateway.clone());
        Ok(Environment {
            data,
            layers,
            current_dir,
            variables,
            gateway,
            data_dir_is_given: global.data_dir.is_some(),
            live_secrets: LiveSecrets::default(),
        })
    }

    /// Returns the paths that are closed to every tool: the data directory, the configuration, and the default data
    /// directory of this user.
    pub(crate) fn closed(&self) -> Vec<PathBuf> {
        let mut closed = vec![self.data.root().to_owned(), self.layers.file.clone()];
        let usual = choose_base_strategy().ok().map(|base| self.resolve(&base.data_dir().join("gantry")));
        closed.extend(usual.filter(|usual| usual != self.data.root()));
        closed
    }

    /// Resolves a configured path: expands `~` and follows links.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        let expanded = self.expand_home(path);
        let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None });
        let scope = files.and_then(|files| files.free(&self.current_dir));
        scope.and_then(|scope| scope.resolve(&expanded)).unwrap_or(expanded)
    }

    /// Expands a leading `~`, as a shell does.
    pub(crate) fn expand_home(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.variable("HOME")) {
            (Ok(rest), Some(home)) => Path::new(home).join(rest),
            _ => path.to_owned(),
        }
    }

    /// Returns whether the locale uses UTF-8.
    pub(crate) fn shows_unicode(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| self.variable(name));
        let locale =
            locale.map(|value| value.to_string_lossy().to_lowercase()).find(|value| !value.is_empty());
        locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"))
    }

    /// Returns whether people see all output on a terminal that can move its cursor.
    pub(crate) fn terminal_moves_cursor(&self) -> bool {
        let is_simple = self.variable("TERM").is_some_and(|term| term == "dumb");
        let streams = [
            std::io::stdin().is_terminal(),
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        ];
        !is_simple && streams == [true; 3]
    }

    /// Returns the gateway token from `GANTRY_TOKEN` or the file in `GANTRY_TOKEN_FILE`. It is never an argument, because
    /// every user of the machine can see arguments.
    pub(crate) fn token(&self) -> Result<Option<String>> {
        if let Some(token) = self.variable("GANTRY_TOKEN").and_then(|token| token.to_str()) {
            return Ok(Some(token.trim().to_owned()));
        }
        let file = self.variable("GANTRY_TOKEN_FILE").map(Path::new);
        file.map(|file| self.read_token(file)).transpose()
    }

    pub(crate) fn read_token(&self, file: &Path) -> Result<String> {
        let text = std::fs::read_to_string(self.current_dir.join(file))
            .map_err(|err| UsageError(format!("cannot read the token file {}: {err}", file.display())))?;
        Ok(text.trim().to_owned())
    }

    /// Returns the trusted certificate authorities: the system's, and the PEM file in `GANTRY_TLS_CA`.
    pub(crate) fn trust(&self) -> Result<Trust> {
        match self.tls_ca() {
            None => Ok(Trust::System),
            Some(name) => Ok(Trust::And { name: name.to_owned(), pem: self.read_own(name)? }),
        }
    }

    /// Returns what a connection to a gateway trusts: the key in `GANTRY_GATEWAY_KEY`, the key that a node on this data
    /// directory knows of the gateway, or the certificate authorities.
    pub(crate) fn gateway_trust(&self, url: &GatewayUrl) -> Result<Trust> {
        if let Some(key) = self.gateway_key()? {
            return Ok(Trust::Keys { known: KnownKeys::new([key]), or: None });
        }
        let authorities = self.trust()?;
        let joined = NodeHome::all(self.data.root()).into_iter();
        let mut joined = joined.filter_map(|home| JoinedNode::read(&home).ok().flatten());
        let known = joined.find_map(|node| {
            let places = node.places(&node.known_keys(), &authorities);
            places.into_iter().find(|place| place.url == *url).map(|place| place.trust)
        });
        Ok(known.unwrap_or(authorities))
    }

    /// Returns the gateway's key in `GANTRY_GATEWAY_KEY`.
    pub(crate) fn gateway_key(&self) -> Result<Option<KeyPin>> {
        let Some(text) = self.variable("GANTRY_GATEWAY_KEY").and_then(|text| text.to_str()) else {
            return Ok(None);
        };
        if text.trim().is_empty() {
            return Ok(None);
        }
        let message =
            "GANTRY_GATEWAY_KEY must be a key such as sha256//BASE64, as `gantry nodes add` prints it";
        Ok(Some(KeyPin::parse(text).ok_or_else(|| UsageError(message.into()))?))
    }

    pub(crate) fn tls_ca(&self) -> Option<&Path> {
        self.variable("GANTRY_TLS_CA").map(Path::new).filter(|name| !name.as_os_str().is_empty())
    }

    /// Opens the stored secrets with the key in `GANTRY_MASTER_KEY`, or in the data directory.
    pub(crate) fn secrets(&self) -> Secrets {
        let master_key =
            self.variable("GANTRY_MASTER_KEY").map(|key| key.to_string_lossy().trim().to_owned());
        Secrets::new(&self.data, master_key.filter(|key| !key.is_empty()))
    }

    /// Reads a file that the operator named.
    pub(crate) fn read_own(&self, file: &Path) -> Result<Vec<u8>> {
        std::fs::read(self.current_dir.join(file))
            .map_err(|err| UsageError(format!("cannot read {}: {err}", file.display())).into())
    }

    /// Identifies a version of the configuration file by size and time.
    pub(crate) fn configuration_version(&self) -> Option<(u64, std::time::SystemTime)> {
        let meta = std::fs::metadata(&self.layers.file).ok()?;
        Some((meta.len(), meta.modified().ok()?))
    }

    /// Warns if another user can change the configuration and so decide what is allowed. It is not an error, because the
    /// operator may share the file on purpose.
    pub(crate) fn configuration_of_others(&self) -> Option<String> {
        let found = std::fs::metadata(&self.layers.file).ok().filter(std::fs::Metadata::is_file)?;
        let (file, own) = (self.layers.file.display(), rustix::process::geteuid().as_raw());
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        if owner != own && owner != 0 {
            return Some(format!(
                "the configuration {file} belongs to user {owner}, who can change it: look at what it says, then \
                 `chown {own}` it"
            ));
        }
        (mode & 0o022 != 0).then(|| {
            format!(
                "the configuration {file} can be changed by others (mode {mode:04o}): look at what it says, then \
                 `chmod go-w` it"
            )
        })
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

/// Returns the path of this program, which is also the keeper of every command.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the path of the gantry program")
}

/// Describes files of the data directory whose modes were too open, if any.
pub(crate) fn restored_modes(restored: &[(PathBuf, u32)]) -> Option<String> {
    let named: Vec<_> =
        restored.iter().map(|(path, mode)| format!("{} (it was {mode:04o})", path.display())).collect();
    (!named.is_empty()).then(|| {
        format!(
            "other users had access to {}; the modes are fixed now, but the files may have been read or changed",
            named.join(", ")
        )
    })
}
