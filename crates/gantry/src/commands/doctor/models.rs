//! Whether agents have a model, and whether the running gateway has the configuration of the file.

use gantry_model::Models;
use gantry_protocol::method;
use serde_json::{Value, json};

use super::{Check, Health};
use crate::client::{Client, Target, runtime};
use crate::models::{NO_MODEL, describe, found};
use crate::output::Output;
use crate::places::Places;

pub(super) fn checks(places: &Places, output: &Output) -> Vec<Check> {
    let status = match Target::find(places, output, false) {
        Ok(Target::Gateway(address)) => {
            Client::once(&address, output, method::GATEWAY_STATUS, json!({})).unwrap_or_default()
        }
        _ => Value::Null,
    };
    let here = here(places);
    let mut checks = Vec::new();
    match (&status["models"], &here) {
        (Value::Null, Ok(here)) => checks.push(configured(here)),
        (Value::Null, Err(err)) => {
            checks.push(Check { name: "models", health: Health::Bad, text: err.clone() });
        }
        (gateways, here) => {
            checks.push(configured(gateways));
            let known = names(gateways);
            let here = here.as_ref().map(names).unwrap_or_default();
            let missing: Vec<&str> = here.into_iter().filter(|name| !known.contains(name)).collect();
            if !missing.is_empty() {
                let text = format!(
                    "the running gateway does not have {}: it was started with another environment; restart it from here",
                    missing.join(", ")
                );
                checks.push(Check { name: "models", health: Health::Warning, text });
            }
        }
    }
    let waiting: Vec<&str> =
        status["needsRestart"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !waiting.is_empty() {
        let text = format!(
            "{} has changed since the gateway started ({}); restart the gateway to apply the change",
            places.layers.file.display(),
            waiting.join(", ")
        );
        checks.push(Check { name: "configuration", health: Health::Warning, text });
    }
    checks
}

/// The models that a gateway started from here would have.
fn here(places: &Places) -> Result<Value, String> {
    let config = places.layers.load().map_err(|err| err.to_string())?;
    let found = runtime().and_then(|runtime| runtime.block_on(found(places, &config)));
    let (settings, problems) = found.map_err(|err| format!("{err:#}"))?;
    Ok(describe(&config, &Models::new(settings), &problems))
}

fn names(described: &Value) -> Vec<&str> {
    described["models"].as_array().into_iter().flatten().filter_map(|row| row["name"].as_str()).collect()
}

fn configured(described: &Value) -> Check {
    let is_balanced = |row: &&Value| row["is"].as_array().is_some_and(|is| is.contains(&json!("balanced")));
    let rows = described["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    let used = rows.iter().find(is_balanced).or(rows.first());
    let warnings: Vec<&str> =
        described["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (health, text) = match used.and_then(|row| row["name"].as_str()) {
        None => (Health::Warning, NO_MODEL.to_owned()),
        Some(name) if warnings.is_empty() => (Health::Good, format!("{name}, and {} in all", rows.len())),
        Some(name) => {
            (Health::Warning, format!("{name}, and {} in all\n{}", rows.len(), warnings.join("\n")))
        }
    };
    Check { name: "models", health, text }
}
