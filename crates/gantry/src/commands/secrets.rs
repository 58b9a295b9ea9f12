//! `gantry secrets` manages values that tools can send but never show. They are encrypted in this data directory.

use std::io::{IsTerminal, Read};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_net::HostPattern;
use gantry_store::{MAX_SECRET_BYTES, SecretsError};
use gantry_tool::nearest;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

pub(super) mod hidden_input;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry secrets set GITHUB --host api.github.com          prompts for the value, without echo\n  \
    pass show stripe | gantry secrets set STRIPE --host api.stripe.com --host files.stripe.com\n  \
    gantry secrets set LAB --host '*.lab.example.com' < key.txt\n  \
    gantry secrets                                           list names, hosts and dates\n  \
    gantry secrets rm GITHUB\n\n\
    Tools refer to a secret as secret:NAME. It is sent only to its hosts, over https.\n\
    Values are encrypted with secrets.key in the data directory (mode 0600), or with GANTRY_MASTER_KEY if that is set.")]
pub(crate) struct SecretsArgs {
    #[command(subcommand)]
    action: Option<SecretsAction>,
}

#[derive(Debug, Subcommand)]
enum SecretsAction {
    /// Store a secret; its value is read from standard input
    Set {
        /// Secret's name: letters, digits, - and _
        name: String,
        /// Host it may be sent to: a name, an address, or *.domain; may be repeated
        #[arg(long = "host", value_name = "HOST", required = true)]
        hosts: Vec<String>,
    },
    /// List names, hosts and dates, never values
    List,
    /// Remove a secret
    Rm {
        /// The secret's name, as `gantry secrets` lists it
        name: String,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: SecretsArgs) -> Result<Exit> {
    if environment.gateway.is_some() {
        let message =
            "secrets are stored on the gateway's machine; run this command there, without --gateway";
        return Err(UsageError(message.into()).into());
    }
    match args.action.unwrap_or(SecretsAction::List) {
        SecretsAction::Set { name, hosts } => set(environment, output, &name, &hosts),
        SecretsAction::List => list(environment, output),
        SecretsAction::Rm { name } => remove(environment, output, &name),
    }
}

fn set(environment: &Environment, output: &Output, name: &str, hosts: &[String]) -> Result<Exit> {
    let hosts = checked_hosts(hosts)?;
    let value = value(name)?;
    let now = jiff::Timestamp::now().as_millisecond();
    let replaced = environment.secrets().set(name, &value, &hosts, now).map_err(classify)?;
    let done = if replaced { "Replaced" } else { "Stored" };
    output.done(&format!("{done} {name} for {}.", hosts.join(", ")));
    Ok(Exit::Success)
}

/// Checks the hosts of a secret, and writes them in one form.
pub(crate) fn checked_hosts(hosts: &[String]) -> Result<Vec<String>, UsageError> {
    let patterns: Result<Vec<HostPattern>, _> = hosts.iter().map(|host| HostPattern::parse(host)).collect();
    let patterns = patterns.map_err(|err| UsageError(err.to_string()))?;
    let hosts: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    let too_wide = |host: &&String| host.strip_prefix("*.").is_some_and(|domain| !domain.contains('.'));
    match hosts.iter().find(too_wide) {
        Some(host) => {
            let message = format!("the host {host} is too broad; include the domain, such as *.example.com");
            Err(UsageError(message))
        }
        None => Ok(hosts),
    }
}

/// Reads one line typed without echo, or all of standard input without its final line break.
fn value(name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    if std::io::stdin().is_terminal() {
        bytes = hidden_input::read_line(&format!("value of {name}: "))?;
    } else {
        let most = MAX_SECRET_BYTES as u64 + 3;
        std::io::stdin().take(most).read_to_end(&mut bytes).context("cannot read standard input")?;
    }
    let text = String::from_utf8(bytes).map_err(|_| UsageError("the value is not UTF-8 text".into()))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn list(environment: &Environment, output: &Output) -> Result<Exit> {
    let secrets = environment.secrets().all()?;
    let time = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    if output.json {
        let row = |(name, secret): (&String, &gantry_store::Secret)| {
            let dates = (time(secret.created).to_string(), time(secret.changed).to_string());
            json!({"name": name, "hosts": secret.hosts, "created": dates.0, "changed": dates.1})
        };
        output.value(&secrets.iter().map(row).collect::<Value>());
        return Ok(Exit::Success);
    }
    for (name, secret) in secrets.iter() {
        let mut facts = vec![secret.hosts.join(", "), format!("stored {:.0}", time(secret.created))];
        facts.extend(
            (secret.changed != secret.created).then(|| format!("changed {:.0}", time(secret.changed))),
        );
        output.line(&format!("{}  {}", output.bold(name), facts.join(" · ")));
    }
    if secrets.is_empty() {
        output.note_on_terminal("There are no secrets. `gantry secrets set NAME --host HOST` stores one.");
    }
    Ok(Exit::Success)
}

fn remove(environment: &Environment, output: &Output, name: &str) -> Result<Exit> {
    let secrets = environment.secrets();
    if secrets.remove(name)? {
        output.done(&format!("Removed {name}."));
        return Ok(Exit::Success);
    }
    let known = secrets.all()?;
    let near = nearest(name, known.keys().map(String::as_str));
    let hint = match near.first() {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "`gantry secrets` lists the stored secrets".to_owned(),
    };
    Err(UsageError(format!("unknown secret \"{name}\"")).with_hint(hint).into())
}

/// Converts errors that the user can fix to usage errors.
fn classify(err: SecretsError) -> anyhow::Error {
    match err {
        SecretsError::BadName(_) | SecretsError::BadValue { .. } | SecretsError::NoHosts { .. } => {
            UsageError(err.to_string()).into()
        }
        other => other.into(),
    }
}
