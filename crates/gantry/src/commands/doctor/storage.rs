//! Checks the agents' storage: the store answers, the bucket exists and the keys are accepted.

use std::time::Duration;

use gantry_store::Depth;

use super::{Check, Health};
use crate::client::runtime;
use crate::environment::Environment;

/// Timeout of the check.
const LIMIT: Duration = Duration::from_secs(5);

/// A prefix without objects. Listing it checks access only.
const PROBE: &str = "agents/main/.gantry-doctor/";

/// Returns `None` when the configuration cannot be read, which another check reports.
pub(super) fn check(environment: &Environment) -> Option<Check> {
    let config = environment.layers.load().ok()?;
    let look = || -> anyhow::Result<String> {
        let objects = config.storage.open(&environment.data)?;
        let looking = async { tokio::time::timeout(LIMIT, objects.list(PROBE, Depth::One)).await };
        let listed = runtime()?.block_on(looking);
        let place = objects.place();
        match listed {
            Ok(Ok(_)) => Ok(place),
            Ok(Err(err)) => {
                anyhow::bail!("cannot use {place}: {err}{}", config.storage.hint())
            }
            Err(_) => {
                anyhow::bail!("{place} did not answer within {LIMIT:?}{}", config.storage.hint())
            }
        }
    };
    Some(match look() {
        Ok(text) => Check { name: "storage", health: Health::Good, text },
        Err(err) => Check { name: "storage", health: Health::Bad, text: format!("{err:#}") },
    })
}
