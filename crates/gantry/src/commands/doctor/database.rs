//! Checks the gateway's database without disturbing a running gateway.

use std::time::Duration;

use gantry_store::{Database, DatabaseState};

use super::{Check, check};
use crate::client::runtime;
use crate::environment::Environment;

/// Time limit of the check, enough for hundreds of megabytes. Larger databases are checked in part.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) fn look(environment: &Environment) -> Check {
    let path = environment.data.database().display().to_string();
    let todo = "restore it from a backup, or move it away: the next start creates an empty one, without nodes, tokens \
                and sessions";
    let look = || -> Result<String, String> {
        let runtime = runtime().map_err(|err| format!("{err:#}"))?;
        match runtime.block_on(Database::inspect(&environment.data, LIMIT)) {
            Ok(DatabaseState::Absent) => Ok("not created yet".to_owned()),
            Ok(DatabaseState::Sound) => Ok(format!("{path} is intact")),
            Ok(DatabaseState::SoundSoFar) => Ok(format!(
                "{path} is intact as far as checked in {LIMIT:?}; it is too large to check completely"
            )),
            Ok(DatabaseState::Damaged(what)) => Err(format!("{path} is damaged ({what}); {todo}")),
            Err(err) if err.is_damage() => Err(format!("{err}; {todo}")),
            Err(err) => Err(err.to_string()),
        }
    };
    check("database", look())
}
