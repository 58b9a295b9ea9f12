//! Opens a URL in the user's browser.

use gantry_process::{Command, Cwd, env};
use tokio_util::sync::CancellationToken;

use crate::environment::Environment;
use crate::local;

/// Programs that open a URL in a browser.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// Tries to open a browser in the background. The URL was printed in any case.
pub(crate) fn browse(environment: &Environment, url: &str) {
    let Ok(processes) = local::processes(&environment.data) else { return };
    let commands = OPENERS.map(|opener| {
        let mut command = Command::new(opener, Cwd::Path("/".into())).args([url]);
        command.env = env::inherited(environment.variables.iter().cloned());
        command
    });
    tokio::spawn(async move {
        for command in commands {
            if processes.run(command, CancellationToken::new()).await.is_ok() {
                return;
            }
        }
    });
}
