//! `gantry config`: show, get, set, path. Secrets are masked wherever they are shown.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cli::{ConfigAction, ConfigArgs};
use crate::config;
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: &Places, output: &Output, args: ConfigArgs) -> Result<Exit> {
    match args.action {
        ConfigAction::Show => output.value(&places.layers.load()?.masked()?),
        ConfigAction::Get { key } => match config::get(&places.layers.load()?.masked()?, &key)? {
            Value::String(text) if !output.json => output.line(text),
            value => output.value(value),
        },
        ConfigAction::Set { key, value } => {
            places.data.create()?;
            places.layers.write(&key, &value)?;
            output.note(&format!("{key} is set in {}", places.layers.file.display()));
        }
        ConfigAction::Path if output.json => output.value(&json!(places.layers.file)),
        ConfigAction::Path => output.line(&places.layers.file.display().to_string()),
    }
    Ok(Exit::Success)
}
