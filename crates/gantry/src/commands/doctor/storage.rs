//! Whether the agents' storage can be used: it answers, the bucket is there, the keys are good.

use std::time::Duration;

use gantry_store::Depth;

use super::{Check, Health};
use crate::client::runtime;
use crate::environment::Environment;

/// A store that takes longer is no use to an agent either.
const LIMIT: Duration = Duration::from_secs(5);

/// Nothing lies there: what is asked is only whether one may look.
const PROBE: &str = "agents/main/.gantry-doctor/";

/// Nothing when the configuration cannot be read, which is told already.
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
                anyhow::bail!("{place} cannot be used: {err}{}", config.storage.what_to_look_at())
            }
            Err(_) => {
                anyhow::bail!("{place} does not answer within {LIMIT:?}{}", config.storage.what_to_look_at())
            }
        }
    };
    Some(match look() {
        Ok(text) => Check { name: "storage", health: Health::Good, text },
        Err(err) => Check { name: "storage", health: Health::Bad, text: format!("{err:#}") },
    })
}
