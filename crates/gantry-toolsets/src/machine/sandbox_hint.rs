//! Hints about failures that the sandbox of an isolated command caused, as far as that can be known.

use std::path::{Path, PathBuf};

use gantry_process::{Finished, Sandbox};
use gantry_tool::{Autonomy, Call};

use super::Confinement;

/// How much of the end of the output is looked at.
const LOOKED_AT_BYTES: usize = 16 * 1024;

/// Messages of programs that found no network. An isolated command has no route and no name server, so they are always
/// the sandbox's doing.
const NO_NETWORK: [&str; 4] = [
    "Network is unreachable",
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
];

/// Messages of programs that could not write.
const NO_WRITING: [&str; 2] = ["Permission denied", "Read-only file system"];

impl Confinement {
    /// Adds a hint to the call's warnings if the command failed because it was isolated.
    pub(crate) fn explain_failure(&self, call: &Call, finished: &Finished) {
        let Sandbox::Isolated { write, .. } = &self.sandbox else { return };
        if finished.ended.exit.code == Some(0) || finished.ended.cancelled {
            return;
        }
        let Some(cause) = cause(write, end_of(&finished.stdout.text), gantry_process::could_write) else {
            return;
        };
        call.findings.warn_once(&match call.autonomy {
            Autonomy::Autonomous => cause,
            Autonomy::Guided | Autonomy::Supervised => {
                format!("{cause}; if the command needs this, call again with `escalate` and a reason")
            }
        });
    }
}

fn end_of(output: &str) -> &str {
    let mut start = output.len().saturating_sub(LOOKED_AT_BYTES);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    &output[start..]
}

/// Returns what the sandbox prevented. `could_write` reports whether the user could write a path without the sandbox.
fn cause(writable: &[PathBuf], output: &str, could_write: impl Fn(&Path) -> bool) -> Option<String> {
    if output.lines().any(|line| NO_NETWORK.iter().any(|text| line.contains(text))) {
        let text = "the sandbox has no direct network, only the proxy in HTTP_PROXY and HTTPS_PROXY";
        return Some(text.to_owned());
    }
    let refused = output.lines().filter(|line| NO_WRITING.iter().any(|text| line.contains(text)));
    let mut paths = refused.filter_map(absolute_path);
    let is_outside = |path: &&Path| !writable.iter().any(|root| path.starts_with(root)) && could_write(path);
    let path = paths.by_ref().find(is_outside)?;
    Some(format!("the sandbox does not let commands write {}", path.display()))
}

/// Returns the first absolute path of a line.
fn absolute_path(line: &str) -> Option<&Path> {
    let quotes = ['\'', '"', '`', ':', ',', '(', ')', '[', ']', '‘', '’'];
    let mut words = line.split_whitespace().map(|word| word.trim_matches(quotes));
    words.find(|word| word.starts_with('/') && word.len() > 1).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(output: &str) -> Option<String> {
        let roots = [PathBuf::from("/home/u/work")];
        cause(&roots, output, |path| !path.starts_with("/nope"))
    }

    #[test]
    fn only_failures_of_the_sandbox_are_explained() {
        for (output, part) in [
            ("curl: (6) Could not resolve host: x.example", "no direct network"),
            ("connect: Network is unreachable", "no direct network"),
            ("touch: cannot touch '/opt/x': Permission denied", "write /opt/x"),
            ("bash: /opt/x: Read-only file system", "write /opt/x"),
            ("ok\nmkdir: cannot create directory ‘/opt/y’: Permission denied\nmore", "write /opt/y"),
        ] {
            assert!(found(output).is_some_and(|hint| hint.contains(part)), "{output}: {:?}", found(output));
        }
        for output in [
            "",
            "make: *** Error 1",
            "Permission denied",
            "git@x: Permission denied (publickey)",
            "touch: cannot touch '/nope/x': Permission denied",
            "touch: cannot touch '/home/u/work/x': Permission denied",
            "cat /opt/x\nNo such file",
        ] {
            assert_eq!(found(output), None, "{output}");
        }
    }

    #[test]
    fn only_the_end_of_the_output_is_looked_at() {
        let long = format!("Network is unreachable\n{}", "ä".repeat(LOOKED_AT_BYTES));
        assert_eq!(found(end_of(&long)), None);
    }
}
