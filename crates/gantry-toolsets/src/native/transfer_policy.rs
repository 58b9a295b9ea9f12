//! What policy is asked about a transfer: a `Read` at its source and a `Write` at its destination, of the path that was named
//! and of each file below it.

use std::path::Path;

use gantry_tool::{Access, Call, Crossing, Implied, Policy, Refusal, Toolset, Touch};

use super::Endpoint;

/// Both ends of one transfer.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    pub source: &'a Endpoint,
    pub destination: &'a Endpoint,
}

impl Ends<'_> {
    /// The two calls that the transfer amounts to.
    pub fn implied(&self) -> [Implied; 2] {
        [implied(self.source, Access::Read), implied(self.destination, Access::Write)]
    }

    /// Judges what was named.
    pub fn check(&self, policy: &Policy, call: &Call) -> Result<(), Refusal> {
        refused_first(self.implied(), |implied| policy.refuses(call, implied))
    }

    /// Whether policy could say of a file what it does not say of the directory that it is in.
    pub fn are_told_apart(&self, policy: &Policy) -> bool {
        self.implied().iter().any(|implied| policy.tells_paths_apart(implied))
    }

    /// Judges one file of a directory.
    pub fn check_entry(&self, policy: &Policy, call: &Call, entry: &str) -> Result<(), Refusal> {
        let (source, destination) = (self.source.below(entry), self.destination.below(entry));
        let ends = Ends { source: &source, destination: &destination };
        refused_first(ends.implied(), |implied| policy.rules_refuse(call, implied))
            .map_err(|refusal| Refusal { message: format!("{entry}: {}", refusal.message), ..refusal })
    }
}

fn implied(end: &Endpoint, access: Access) -> Implied {
    match end {
        Endpoint::Node { node, path } => {
            // As written: what it leads to on another machine is for that machine to judge again.
            let touched = Path::new("/").join(path);
            let (tool, touch) = match access {
                Access::Read => ("Read", Touch::read(touched)),
                Access::Write => {
                    ("Write", Touch { outside: Crossing::may_leave(path), ..Touch::write(touched) })
                }
            };
            Implied::new(format!("{node}__{tool}"), Toolset::Node, access, path).touching(touch)
        }
        Endpoint::Workspace { path } => {
            let tool = match access {
                Access::Read => "gsv__ReadFile",
                Access::Write => "gsv__WriteFile",
            };
            Implied::new(tool, Toolset::Native, access, path)
        }
    }
}

fn refused_first(implied: [Implied; 2], refuse: impl Fn(&Implied) -> Option<Refusal>) -> Result<(), Refusal> {
    implied.iter().find_map(refuse).map_or(Ok(()), Err)
}
