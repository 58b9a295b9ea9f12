//! Checks that agents have a model and that the running gateway uses the current configuration file.

use gantry_agent::NO_MODEL;
use gantry_protocol::{Empty, GatewayStatus, ModelReport, ModelsReport, method};

use super::{Check, Health};
use crate::client::{Client, Target, runtime};
use crate::environment::Environment;
use crate::models::found;
use crate::output::Output;

pub(super) fn checks(environment: &Environment, output: &Output) -> Vec<Check> {
    let status = match Target::find(environment, output, false) {
        Ok(Target::Gateway(address)) => {
            Client::once(&address, output, method::GATEWAY_STATUS, &Empty {}).unwrap_or_default()
        }
        _ => GatewayStatus::default(),
    };
    let here = here(environment);
    let mut checks = Vec::new();
    match (&status.models, &here) {
        (None, Ok(here)) => checks.push(configured(here)),
        (None, Err(err)) => {
            checks.push(Check { name: "models", health: Health::Bad, text: err.clone() });
        }
        (Some(gateways), here) => {
            checks.push(configured(gateways));
            let known = names(gateways);
            let here = here.as_ref().map(names).unwrap_or_default();
            let missing: Vec<&str> = here.into_iter().filter(|name| !known.contains(name)).collect();
            if !missing.is_empty() {
                let text = format!(
                    "the running gateway does not have {}, because its environment variables differ; restart it from this \
                     shell",
                    missing.join(", ")
                );
                checks.push(Check { name: "models", health: Health::Warning, text });
            }
        }
    }
    if !status.needs_restart.is_empty() {
        let text = format!(
            "{} has changed since the gateway started ({}); restart the gateway to apply the change",
            environment.layers.file.display(),
            status.needs_restart.join(", ")
        );
        checks.push(Check { name: "configuration", health: Health::Warning, text });
    }
    checks
}

/// Returns the models that a gateway started from this shell would have.
fn here(environment: &Environment) -> Result<ModelsReport, String> {
    let config = environment.layers.load().map_err(|err| err.to_string())?;
    let found = runtime().and_then(|runtime| runtime.block_on(found(environment, &config)));
    Ok(found.map_err(|err| format!("{err:#}"))?.report())
}

fn names(report: &ModelsReport) -> Vec<&str> {
    report.models.iter().map(|model| model.name.as_str()).collect()
}

fn configured(report: &ModelsReport) -> Check {
    let (models, warnings) = (&report.models, &report.warnings);
    let is_balanced = |model: &&ModelReport| model.is.iter().any(|tier| tier == "balanced");
    let (health, text) = match models.iter().find(is_balanced).or(models.first()) {
        None => (Health::Warning, NO_MODEL.to_owned()),
        Some(ModelReport { name, .. }) if warnings.is_empty() => {
            (Health::Good, format!("{name}, and {} in all", models.len()))
        }
        Some(ModelReport { name, .. }) => {
            (Health::Warning, format!("{name}, and {} in all\n{}", models.len(), warnings.join("\n")))
        }
    };
    Check { name: "models", health, text }
}
