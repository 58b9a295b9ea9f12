//! `gantry config` shows and changes the configuration. Secrets are masked in all output.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{Empty, method};
use gantry_store::GatewayLock;
use serde_json::{Value, json};

use crate::client::{Client, Target};
use crate::config;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: Option<ConfigAction>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    gantry config show\n  \
    gantry config set maxToolResultChars 40000\n  \
    gantry config set agents.reader.tools '[\"read\", \"local__Grep\"]'\n  \
    gantry config get agents.reader\n  \
    gantry config unset agents.reader")]
pub(crate) enum ConfigAction {
    /// Show the effective configuration, with secrets masked (default)
    Show,
    /// Show one key, such as shell.sandbox
    Get {
        /// Key, with dots between levels, such as shell.sandbox
        key: String,
    },
    /// Set one key in the file; comments are kept
    Set {
        /// Key, with dots between levels, such as shell.sandbox
        key: String,
        /// New value, as JSON or plain text
        value: String,
    },
    /// Remove one key from the file, so that its default applies
    Unset {
        /// Key, with dots between levels, such as shell.sandbox
        key: String,
    },
    /// Let the running gateway apply the file now, and report what is wrong with it
    Reload,
    /// Print the path of the configuration file
    Path,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: ConfigArgs) -> Result<Exit> {
    match args.action.unwrap_or(ConfigAction::Show) {
        ConfigAction::Show => output.value(&environment.layers.load()?.masked()?),
        ConfigAction::Get { key } => match config::get(&environment.layers.load()?.masked()?, &key)? {
            Value::String(text) if !output.json => output.page(text),
            value => output.value(value),
        },
        ConfigAction::Set { key, value } => {
            environment.data.create()?;
            environment.layers.write(&key, &value)?;
            changed(
                environment,
                output,
                &key,
                &format!("Set {key} in {}.", environment.layers.file.display()),
            );
        }
        ConfigAction::Unset { key } => {
            if !environment.layers.remove(&key)? {
                let file = environment.layers.file.display();
                return Err(UsageError(format!("{key} is not set in {file}")).into());
            }
            changed(environment, output, &key, &format!("Removed {key}; its default applies."));
        }
        ConfigAction::Reload => {
            apply(environment, output)?;
            output.done("The gateway has applied the configuration.");
        }
        ConfigAction::Path if output.json => output.value(&json!(environment.layers.file)),
        ConfigAction::Path => output.line(&environment.layers.file.display().to_string()),
    }
    Ok(Exit::Success)
}

/// Lets the running gateway apply a change, and reports whether it has to be restarted instead.
fn changed(environment: &Environment, output: &Output, key: &str, done: &str) {
    if GatewayLock::running(&environment.data).is_none() {
        return output.done(done);
    }
    if config::needs_restart(key) {
        return output.done(&format!("{done} Restart the gateway to apply this change."));
    }
    match apply(environment, output) {
        Ok(()) => output.done(&format!("{done} The gateway has applied it.")),
        // The file is valid: it was checked before it was written. The gateway sees the change by itself.
        Err(err) => {
            output.done(done);
            output.warning(&format!("the running gateway did not apply the change: {err:#}"));
        }
    }
}

/// Lets the running gateway apply the configuration file now.
pub(crate) fn apply(environment: &Environment, output: &Output) -> Result<()> {
    let address = Target::gateway(environment, output)?;
    let _: Empty = Client::once(&address, output, method::CONFIG_RELOAD, &Empty {})?;
    Ok(())
}
