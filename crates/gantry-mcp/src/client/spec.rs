//! What a server is, as the operator has configured it, and what it is started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_net::{ClientOptions, HeaderName, Url};
use gantry_process::{Capture, Command, Cwd, Network, Processes, Sandbox, Stdin, env, existing};
use gantry_store::{Secrets, ServerRecords};

/// One configured server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// `[a-z0-9][a-z0-9-]{0,31}`, in one namespace with the nodes.
    pub name: String,
    pub place: Place,
    /// Only these of its tools, if it is not all.
    pub tools: Option<Vec<String>>,
    /// For one call.
    pub timeout: Duration,
    /// Stopped after this long without one.
    pub idle: Duration,
    /// Believe what it says of its tools: that they only read, or reach nothing.
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
    /// Kept out of what is Gantry's own.
    pub confined: bool,
}

/// A variable for a program, by name only: values do not stand in the configuration.
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
    /// With `secret:NAME` where a secret belongs.
    pub headers: Vec<(HeaderName, String)>,
}

/// What all servers share.
#[derive(Clone)]
pub struct Surroundings {
    pub processes: Processes,
    /// Of this process, for programs to be given parts of.
    pub variables: Vec<(OsString, OsString)>,
    /// Gantry's own; closed to programs that are confined.
    pub closed: Vec<PathBuf>,
    pub secrets: Secrets,
    pub records: ServerRecords,
    /// The operator's own, such as a proxy.
    pub network: ClientOptions,
    pub version: &'static str,
}

impl Surroundings {
    /// What confined programs cannot do, in words. Nothing, where there is nothing that is closed to them.
    pub(super) fn confinement(&self) -> Option<String> {
        let all = existing(&self.closed);
        // What lies in another that is closed goes without saying.
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
                "it is confined: it can reach all files but {closed}, and can neither list nor make anything directly in {above}"
            )
        })
    }

    /// The program with exactly what it is given, or why it cannot be.
    pub(super) fn command(&self, spec: &ProgramSpec) -> Result<Command, String> {
        let mut variables = env::guarded(self.variables.iter().cloned());
        for variable in &spec.env {
            let (name, value) = match variable {
                Variable::Inherited(name) => {
                    let value = self.variables.iter().find(|(known, _)| known == name.as_str());
                    let value = value.ok_or_else(|| format!("the variable {name} is not set here"))?;
                    (name, value.1.clone())
                }
                Variable::Secret { name, secret } => {
                    let stored = self.secrets.all().map_err(|err| err.to_string())?;
                    let value = stored.get(secret).ok_or_else(|| {
                        format!(
                            "there is no secret {secret}; `gantry secrets set {secret} --host HOST` stores it"
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
