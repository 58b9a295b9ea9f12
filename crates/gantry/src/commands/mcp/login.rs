//! `gantry mcp login`: logs in at a server with a browser, keeps the tokens sealed, and accepts the tools it then shows.

use anyhow::Result;
use clap::Args;
use gantry_mcp::client::{Registered, ServerError, Servers};
use gantry_process::{Command, Cwd, env};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::servers::{known, load, open, told};
use crate::client::runtime;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::local;
use crate::output::Output;

/// What opens an address, where there is one of these.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp login notes                       open the browser, wait for it to come back\n  \
    gantry mcp login notes --no-browser          only print the address to visit\n  \
    gantry mcp login notes --client-id abc       where clients are registered by hand")]
pub(crate) struct LoginArgs {
    /// The server
    name: String,
    /// Only print the address to visit
    #[arg(long)]
    no_browser: bool,
    /// As whom Gantry is registered there, if it cannot register itself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Ask for these rights, separated by spaces
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// Forget the login instead
    #[arg(long)]
    forget: bool,
}

pub(super) fn run(environment: &Environment, output: &Output, args: LoginArgs) -> Result<Exit> {
    let config = load(environment)?;
    known(&config, &args.name)?;
    let servers = open(environment, &config)?;
    let Some(login) = servers.login(&args.name).map_err(told)? else {
        return Err(
            UsageError(format!("{} is a program; only servers at addresses have logins", args.name)).into()
        );
    };
    if args.forget {
        let had = login.forget()?;
        output.done(if had { "the login is forgotten" } else { "there was no login" });
        return Ok(Exit::Success);
    }
    let registered =
        Registered { client_id: args.client_id.clone(), client_secret: None, scope: args.scope.clone() };
    let accepted = runtime()?.block_on(async {
        // What it says to somebody without a good token is where a login begins.
        let challenge = match servers.list(&args.name).await {
            Ok(_) => match servers.wanted(&args.name) {
                Some(challenge) => challenge,
                None => {
                    output.done(&format!("{} lets us in as we are", args.name));
                    return accept_new(&servers, &args.name);
                }
            },
            Err(ServerError::Login { challenge, .. }) => challenge,
            Err(err) => return Err(told(err)),
        };
        let show = |url: &gantry_net::Url| {
            let words = format!("Log in here: {url}");
            if output.json {
                output.warning(&words)
            } else {
                output.line(&words)
            }
            if !args.no_browser {
                browse(environment, url.as_str());
            }
        };
        login.log_in(&challenge, registered, show).await?;
        let fresh = open(environment, &config)?;
        let listed = fresh.list(&args.name).await;
        fresh.stop().await;
        listed.map_err(told)?;
        accept_new(&fresh, &args.name)
    });
    let accepted = accepted?;
    if output.json {
        output.value(&json!({"name": args.name, "loggedIn": true, "accepted": accepted}));
    } else {
        output.done(&format!("logged in at {}; {} tools are accepted", args.name, accepted.len()));
    }
    Ok(Exit::Success)
}

/// The first time a server can be listed at all, its tools are accepted as with `gantry mcp add`; later ones are not.
fn accept_new(servers: &Servers, name: &str) -> Result<Vec<String>> {
    if !servers.record(name).map_err(told)?.accepted.is_empty() {
        return Ok(Vec::new());
    }
    servers.accept(name, None, jiff::Timestamp::now().as_millisecond()).map_err(told)
}

/// Tries to open a browser aside; the address was printed in any case.
fn browse(environment: &Environment, url: &str) {
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
