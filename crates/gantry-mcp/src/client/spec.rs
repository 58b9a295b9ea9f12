//! The configuration of a server, and the environment that servers run in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_net::{ClientOptions, HeaderName, Url};
use gantry_process::{Capture, Command, Cwd, Network, Processes, Sandbox, Stdin, env, existing};
use gantry_store::{Secrets, ServerRecords};

/// `ServerSpec` is one configured server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// `[a-z0-9][a-z0-9-]{0,31}`, in one namespace with the nodes.
    pub name: String,
    pub place: Place,
    /// The tools to use; all if `None`.
    pub tools: Option<Vec<String>>,
    /// Timeout of one call.
    pub timeout: Duration,
    /// The server is stopped after this time without a call.
    pub idle: Duration,
    /// Trust the server's annotations, such as that a tool is read-only.
    pub trust_annotations: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Program(ProgramSpec),
    Address(AddressSpec),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ProgramSpec {
    pub program: String,
    pub args: Vec<String>,
    pub env: Vec<Variable>,
    pub cwd: PathBuf,
    /// Whether the program is kept out of Gantry's own files.
    pub confined: bool,
}

/// A variable for a program. The configuration contains only its name, never its value.
#[derive(Debug, Clone, PartialEq)]
pub enum Variable {
    /// From Gantry's own environment.
    Inherited(String),
    Secret {
        name: String,
        secret: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddressSpec {
    pub url: Url,
    /// Headers, with `secret:NAME` for secrets.
    pub headers: Vec<(HeaderName, String)>,
}

/// `Surroundings` is what all servers share.
#[derive(Clone)]
pub struct Surroundings {
    pub processes: Processes,
    /// The variables of this process. Programs get a selection of them.
    pub variables: Vec<(OsString, OsString)>,
    /// Gantry's own paths, which confined programs cannot access.
    pub closed: Vec<PathBuf>,
    pub secrets: Secrets,
    pub records: ServerRecords,
    /// The operator's network settings, such as a proxy.
    pub network: ClientOptions,
    pub version: &'static str,
}

impl Surroundings {
    /// Describes what confined programs cannot do. Returns `None` if nothing is closed to them.
    pub(super) fn confinement(&self) -> Option<String> {
        let all = existing(&self.closed);
        // Paths inside other closed paths are not listed.
        let is_inner = |path: &Path| all.iter().any(|other| path != other && path.starts_with(other));
        let closed: Vec<&Path> = all.iter().map(PathBuf::as_path).filter(|path| !is_inner(path)).collect();
        let above = closed.iter().flat_map(|closed| closed.ancestors().skip(1));
        let mut above: Vec<&Path> = above.filter(|path| path.parent().is_some()).collect();
        above.sort_unstable();
        above.dedup();
        let named = |paths: &mut dyn Iterator<Item = &Path>| {
            paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        let closed = named(&mut closed.into_iter());
        let above = named(&mut above.into_iter());
        (!closed.is_empty()).then(|| {
            format!(
                "the program is confined: it cannot access {closed}, and cannot list or create entries directly in {above}"
            )
        })
    }

    /// Builds the command with its exact environment. The error says what is missing.
    pub(super) fn command(&self, spec: &ProgramSpec) -> Result<Command, String> {
        let mut variables = env::guarded(self.variables.iter().cloned());
        for variable in &spec.env {
            let (name, value) = match variable {
                Variable::Inherited(name) => {
                    let value = self.variables.iter().find(|(known, _)| known == name.as_str());
                    let value = value.ok_or_else(|| format!("the environment variable {name} is not set"))?;
                    (name, value.1.clone())
                }
                Variable::Secret { name, secret } => {
                    let stored = self.secrets.all().map_err(|err| err.to_string())?;
                    let value = stored.get(secret).ok_or_else(|| {
                        format!(
                            "unknown secret {secret}; store it with `gantry secrets set {secret} --host HOST`"
                        )
                    })?;
                    (name, value.expose().into())
                }
            };
            variables.retain(|(known, _)| known != name.as_str());
            variables.push((name.into(), value));
        }
        let sandbox = match spec.confined {
            true => Sandbox::Except {
                closed: existing(&self.closed),
                read_only: Vec::new(),
                network: Network::Allowed,
            },
            false => Sandbox::None,
        };
        let command = Command::new(&spec.program, Cwd::Path(spec.cwd.clone())).args(&spec.args);
        let capture = Capture::Separate { stdout: 0, stderr: 0 };
        Ok(Command { env: variables, stdin: Stdin::Pipe, capture, sandbox, ..command })
    }
}
