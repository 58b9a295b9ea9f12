//! Whether the gateway's database can be used, looked at without being in a running gateway's way.

use std::time::Duration;

use gantry_store::{Database, DatabaseState};

use super::{Check, check};
use crate::client::runtime;
use crate::environment::Environment;

/// Time for hundreds of megabytes; what is longer is looked at in part.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) fn look(environment: &Environment) -> Check {
    let path = environment.data.database().display().to_string();
    let todo = "put a copy of it back, or move it away, and a new one is made without the nodes, tokens and sessions of \
                before";
    let look = || -> Result<String, String> {
        let runtime = runtime().map_err(|err| format!("{err:#}"))?;
        match runtime.block_on(Database::inspect(&environment.data, LIMIT)) {
            Ok(DatabaseState::Absent) => Ok("none yet".to_owned()),
            Ok(DatabaseState::Sound) => Ok(format!("{path} is sound")),
            Ok(DatabaseState::SoundSoFar) => {
                Ok(format!("{path} is sound as far as {LIMIT:?} went; it is too large for more"))
            }
            Ok(DatabaseState::Damaged(what)) => Err(format!("{path} is damaged ({what}); {todo}")),
            Err(err) if err.is_damage() => Err(format!("{err}; {todo}")),
            Err(err) => Err(err.to_string()),
        }
    };
    check("database", look())
}
