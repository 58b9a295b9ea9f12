//! `gantry config`: show, get, set, unset, path. Secrets are masked wherever they are shown.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_store::GatewayLock;
use serde_json::{Value, json};

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
    /// The whole configuration in force, secrets masked (the default)
    Show,
    /// One key, such as shell.sandbox
    Get {
        /// The key, with dots between levels: shell.sandbox
        key: String,
    },
    /// Change one key of the file; comments stay
    Set {
        /// The key, with dots between levels: shell.sandbox
        key: String,
        /// What it shall be: JSON, or else text
        value: String,
    },
    /// Take one key out of the file, so that its default applies
    Unset {
        /// The key, with dots between levels: shell.sandbox
        key: String,
    },
    /// Where the configuration file is
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
                &format!("{key} is set in {}", environment.layers.file.display()),
            );
        }
        ConfigAction::Unset { key } => {
            if !environment.layers.remove(&key)? {
                let file = environment.layers.file.display();
                return Err(UsageError(format!("{key} is not set in {file}")).into());
            }
            changed(environment, output, &key, &format!("{key} is unset; its default applies"));
        }
        ConfigAction::Path if output.json => output.value(&json!(environment.layers.file)),
        ConfigAction::Path => output.line(&environment.layers.file.display().to_string()),
    }
    Ok(Exit::Success)
}

/// Says what was done, and whether it counts yet.
fn changed(environment: &Environment, output: &Output, key: &str, done: &str) {
    let waits = GatewayLock::running(&environment.data).is_some() && config::needs_restart(key);
    output.done(&match waits {
        true => format!("{done}. Restart the gateway to apply this change."),
        false => done.to_owned(),
    });
}
