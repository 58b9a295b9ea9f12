//! `gantry mcp login` logs in to a server with a browser, stores the tokens encrypted, and accepts its tools.

use anyhow::Result;
use clap::Args;
use gantry_mcp::client::{Registered, ServerError, Servers};
use serde_json::json;

use super::servers::{check_known, load, open, unreachable};
use crate::client::runtime;
use crate::commands::browser::browse;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp login notes                       open the browser and wait for the login\n  \
    gantry mcp login notes --no-browser          print the URL only\n  \
    gantry mcp login notes --client-id abc       use a manually registered client")]
pub(crate) struct LoginArgs {
    /// Server's name
    name: String,
    /// Print the URL without opening a browser
    #[arg(long)]
    no_browser: bool,
    /// OAuth client id, if the server does not support automatic registration
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Scopes to request, separated by spaces
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// Remove the stored login instead
    #[arg(long)]
    forget: bool,
}

pub(super) fn run(environment: &Environment, output: &Output, args: LoginArgs) -> Result<Exit> {
    let config = load(environment)?;
    check_known(&config, &args.name)?;
    let servers = open(environment, &config)?;
    let Some(login) = servers.login(&args.name).map_err(unreachable)? else {
        return Err(
            UsageError(format!("{} is a program; only servers with a URL have logins", args.name)).into()
        );
    };
    if args.forget {
        let had = login.forget()?;
        output.done(if had { "Removed the login." } else { "No login was stored." });
        return Ok(Exit::Success);
    }
    let registered =
        Registered { client_id: args.client_id.clone(), client_secret: None, scope: args.scope.clone() };
    let accepted = runtime()?.block_on(async {
        // The server's answer to a request without a valid token starts the login.
        let challenge = match servers.list(&args.name).await {
            Ok(_) => match servers.wanted(&args.name) {
                Some(challenge) => challenge,
                None => {
                    output.done(&format!("{} does not require a new login.", args.name));
                    return accept_new(&servers, &args.name);
                }
            },
            Err(ServerError::Login { challenge, .. }) => challenge,
            Err(err) => return Err(unreachable(err)),
        };
        let show = |url: &gantry_net::Url| {
            let text = format!("Log in here: {url}");
            if output.json {
                output.warning(&text)
            } else {
                output.line(&text)
            }
            if !args.no_browser {
                browse(environment, url.as_str());
            }
        };
        login.log_in(&challenge, registered, show).await?;
        let fresh = open(environment, &config)?;
        let listed = fresh.list(&args.name).await;
        fresh.stop().await;
        listed.map_err(unreachable)?;
        accept_new(&fresh, &args.name)
    });
    let accepted = accepted?;
    if output.json {
        output.value(&json!({"name": args.name, "loggedIn": true, "accepted": accepted}));
    } else {
        output.done(&format!("Logged in to {}; accepted {} tools.", args.name, accepted.len()));
    }
    Ok(Exit::Success)
}

/// Accepts all tools if none was accepted before, as `gantry mcp add` does. Later changes need `gantry mcp accept`.
fn accept_new(servers: &Servers, name: &str) -> Result<Vec<String>> {
    if !servers.record(name).map_err(unreachable)?.accepted.is_empty() {
        return Ok(Vec::new());
    }
    servers.accept(name, None, jiff::Timestamp::now().as_millisecond()).map_err(unreachable)
}
