//! `gantry doctor` checks this machine's setup and prints how to fix what is wrong.

use std::path::Path;

use anyhow::Result;
use gantry_domain::{Finding, FindingLevel};
use gantry_tool::ToolScope;
use gantry_toolsets::SearchProvider;
use serde_json::json;

use crate::agent_shells_summary::agent_shells_summary;
use crate::commands::policy::check::dead_rules;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::google;
use crate::local::{Local, processes, web};
use crate::output::Output;

mod database;
mod gateway;
mod models;
mod storage;

/// Free space on the data directory's disk below which the check warns (`LOW`) or fails (`NO`).
const LOW_DISK_MIB: u64 = 1024;
const NO_DISK_MIB: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    Warning,
    Bad,
}

struct Check {
    name: &'static str,
    health: Health,
    text: String,
}

pub(crate) fn run(environment: Environment, output: &Output) -> Result<Exit> {
    let mut checks = vec![configuration(&environment), data_directory(&environment), audit_log(&environment)];
    checks.extend(private_files(&environment));
    checks.push(database::look(&environment));
    checks.extend([sandbox(), isolation(&environment)]);
    checks.extend(storage::check(&environment));
    checks.extend([secrets(&environment), disk(&environment), keeper(&environment), shell(&environment)]);
    checks.extend(google(&environment));
    checks.extend(gateway::checks(&environment, output));
    checks.extend(models::checks(&environment, output));
    match Local::open(environment) {
        Ok(local) => {
            checks.push(web_search(&local));
            checks.extend(network_policies(&local));
            checks.extend(agents(&local));
            checks.extend(rules(&local));
        }
        Err(err) => checks.push(check("tools", Err(format!("{err:#}")))),
    }
    let bad = checks.iter().any(|check| check.health == Health::Bad);
    if output.json {
        let row = |check: &Check| {
            let health = format!("{:?}", check.health).to_lowercase();
            json!({"check": check.name, "health": health, "text": check.text})
        };
        output.value(&json!({"healthy": !bad, "checks": checks.iter().map(row).collect::<Vec<_>>()}));
    } else {
        for check in &checks {
            let mark = match check.health {
                Health::Good => output.green("ok  "),
                Health::Warning => output.yellow("warn"),
                Health::Bad => output.red("bad "),
            };
            let mut lines = check.text.lines();
            output.prose(&format!("{mark}  {:<14}  {}", check.name, lines.next().unwrap_or_default()), 22);
            // Further lines are indented, so that they do not look like checks.
            lines.for_each(|line| output.prose(&format!("{:22}{line}", ""), 22));
        }
    }
    Ok(if bad { Exit::Failure } else { Exit::Success })
}

fn check<E: std::fmt::Display>(name: &'static str, result: Result<String, E>) -> Check {
    match result {
        Ok(text) => Check { name, health: Health::Good, text },
        Err(err) => Check { name, health: Health::Bad, text: err.to_string() },
    }
}

fn configuration(environment: &Environment) -> Check {
    let file = environment.layers.file.display();
    let is_there = environment.configuration_version().is_some();
    let text = |_| match is_there {
        true => format!("{file} is valid"),
        false => "no gantry.toml; defaults apply".to_owned(),
    };
    check("configuration", environment.layers.load().map(text))
}

fn data_directory(environment: &Environment) -> Check {
    let root = environment.data.root().display();
    check(
        "data directory",
        environment.data.create().map(|()| format!("{root}, accessible only to its owner")),
    )
}

/// Warns of keys and tokens that other users can read, for example after the directory was copied.
fn private_files(environment: &Environment) -> Vec<Check> {
    let named = ["operator.token", "audit.key", "secrets.key", "secrets.sealed", "gateway.db"];
    let files = named
        .map(|name| environment.data.root().join(name))
        .into_iter()
        .chain([environment.layers.file.clone()]);
    let open = files.filter_map(|path| {
        let mode = rustix::fs::stat(&path).ok()?.st_mode & 0o777;
        let text = format!(
            "other users can access {} (mode {mode:04o}); run `chmod 600 {}`",
            path.display(),
            path.display()
        );
        (mode & 0o077 != 0).then_some(Check { name: "private files", health: Health::Warning, text })
    });
    open.collect()
}

/// Checks that stored secrets can be decrypted. Otherwise they can be neither sent nor masked.
fn secrets(environment: &Environment) -> Check {
    match environment.secrets().all() {
        Ok(known) => check("secrets", Ok::<_, String>(format!("{} stored", known.len()))),
        Err(err) => Check {
            name: "secrets",
            health: Health::Warning,
            text: format!("{err}; web tools are disabled until you fix or remove the file"),
        },
    }
}

/// Checks the credentials and accounts of Google, if there are any.
fn google(environment: &Environment) -> Vec<Check> {
    let accounts = environment.layers.load().map_err(anyhow::Error::from);
    let Ok(accounts) = accounts.and_then(|config| google::accounts(environment, &config)) else {
        // An invalid configuration has a check of its own.
        return Vec::new();
    };
    let shown = |finding: Finding| Check {
        name: "google",
        health: match finding.level {
            FindingLevel::Ok => Health::Good,
            FindingLevel::Warning => Health::Warning,
            FindingLevel::Error => Health::Bad,
        },
        text: finding.fix.map_or(finding.message.clone(), |fix| format!("{}; {fix}", finding.message)),
    };
    accounts.findings().into_iter().map(shown).collect()
}

fn disk(environment: &Environment) -> Check {
    match rustix::fs::statvfs(environment.data.root()) {
        Ok(found) => {
            let free = found.f_bavail * found.f_frsize / (1 << 20);
            let health = match free {
                NO_DISK_MIB.. if free >= LOW_DISK_MIB => Health::Good,
                NO_DISK_MIB.. => Health::Warning,
                _ => Health::Bad,
            };
            Check { name: "disk", health, text: format!("{free} MiB free on the data directory's disk") }
        }
        Err(err) => check("disk", Err(err)),
    }
}

fn audit_log(environment: &Environment) -> Check {
    let found = gantry_store::verify(&environment.data.audit_log());
    check(
        "audit log",
        match found {
            Ok(found) if found.is_intact() => Ok(format!("{} lines, intact", found.lines)),
            Ok(found) => {
                let problems = found.problems.len() as u64 + found.further_problems;
                Err(format!("{problems} problems; `gantry audit verify` lists them"))
            }
            Err(err) => Err(err.to_string()),
        },
    )
}

fn sandbox() -> Check {
    let support = gantry_process::sandbox_support();
    match support.reason {
        None => {
            let abi = support.landlock_abi.unwrap_or_default();
            Check { name: "sandbox", health: Health::Good, text: format!("Landlock ABI {abi} and seccomp") }
        }
        Some(reason) => Check {
            name: "sandbox",
            health: Health::Warning,
            text: format!(
                "{reason}; agents' commands and tool::shell_exec are denied unless shell.sandbox = \"off\""
            ),
        },
    }
}

/// Checks whether agents' shells can have their own mounts and network, and says what they can reach.
fn isolation(environment: &Environment) -> Check {
    let config = environment.layers.load().unwrap_or_default();
    let on = config.shell.settings().isolated;
    let works = works_isolated(environment);
    let reach = agent_shells_summary(&config, works.as_ref().err().map(String::as_str)).join("\n");
    let (health, text) = match (on, works) {
        (true, Ok(())) => (Health::Good, "agents' shells have their own mounts and network".to_owned()),
        (true, Err(reason)) => {
            (Health::Warning, format!("{reason}; agents' commands run in the older sandbox, without network"))
        }
        (false, Ok(())) => {
            (Health::Good, "off; `gantry config set shell.isolated true` turns it on".to_owned())
        }
        (false, Err(reason)) => (Health::Good, format!("off, and not possible on this system: {reason}")),
    };
    let caches = config.shell.settings().caches;
    let caches: Vec<String> = caches.iter().map(|path| path.display().to_string()).collect();
    let caches = if caches.is_empty() { "none".to_owned() } else { caches.join(", ") };
    let text = format!("{text}\n{reach}\nshell.caches: {caches}");
    Check { name: "isolation", health, text }
}

/// Whether this system can isolate commands, or why not.
fn works_isolated(environment: &Environment) -> Result<(), String> {
    let processes = processes(&environment.data).map_err(|err| format!("{err:#}"))?;
    processes.check_namespaces()
}

/// Runs a command through the process engine, as tools do.
fn keeper(environment: &Environment) -> Check {
    let run = || -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let cwd = gantry_process::Cwd::Path("/".into());
        let command = gantry_process::Command::new("/bin/sh", cwd).args(["-c", "echo ready"]);
        let started = std::time::Instant::now();
        let processes = processes(&environment.data)?;
        let finished =
            runtime.block_on(processes.run(command, tokio_util::sync::CancellationToken::new()))?;
        anyhow::ensure!(
            finished.stdout.text == "ready\n",
            "a test command printed {:?}",
            finished.stdout.text
        );
        Ok(format!("start in {:.1} ms", started.elapsed().as_secs_f64() * 1e3))
    };
    check("commands", run().map_err(|err| format!("{err:#}")))
}

fn shell(environment: &Environment) -> Check {
    match environment.variable("SHELL").map(|shell| shell.to_string_lossy().into_owned()) {
        Some(shell) if shell.starts_with('/') => check("shell", Ok::<_, String>(format!("{shell} -lc"))),
        _ => Check {
            name: "shell",
            health: Health::Warning,
            text: "SHELL is not set; the Bash tool uses /bin/sh".into(),
        },
    }
}

/// Checks a workspace of agents. Shells that are not isolated cannot use one that contains the data directory.
fn workspace(environment: &Environment, workspace: &Path, whose: &str) -> Check {
    let text = format!("{} ({whose})", workspace.display());
    let is_isolated = || {
        let config = environment.layers.load().unwrap_or_default();
        config.shell.settings().isolated && works_isolated(environment).is_ok()
    };
    if environment.data.root().starts_with(workspace) && !is_isolated() {
        let text = format!(
            "{text}; it contains the data directory, so agents' shells cannot list it or create files directly in it"
        );
        return Check { name: "workspace", health: Health::Warning, text };
    }
    Check { name: "workspace", health: Health::Good, text }
}

/// Reports the search providers in the order they are used.
fn web_search(local: &Local) -> Check {
    let search = match web(&local.environment, &local.config) {
        Ok(web) => web.search,
        Err(err) => return Check { name: "web search", health: Health::Bad, text: err.to_string() },
    };
    let names: Vec<&str> = search.usable().map(SearchProvider::name).collect();
    let (health, text) = match (search.is_configured(), names.as_slice()) {
        (true, names) => (Health::Good, format!("{}; web_research is available", names.join(", then "))),
        (false, []) => (Health::Warning, "no provider in web.search.order is configured".to_owned()),
        (false, names) => {
            let text = format!(
                "{} (needs no key); set TAVILY_API_KEY, BRAVE_API_KEY or web.search.searxngUrl for others and web_research",
                names.join(", ")
            );
            (Health::Good, text)
        }
    };
    Check { name: "web search", health, text }
}

/// Warns of invalid network policies, which deny everything.
fn network_policies(local: &Local) -> Vec<Check> {
    let warning = |text| Check { name: "network", health: Health::Warning, text };
    local.config.warnings().into_iter().map(warning).collect()
}

/// Warns of selectors that match no tool, which are likely typos.
fn agents(local: &Local) -> Vec<Check> {
    let tools = local.gate.registry().entries();
    let unmatched = |selector: &String| {
        let scope = ToolScope::new(Some(std::slice::from_ref(selector)), &[]);
        !tools.iter().any(|tool| scope.as_ref().is_ok_and(|scope| scope.allows(tool)))
    };
    let mut checks = Vec::new();
    let agents = local.config.agents.iter().map(|(id, agent)| (format!("agent {id}"), agent.selectors()));
    let roles = local.config.roles.iter().map(|(id, role)| (format!("role {id}"), role.selectors()));
    for (whose, selectors) in agents.chain(roles) {
        for selector in selectors.into_iter().filter(unmatched) {
            let text = format!("{whose}: \"{selector}\" matches no tool");
            checks.push(Check { name: "agents", health: Health::Warning, text });
        }
    }
    checks
}

/// Warns of policy rules that can never match, because they protect nothing.
fn rules(local: &Local) -> Vec<Check> {
    let check = |text| Check { name: "policy", health: Health::Warning, text };
    dead_rules(local).into_iter().map(check).collect()
}
