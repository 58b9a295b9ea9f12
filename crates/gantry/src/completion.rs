//! Completion in the shell: the script runs `gantry` with `GANTRY_COMPLETE` set, and this module answers with names of tools,
//! machines, sessions and other things that the running gateway knows. Without a gateway there are none, and no error.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use gantry_protocol::method;
use serde_json::{Value, json};

use crate::cli::{Cli, Global};
use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::output::Output;

/// The variable with the name of the shell.
pub(crate) const VARIABLE: &str = "GANTRY_COMPLETE";
/// How long a person waits for the gateway after pressing Tab.
const PATIENCE: Duration = Duration::from_millis(250);
/// Names that are offered.
const OFFERED: usize = 200;

/// What an argument names, and how the gateway lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    method: &'static str,
    /// The field with the list.
    list: &'static str,
    /// The field with the name.
    name: &'static str,
    /// The field that describes it.
    about: &'static str,
}

const fn kind(method: &'static str, list: &'static str, name: &'static str, about: &'static str) -> Kind {
    Kind { method, list, name, about }
}

const TOOLS: Kind = kind(method::TOOLS_LIST, "tools", "name", "description");
const NODES: Kind = kind(method::NODES_LIST, "nodes", "id", "clientPlatform");
const SESSIONS: Kind = kind(method::SESSIONS_LIST, "sessions", "sessionKey", "label");
const AGENTS: Kind = kind(method::AGENTS_LIST, "agents", "id", "model");
const GRANTS: Kind = kind(method::GRANTS_LIST, "grants", "id", "label");
const JOBS: Kind = kind(method::CRON_LIST, "jobs", "id", "name");
const TASKS: Kind = kind(method::TASKS_LIST, "tasks", "id", "title");
const PIPELINES: Kind = kind(method::PIPELINES_LIST, "pipelines", "id", "source");
const PROCESSES: Kind = kind(method::PROCESSES_LIST, "processes", "id", "name");

/// Answers a request of the shell. Returns true if there was one.
pub(crate) fn answer() -> bool {
    let request = CompleteEnv::with_factory(command).var(VARIABLE).bin("gantry");
    // A request that cannot be answered offers nothing.
    request.try_complete(std::env::args_os(), None).unwrap_or(true)
}

/// The command line with names that the gateway knows.
fn command() -> Command {
    with_names(Cli::command(), "")
}

fn with_names(command: Command, top: &str) -> Command {
    let top = top.to_owned();
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match what(&top, &name, &arg) {
        Some(kind) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| candidates(kind, typed))),
        None => arg,
    });
    command.mut_subcommands(|child| {
        let top = if top.is_empty() { child.get_name().to_owned() } else { top.clone() };
        with_names(child, &top)
    })
}

/// Returns what an argument of a command names. `top` is the command's first word, `name` its last.
fn what(top: &str, name: &str, arg: &Arg) -> Option<Kind> {
    let id = arg.get_id().as_str();
    match (top, id) {
        (_, "agent") => Some(AGENTS),
        ("call" | "tools", "name") | ("audit", "tool") => Some(TOOLS),
        ("logs", "node") => Some(NODES),
        ("nodes", "id") if name != "add" => Some(NODES),
        ("sessions", "key") | ("chat" | "ports", "session") => Some(SESSIONS),
        ("grants", "id") => Some(GRANTS),
        ("cron", "id") if name != "add" => Some(JOBS),
        ("tasks", "id") if name != "add" => Some(TASKS),
        ("pipelines", "id") if matches!(name, "show" | "run" | "rm") => Some(PIPELINES),
        ("pipelines", "pipeline") => Some(PIPELINES),
        ("processes", "id") => Some(PROCESSES),
        _ => None,
    }
}

fn candidates(kind: Kind, typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let (sender, listed) = mpsc::channel();
    // The thread ends with the process if the gateway takes too long.
    std::thread::spawn(move || sender.send(listed_by_gateway(kind)));
    let Ok(Some(listed)) = listed.recv_timeout(PATIENCE) else { return Vec::new() };
    let rows = listed[kind.list].as_array().into_iter().flatten();
    let named = rows.filter_map(|row| Some((row[kind.name].as_str()?, row[kind.about].as_str())));
    named
        .filter(|(name, _)| name.starts_with(typed) && !name.chars().any(char::is_control))
        .take(OFFERED)
        .map(|(name, about)| {
            let about = about.and_then(|about| about.lines().next());
            let about =
                about.map(|about| about.chars().filter(|c| !c.is_control()).take(80).collect::<String>());
            CompletionCandidate::new(name).help(about.map(Into::into))
        })
        .collect()
}

/// Asks the gateway that the typed command would use. Every failure means that there is nothing to offer.
fn listed_by_gateway(kind: Kind) -> Option<Value> {
    let global = typed_globals();
    let environment = Environment::find(&global).ok()?;
    let output = Output::new(&global);
    let Target::Gateway(address) = Target::find(&environment, &output, false).ok()? else { return None };
    Client::once(&address, &output, kind.method, &json!({})).ok()
}

/// The global options of the command line that is being completed.
fn typed_globals() -> Global {
    #[derive(Parser)]
    #[command(ignore_errors = true, disable_help_flag = true)]
    struct Typed {
        #[command(flatten)]
        global: Global,
    }
    // Only the options that choose a gateway matter; others would be in the way of the parser.
    let mut words = std::env::args_os().skip_while(|word| word != "--").skip(2);
    let mut chosen = vec!["gantry".into()];
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if let Some("--data-dir" | "--config" | "--gateway") = text.split('=').next() {
            chosen.push(word);
            if !text.contains('=') {
                chosen.extend(words.next());
            }
        }
    }
    chosen.push("--quiet".into());
    match Typed::try_parse_from(chosen) {
        Ok(typed) => typed.global,
        Err(_) => Global {
            data_dir: None::<PathBuf>,
            config: None,
            gateway: None,
            overrides: Vec::new(),
            json: false,
            quiet: true,
            verbose: false,
            color: crate::cli::ColorChoice::Never,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists the arguments that complete names, as `command argument`.
    fn completed(command: &Command, path: &str, top: &str, found: &mut Vec<String>) {
        for arg in command.get_arguments().filter(|arg| what(top, command.get_name(), arg).is_some()) {
            found.push(format!("{path} {}", arg.get_id()));
        }
        for child in command.get_subcommands() {
            let top = if top.is_empty() { child.get_name() } else { top };
            completed(child, &format!("{path} {}", child.get_name()), top, found);
        }
    }

    #[test]
    fn names_of_the_gateway_are_offered_where_they_are_expected() {
        let mut found = Vec::new();
        completed(&Cli::command(), "gantry", "", &mut found);
        for expected in [
            "gantry call name",
            "gantry tools name",
            "gantry nodes show id",
            "gantry logs node",
            "gantry sessions show key",
            "gantry chat session",
            "gantry chat agent",
            "gantry grants revoke id",
            "gantry cron show id",
            "gantry tasks show id",
            "gantry pipelines run id",
            "gantry processes show id",
        ] {
            assert!(found.iter().any(|one| one == expected), "{expected} is not in {found:#?}");
        }
        assert!(!found.iter().any(|one| one == "gantry nodes add id"));
        // The changed command line is a valid one.
        command().debug_assert();
    }
}
